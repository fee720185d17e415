/**
 * The model's tokenizer, from `tokenizer.json` and `tokenizer_config.json`, by the package
 * `@huggingface/tokenizers`. A tokenizer that names tokens which the model does not have is refused.
 */

import fs from 'node:fs';
import { createRequire } from 'node:module';
import nodePath from 'node:path';
import { checkpointError } from '../checkpoint/index.ts';

/** What is used of the package. Its own types do not resolve under `nodenext`, so it is required by name. */
interface PackageTokenizer {
  encode(text: string, options: { add_special_tokens: boolean }): { readonly ids: readonly number[] };
  decode(ids: readonly number[], options: { skip_special_tokens: boolean }): string;
  get_vocab(withAdded: boolean): ReadonlyMap<string, number>;
}
interface TokenizerPackage {
  readonly Tokenizer: new (tokenizer: object, config: object) => PackageTokenizer;
}

const { Tokenizer: PackageTokenizer } = createRequire(import.meta.url)(
  '@huggingface/tokenizers',
) as TokenizerPackage;

export class TextTokenizer {
  /** `tokenizer_config.json`, where chat templates and special tokens stand. */
  readonly settings: Readonly<Record<string, unknown>>;
  readonly #tokenizer: PackageTokenizer;

  /** @throws TKV_INPUT for files that are missing, not JSON, or do not fit the model */
  constructor(directory: string, vocabulary: number) {
    const path = nodePath.join(directory, 'tokenizer.json');
    const json = readJson(path);
    this.settings = readJson(nodePath.join(directory, 'tokenizer_config.json'), {});
    try {
      this.#tokenizer = new PackageTokenizer(json, this.settings);
    } catch (cause) {
      const why = cause instanceof Error ? cause.message : String(cause);
      throw checkpointError(path, `is no tokenizer that is known (${why})`, 'Fetch the model again.');
    }
    for (const [token, id] of this.#tokenizer.get_vocab(true)) {
      if (id < vocabulary) continue;
      const problem = `gives ${JSON.stringify(token)} the id ${id}, and the model has ${vocabulary} tokens`;
      throw checkpointError(path, problem, 'Give the tokenizer of this model.', token);
    }
  }

  /** @param special whether the tokenizer adds what begins a text, such as a begin token */
  encode(text: string, special: boolean): number[] {
    return [...this.#tokenizer.encode(text, { add_special_tokens: special }).ids];
  }

  /** Text of the tokens, special ones left out. A character cut in the middle becomes U+FFFD. */
  decode(tokens: readonly number[]): string {
    return tokens.length === 0 ? '' : this.#tokenizer.decode(tokens, { skip_special_tokens: true });
  }
}

function readJson(path: string, otherwise?: Record<string, unknown>): Record<string, unknown> {
  if (otherwise !== undefined && !fs.existsSync(path)) return otherwise;
  let json: unknown;
  try {
    json = JSON.parse(fs.readFileSync(path, 'utf8'));
  } catch (cause) {
    const why = cause instanceof Error ? cause.message : String(cause);
    throw checkpointError(path, `cannot be read as JSON (${why})`, 'Give a model with its tokenizer.');
  }
  if (typeof json === 'object' && json !== null) return json as Record<string, unknown>;
  throw checkpointError(path, 'is no JSON object', 'Give a model with its tokenizer.');
}
