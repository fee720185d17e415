/**
 * The model's tokenizer, from `tokenizer.json` and the files beside it. Text to tokens is done by the package
 * `@huggingface/tokenizers`, tokens to text by `tokenDecoder.ts`. A tokenizer that names tokens which the model
 * does not have is refused.
 */

import fs from 'node:fs';
import { createRequire } from 'node:module';
import nodePath from 'node:path';
import vm from 'node:vm';
import { TierKVError } from '../../../../src/index.ts';
import { checkpointError, jsonBounds, readJsonObject } from '../checkpoint/index.ts';
import { chatTemplatesOf } from './chatTemplateFiles.ts';
import { cleanUpStages, decoderStages, type TextStream, textStream } from './tokenDecoder.ts';

/** The part of the package that is used. Its own types do not resolve under `nodenext`, so it is required by name. */
interface PackageTokenizer {
  encode(text: string, options: { add_special_tokens: boolean }): { readonly ids: readonly number[] };
}
interface TokenizerPackage {
  readonly Tokenizer: new (tokenizer: object, config: object) => PackageTokenizer;
}

const { Tokenizer: PackageTokenizer } = createRequire(import.meta.url)(
  '@huggingface/tokenizers',
) as TokenizerPackage;

type Json = Readonly<Record<string, unknown>>;

const remedy = 'Give a model with its tokenizer.';
/** How long an expression of the tokenizer may take over one text. It takes milliseconds unless it backtracks. */
const encodeMs = 5000;
/**
 * How many times longer the steps of a part may make a text. Bytes written as characters make four times of it; more than
 * one such step, and replacements that grow, multiply.
 */
const maxGrowth = 32;
/** Texts over which an expression with nested repetitions takes for ever. */
const probes = ['a', 'A', ' ', '0', '!', 'aA', 'a ', '\n'].flatMap((part) => [
  `${part.repeat(48)}\u0001`,
  `${part.repeat(48)}!`,
]);

export class TextTokenizer {
  /**
   * `tokenizer_config.json`, with what other files say about special tokens, and with the chat template or the
   * named templates of the model as `chat_template`.
   */
  readonly settings: Json;
  readonly #path: string;
  readonly #tokenizer: PackageTokenizer;
  readonly #tokens: ReadonlyMap<number, string>;
  readonly #special: ReadonlySet<string>;
  readonly #stages: ReturnType<typeof decoderStages>;
  readonly #cleanUp: ReturnType<typeof cleanUpStages>;

  /** @throws TKV_INPUT for files that are missing, not JSON, or do not fit the model */
  constructor(directory: string, vocabulary: number) {
    const path = nodePath.join(directory, 'tokenizer.json');
    this.#path = path;
    const json = readJsonObject(path, jsonBounds.tokenizer, remedy);
    this.settings = settingsOf(directory);
    const { added, tokens } = tokensOf(json, this.settings, path, vocabulary);
    this.#tokens = tokens;
    this.#special = specialTokens(added, this.settings);
    for (const part of ['normalizer', 'pre_tokenizer', 'decoder']) {
      const growth = growthOf(json[part], part);
      if (growth <= maxGrowth) continue;
      const problem = `makes up to ${growth.toPrecision(2)} times a text of it, and ${maxGrowth} times is allowed`;
      throw checkpointError(path, problem, 'Give another tokenizer.', part);
    }
    const model = json.model as Json; // an object: `tokensOf` has looked
    try {
      // The package reads fields that older files leave out.
      const whole = { normalizer: null, pre_tokenizer: null, post_processor: null, decoder: null, ...json };
      this.#tokenizer = new PackageTokenizer({ ...whole, added_tokens: added }, { ...this.settings });
      this.#stages = decoderStages(json.decoder);
    } catch (cause) {
      const why = cause instanceof Error ? cause.message : String(cause);
      throw checkpointError(path, `is a tokenizer of an unknown kind (${why})`, 'Fetch the model again.');
    }
    this.#cleanUp = cleansUp(this.settings, model, directory) ? cleanUpStages() : [];
    for (const probe of probes) {
      this.#within(1000, () => {
        this.#tokenizer.encode(probe, { add_special_tokens: false });
        const decoding = textStream(this.#stages, this.#cleanUp, () => probe);
        decoding.push(0);
        decoding.end();
      });
    }
  }

  /** @param special whether the tokenizer adds what begins a text, such as a begin token */
  encode(text: string, special: boolean): number[] {
    return this.#within(encodeMs, () => [
      ...this.#tokenizer.encode(text, { add_special_tokens: special }).ids,
    ]);
  }

  /** Text of the tokens, special ones left out. A character cut in the middle becomes U+FFFD. */
  decode(tokens: readonly number[]): string {
    const stream = this.stream();
    return tokens.map((token) => stream.push(token)).join('') + stream.end();
  }

  /** The same, token by token. */
  stream(): TextStream {
    return textStream(this.#stages, this.#cleanUp, (id) => {
      const token = this.#tokens.get(id);
      return token === undefined || this.#special.has(token) ? undefined : token;
    });
  }

  /** @throws TKV_INPUT where the work takes longer than `milliseconds`: an expression that backtracks */
  #within<T>(milliseconds: number, work: () => T): T {
    try {
      return within(milliseconds, work);
    } catch (cause) {
      if (!isTimeout(cause)) throw cause;
      const problem = `takes more than ${milliseconds} ms over one text: an expression of it backtracks`;
      const remedy = 'Give another tokenizer, or a shorter text.';
      throw new TierKVError('TKV_INPUT', `${this.#path} ${problem}. ${remedy}`, { path: this.#path, cause });
    }
  }
}

/** Work of at most `milliseconds`. @throws an error that `isTimeout` knows where it takes longer */
export function within<T>(milliseconds: number, work: () => T): T {
  let result: T | undefined;
  sandbox.work = () => {
    result = work();
  };
  const run = (): void => script.runInContext(sandbox, { timeout: milliseconds });
  try {
    try {
      run();
    } catch (error) {
      // The time counts a pause of the whole process too, so it takes two runs to blame the work.
      if (!isTimeout(error)) throw error;
      run();
    }
  } finally {
    sandbox.work = undefined;
  }
  return result as T; // set, since the work has ended
}

/** How many times longer a step makes a text at most. Steps of a sequence multiply, which some hundred bytes can do without end. */
function growthOf(step: unknown, part: string): number {
  if (typeof step !== 'object' || step === null) return 1;
  const { type, normalizers, pretokenizers, decoders, pattern, content, replacement, suffix } = step as Json;
  const length = (value: unknown): number => (typeof value === 'string' ? value.length : 0);
  const steps = [normalizers, pretokenizers, decoders].find(Array.isArray) as unknown[] | undefined;
  switch (type) {
    case 'Sequence':
      return (steps ?? []).reduce((all: number, each) => all * growthOf(each, part), 1);
    case 'Replace': {
      const { String: from, Regex: expression } = (pattern ?? {}) as Json;
      const matchesNothing = from === '' || (typeof expression === 'string' && canMatchNothing(expression));
      // what matches nothing stands between all characters
      return matchesNothing ? 1 + length(content) : Math.max(1, length(content) / Math.max(1, length(from)));
    }
    case 'Metaspace':
      return part === 'decoder' ? 1 : Math.max(1, length(replacement));
    case 'ByteLevel':
      return part === 'decoder' ? 1 : 4;
    case 'BPEDecoder':
      return suffix === '' ? 2 : 1;
    case 'CTC':
      return (step as Json).word_delimiter_token === '' ? 2 : 1;
    default:
      return 1;
  }
}

/** Whether an expression may match between two characters: one that looks around, or that the empty text matches. */
function canMatchNothing(expression: string): boolean {
  if (/\(\?<?[=!]|\\[bB]|[$^]/.test(expression)) return true;
  try {
    return new RegExp(expression, 'u').test('');
  } catch {
    return false; // its reader says what is wrong with it
  }
}

export function isTimeout(error: unknown): boolean {
  return (error as NodeJS.ErrnoException | null)?.code === 'ERR_SCRIPT_EXECUTION_TIMEOUT';
}

/** Work is ended from outside by the time limit that only `node:vm` has; it also interrupts an expression. */
const sandbox = vm.createContext({}) as { work?: (() => void) | undefined };
const script = new vm.Script('work()');

/** Tokens by id, each id checked before any table of their size is made. */
function tokensOf(
  json: Json,
  settings: Json,
  path: string,
  vocabulary: number,
): { added: Json[]; tokens: Map<number, string> } {
  const { model, added_tokens: list = [] } = json;
  if (typeof model !== 'object' || model === null) {
    throw checkpointError(path, 'has no model: it is a tokenizer of an unknown kind', remedy, 'model');
  }
  const tokens = new Map<number, string>();
  const take = (token: unknown, id: unknown): void => {
    if (typeof token !== 'string')
      throw checkpointError(path, `has a token ${JSON.stringify(token)}, not a text`, remedy);
    if (!Number.isSafeInteger(id) || (id as number) < 0) {
      throw checkpointError(
        path,
        `gives ${JSON.stringify(token)} the id ${JSON.stringify(id)}`,
        remedy,
        token,
      );
    }
    if ((id as number) >= vocabulary) {
      const problem = `gives ${JSON.stringify(token)} the id ${id}, and the model has ${vocabulary} tokens`;
      throw checkpointError(path, problem, 'Give the tokenizer of this model.', token);
    }
    tokens.set(id as number, token);
  };
  const { vocab } = model as Json;
  if (typeof vocab !== 'object' || vocab === null)
    throw checkpointError(path, 'has no vocab', remedy, 'vocab');
  const entries: Iterable<[unknown, unknown]> = Array.isArray(vocab)
    ? vocab.map((entry, id): [unknown, unknown] => [Array.isArray(entry) ? entry[0] : entry, id])
    : Object.entries(vocab);
  for (const [token, id] of entries) take(token, id);
  if (!Array.isArray(list))
    throw checkpointError(path, 'has added_tokens that are not a list', remedy, 'added_tokens');
  const added: Json[] = [...list];
  const known = new Set(added.map((each) => (each as Json | null)?.content));
  for (const [id, value] of Object.entries((settings.added_tokens_decoder ?? {}) as Json)) {
    const entry = (value ?? {}) as Json;
    if (!known.has(entry.content)) added.push({ ...entry, id: Number(id) });
  }
  for (const each of added) take((each as Json | null)?.content, (each as Json | null)?.id);
  return { added, tokens };
}

/**
 * Tokens that are left out of texts: each is marked so in either file, or has a part in the settings, as
 * `eos_token` has. A name in a list of more special tokens does not change one that is added as text.
 */
function specialTokens(added: readonly Json[], settings: Json): Set<string> {
  const special = new Set<string>();
  const configured = Object.values((settings.added_tokens_decoder ?? {}) as object) as (Json | null)[];
  for (const token of [...added, ...configured]) {
    if (token?.special === true && typeof token.content === 'string') special.add(token.content);
  }
  for (const [name, value] of Object.entries(settings)) {
    const token = name.endsWith('_token') ? contentOf(value) : undefined;
    if (token !== undefined) special.add(token);
  }
  const more = [settings.additional_special_tokens, settings.extra_special_tokens].flatMap((some) =>
    typeof some === 'object' && some !== null ? Object.values(some) : [],
  );
  const known = new Set(added.map(({ content }) => content));
  for (const value of more) {
    const token = contentOf(value);
    if (token !== undefined && !known.has(token)) special.add(token);
  }
  return special;
}

/** A token as text, or as the object that stands for one. */
export function contentOf(value: unknown): string | undefined {
  const text = typeof value === 'object' && value !== null && 'content' in value ? value.content : value;
  return typeof text === 'string' ? text : undefined;
}

/** As transformers 5: absent is false, and a BPE model, whose spaces are text, is not cleaned up. */
function cleansUp(settings: Json, model: Json, directory: string): boolean {
  const isSet = (name: string): boolean => {
    const value = settings[name] ?? false;
    if (typeof value === 'boolean') return value;
    const path = nodePath.join(directory, 'tokenizer_config.json');
    throw checkpointError(path, `${name} is ${JSON.stringify(value)}`, 'Give true or false.', name);
  };
  if (!isSet('clean_up_tokenization_spaces')) return false;
  const isBpe = model.type === 'BPE' || (model.type === undefined && Array.isArray(model.merges));
  return !isBpe || isSet('clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output');
}

function settingsOf(directory: string): Json {
  const optional = (name: string): Json => {
    const path = nodePath.join(directory, name);
    return fs.existsSync(path) ? readJsonObject(path, jsonBounds.header, remedy) : {};
  };
  const config = optional('tokenizer_config.json');
  const { fast_tokenizer_files: versions } = config;
  if (Array.isArray(versions) && versions.some((name) => name !== 'tokenizer.json')) {
    const path = nodePath.join(directory, 'tokenizer_config.json');
    const problem = `fast_tokenizer_files names ${JSON.stringify(versions)}, of which only tokenizer.json is read`;
    throw checkpointError(
      path,
      problem,
      'Keep the file that fits, as tokenizer.json.',
      'fast_tokenizer_files',
    );
  }
  // As transformers: the older file counts where the newer one does not list the added tokens.
  const older = config.added_tokens_decoder === undefined ? optional('special_tokens_map.json') : {};
  const settings: Record<string, unknown> = { ...config, ...older };
  const templates = chatTemplatesOf(directory, config.chat_template);
  if (templates === undefined) delete settings.chat_template;
  else settings.chat_template = templates;
  return settings;
}
