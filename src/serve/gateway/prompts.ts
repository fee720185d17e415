/**
 * From the body of a request to what decisions may know of its prompt: its length, and the keys of its blocks. The text
 * itself goes no further.
 *
 * A prompt is cut into blocks by the model's tokenizer where its file is given, a chat as the model's template renders it
 * (chatPrompts.ts), and else by bytes of text, four of which count as a token. The key of a block is a keyed hash of the block and of all before it:
 *
 *     key[i] = BLAKE2s-128(secret; key[i - 1], bytes of block i)      key[-1] = BLAKE2s-128(secret; model, adapter, salt)
 *
 * The salt holds the tenant where servers keep tenants apart (`TenantSalts`).
 *
 * so equal keys are equal prefixes under one secret, and without the secret a key says nothing of its text.
 */

import { existsSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { readText } from '../../io/files/inputs.ts';
import { parseJson } from '../../runtime/boundedJson.ts';
import { configError, TierKVError } from '../../runtime/errors.ts';

import { blake2sOf } from '../../runtime/keys/blake2s.ts';
import { wordsPerKey } from '../../runtime/keys/keyChain.ts';
import { chatPaths, completionsPath, messagesPath } from './apis.ts';
import { type BodyFields, type ChatTemplate, chatOfMessages, chatText } from './chatPrompts.ts';

/** Bytes of text that count as a token without a tokenizer: English text has about four letters a token. */
const BYTES_A_TOKEN = 4;
const KEY_BYTES = 16;
/** Bytes of a token id in a block. */
const ID_BYTES = 4;

type Tokenisation = 'tokenizer' | 'text';

interface PromptFacts {
  readonly promptTokens: number;
  /** Whether `promptTokens` were counted; else they are an estimate. */
  readonly isCounted: boolean;
  /** Keys of the full blocks, four words each. */
  readonly words: Uint32Array;
}

/** The part of a tokenizer that is used. */
export interface Encoder {
  encode(text: string, options: { add_special_tokens: boolean }): { readonly ids: readonly number[] };
}

interface TokenizerLibrary {
  readonly Tokenizer: new (tokenizer: object, config: object) => Encoder;
}

/** Under which salt a tenant's blocks are found: servers keep tenants apart, or have one cache for all. */
export class TenantSalts {
  readonly #tenants: ReadonlySet<string>;
  /** Names of tenants that a body gave as its `cache_salt`: a server that tells them says nothing of tenants. */
  readonly #asked = new Set<string>();
  readonly #isGiven: boolean;
  readonly #missed: () => void;
  #areApart: boolean;
  /** Whether servers told of blocks under a salt, and of blocks without one. */
  #toldSalted = false;
  #toldPlain = false;
  #areMissed = false;

  /**
   * @param areApart undefined: from when a server tells of blocks under the name of a tenant
   * @param missed called once, when `areMissed` becomes true
   */
  constructor(tenants: Iterable<string> = [], areApart?: boolean, missed: () => void = () => {}) {
    this.#tenants = new Set(tenants);
    this.#isGiven = areApart !== undefined;
    this.#areApart = areApart ?? false;
    this.#missed = missed;
  }

  /** Whether the prompts of two tenants share no block. */
  get areApart(): boolean {
    return this.#areApart;
  }

  /** Whether there are tenants, and neither the operator nor a server has said whether they are apart. */
  get areUnknown(): boolean {
    return this.#tenants.size > 0 && !this.#isGiven && !this.#areApart;
  }

  /**
   * Whether a prompt came without tenant and salt while servers had told of blocks under salts alone: it found none of
   * them, whatever it says.
   */
  get areMissed(): boolean {
    return this.#areMissed;
  }

  /** @param asked `cache_salt` of the body */
  of(tenant: string, asked: string): string {
    if (this.#tenants.has(asked)) this.#asked.add(asked);
    const finds = this.#tenants.size > 0 || asked !== '' || this.#toldPlain || !this.#toldSalted;
    if (!finds && !this.#areMissed) {
      this.#areMissed = true;
      this.#missed();
    }
    if (!this.#areApart) return asked;
    return asked === '' ? tenant : JSON.stringify([tenant, asked]);
  }

  /** A server has told of blocks, under a salt or none. */
  told(salt: string | null): void {
    if (salt === null || salt === '') {
      this.#toldPlain = true;
      return;
    }
    this.#toldSalted = true;
    if (this.areUnknown && this.#tenants.has(salt) && !this.#asked.has(salt)) this.#areApart = true;
  }
}

/** Characters of a prompt that are tokenized: keys of what lies behind them would decide little and cost much. */
const CHARACTERS_MOST = 2 ** 18;

export class PromptCutter {
  readonly tokenisation: Tokenisation;
  /** Template that makes one text of a chat; null for the gateway's own way. */
  readonly chatTemplate: ChatTemplate | null;
  readonly blockTokens: number;
  readonly salts: TenantSalts;
  readonly #secret: Uint8Array;
  readonly #encoder: Encoder | null;

  /** @param secret 16 to 32 bytes @param chatTemplate counts beside an encoder only */
  constructor(
    blockTokens: number,
    secret: Uint8Array,
    encoder: Encoder | null,
    chatTemplate: ChatTemplate | null = null,
    salts: TenantSalts = new TenantSalts(),
  ) {
    this.salts = salts;
    this.blockTokens = blockTokens;
    this.chatTemplate = encoder === null ? null : chatTemplate;
    this.#secret = secret;
    this.#encoder = encoder;
    this.tokenisation = encoder === null ? 'text' : 'tokenizer';
  }

  /** The key before the first block. @param kind of a text that is not the model's prompt, so that no server has its blocks */
  root(model: string, adapter: string, salt: string, kind?: string): Uint8Array {
    const names = kind === undefined ? [model, adapter, salt] : [model, adapter, salt, kind];
    const named = new TextEncoder().encode(JSON.stringify(names));
    return blake2sOf(named, KEY_BYTES, this.#secret);
  }

  /** A name of 16 hexadecimal digits in the place of another one, from which it cannot be told. */
  nameOf(name: string): string {
    return Buffer.from(
      blake2sOf(new TextEncoder().encode(`name ${name}`), KEY_BYTES / 2, this.#secret),
    ).toString('hex');
  }

  /** The key of a block from the key before it; token ids or text as bytes. */
  next(parent: Uint8Array, block: Uint8Array): Uint8Array {
    const data = new Uint8Array(KEY_BYTES + block.length);
    data.set(parent);
    data.set(block, KEY_BYTES);
    return blake2sOf(data, KEY_BYTES, this.#secret);
  }

  /** How chats become one text: `template` or `text`. */
  get chats(): 'template' | 'text' {
    return this.chatTemplate === null ? 'text' : 'template';
  }

  /**
   * The facts of a prompt that decisions may know.
   * @param root of the model, the adapter and the salt
   * @param addsSpecial whether the tokenizer puts its own tokens around a text
   */
  cut(prompt: string | readonly number[], root: Uint8Array, addsSpecial: boolean = true): PromptFacts {
    if (typeof prompt === 'string' && this.#encoder === null) {
      const bytes = Buffer.from(prompt);
      return {
        promptTokens: Math.max(1, Math.ceil(bytes.length / BYTES_A_TOKEN)),
        isCounted: false,
        words: this.#chain(bytes, this.blockTokens * BYTES_A_TOKEN, root),
      };
    }
    let ids: readonly number[];
    let more = 0;
    if (typeof prompt === 'string') {
      const head = prompt.slice(0, CHARACTERS_MOST);
      ids = this.#encoder?.encode(head, { add_special_tokens: addsSpecial }).ids ?? [];
      more = Math.ceil((prompt.length - head.length) / BYTES_A_TOKEN);
    } else ids = prompt;
    return {
      promptTokens: Math.max(1, ids.length + more),
      isCounted: more === 0,
      words: this.#chain(bytesOfIds(ids), this.blockTokens * ID_BYTES, root),
    };
  }

  #chain(bytes: Uint8Array, blockBytes: number, root: Uint8Array): Uint32Array {
    const blocks = Math.floor(bytes.length / blockBytes);
    const words = new Uint32Array(blocks * wordsPerKey);
    let key = root;
    for (let block = 0; block < blocks; block++) {
      key = this.next(key, bytes.subarray(block * blockBytes, (block + 1) * blockBytes));
      putKey(key, words, block * wordsPerKey);
    }
    return words;
  }
}

/** Token ids as bytes, four each. */
export function bytesOfIds(ids: ArrayLike<number>): Uint8Array {
  const bytes = new Uint8Array(ids.length * ID_BYTES);
  const view = new DataView(bytes.buffer);
  for (let i = 0; i < ids.length; i++) view.setUint32(i * ID_BYTES, ids[i], true);
  return bytes;
}

/** Writes a key as four words. */
export function putKey(key: Uint8Array, words: Uint32Array, at: number): void {
  const view = new DataView(key.buffer, key.byteOffset, KEY_BYTES);
  for (let i = 0; i < wordsPerKey; i++) words[at + i] = view.getUint32(4 * i, true);
}

/**
 * The tokenizer of a `tokenizer.json`, with the `tokenizer_config.json` beside it if there is one.
 * @throws TKV_CONFIG without the package for it; TKV_INPUT for a file that is not a tokenizer
 */
export function loadTokenizer(path: string): Encoder {
  let library: TokenizerLibrary;
  try {
    // its types do not resolve under nodenext, so it is required by name
    library = createRequire(import.meta.url)('@huggingface/tokenizers') as TokenizerLibrary;
  } catch (cause) {
    throw new TierKVError(
      'TKV_CONFIG',
      'a tokenizer needs the package @huggingface/tokenizers, which is not installed. Install it: ' +
        'npm install @huggingface/tokenizers, or leave the tokenizer out: prompts are cut by text then.',
      { field: 'tokenizer', cause },
    );
  }
  const json = (file: string): object => {
    const error = (problem: string, cause?: unknown): TierKVError =>
      new TierKVError('TKV_INPUT', `${file} ${problem}. Name the tokenizer.json of a model.`, {
        path: file,
        cause,
      });
    const value = parseJson(readText(file), error, Number.MAX_SAFE_INTEGER);
    if (typeof value !== 'object' || value === null) throw error('is not an object');
    return value;
  };
  const beside = join(dirname(path), 'tokenizer_config.json');
  const config = existsSync(beside) ? json(beside) : {};
  try {
    // the package reads fields that older files leave out
    const whole = {
      normalizer: null,
      pre_tokenizer: null,
      post_processor: null,
      decoder: null,
      ...json(path),
    };
    const encoder = new library.Tokenizer(whole, config);
    encoder.encode('probe', { add_special_tokens: true });
    return encoder;
  } catch (cause) {
    if (cause instanceof TierKVError) throw cause;
    const why = cause instanceof Error ? cause.message : String(cause);
    throw new TierKVError(
      'TKV_INPUT',
      `${path} is not a tokenizer: ${why}. Name the tokenizer.json of a model.`,
      {
        path,
        cause,
      },
    );
  }
}

//  The prompt of a body of OpenAI's or Anthropic's API.

export interface ReadPrompt {
  /** Text, or token ids where the client gave them. */
  readonly prompt: string | readonly number[];
  /** Whether the tokenizer puts its own tokens around the text. */
  readonly addsSpecial: boolean;
  /** Whether it is the prompt of a server: not so for a chat that no template rendered, and for other paths. */
  readonly isExact: boolean;
  /** Whether it is all of what the server counts as the prompt: not so for the first of several. */
  readonly isWhole: boolean;
  readonly model: string;
  /** vLLM's `cache_salt`: requests with other salts share nothing. */
  readonly salt: string;
  readonly streams: boolean;
  /** Most tokens of the answer, 0 where the body does not say. */
  readonly maxTokens: number;
  /** Answers that are asked for: several of a prompt, or one for each of several. */
  readonly choices: number;
  readonly user: string;
  /** The body as `JSON.parse` gave it. */
  readonly fields: Readonly<Record<string, unknown>>;
}

/** Most letters of a model's name: longer texts are not names, and would only fill logs. */
const MODEL_MOST = 256;
/** Most JSON values of a body. */
const VALUES_MOST = 2 ** 20;

/**
 * Reads what a gateway must know of a body; the backend judges the rest of it.
 * @param template of the model's chats, null where it is not known
 * @throws TKV_INPUT for a body that is not a JSON object
 */
export function readPrompt(path: string, body: string, template: ChatTemplate | null = null): ReadPrompt {
  const error = (problem: string, cause?: unknown): TierKVError =>
    new TierKVError('TKV_INPUT', `the body ${problem}. Send a JSON object.`, { field: 'body', cause });
  const value = parseJson(body, error, VALUES_MOST);
  if (typeof value !== 'object' || value === null || Array.isArray(value)) throw error('is not an object');
  const fields = value as BodyFields;
  const text = (name: string): string => (typeof fields[name] === 'string' ? (fields[name] as string) : '');
  const most = fields.max_completion_tokens ?? fields.max_tokens;
  return {
    ...promptOf(path, fields, body, template),
    model: text('model').slice(0, MODEL_MOST),
    salt: text('cache_salt'),
    streams: fields.stream === true,
    maxTokens: isCount(most) ? most : 0,
    choices: choicesOf(fields),
    user: text('user') || userOf(fields.metadata),
    fields,
  };
}

function promptOf(
  path: string,
  fields: BodyFields,
  body: string,
  template: ChatTemplate | null,
): Pick<ReadPrompt, 'prompt' | 'addsSpecial' | 'isExact' | 'isWhole'> {
  if (chatPaths.has(path)) {
    const chat = path === messagesPath ? chatOfMessages(fields) : fields;
    const { text, isTemplate, addsSpecial } = chatText(chat, template);
    return { prompt: text, addsSpecial, isExact: isTemplate, isWhole: true };
  }
  if (path !== completionsPath) return { prompt: body, addsSpecial: true, isExact: false, isWhole: false };
  const { prompt } = fields;
  return {
    prompt: firstPrompt(fields),
    addsSpecial: fields.add_special_tokens !== false,
    isExact: true,
    isWhole: !Array.isArray(prompt) || prompt.length === 1 || isIds(prompt),
  };
}

function firstPrompt({ prompt }: BodyFields): string | readonly number[] {
  if (typeof prompt === 'string') return prompt;
  if (!Array.isArray(prompt)) return '';
  if (isIds(prompt)) return prompt;
  // of several prompts the first one stands for all: they go to one backend
  const [first] = prompt as unknown[];
  if (typeof first === 'string') return first;
  return Array.isArray(first) && isIds(first) ? first : '';
}

/** The user that a client of Anthropic's API names; agents put their session there. */
function userOf(metadata: unknown): string {
  const { user_id: user } = (metadata ?? {}) as { readonly user_id?: unknown };
  return typeof user === 'string' ? user : '';
}

function isCount(value: unknown): value is number {
  return typeof value === 'number' && Number.isSafeInteger(value) && value > 0;
}

function choicesOf({ n, prompt }: BodyFields): number {
  const isList = Array.isArray(prompt) && !isIds(prompt as unknown[]);
  return (isList ? (prompt as unknown[]).length : 1) * (isCount(n) ? n : 1);
}

function isIds(list: readonly unknown[]): list is readonly number[] {
  return list.every((id) => typeof id === 'number' && id >>> 0 === id);
}

/** A copy of a secret for keys from a file, or drawn. @throws TKV_CONFIG for one that is too short */
export function requireSecret(secret: Uint8Array): Uint8Array {
  if (secret.length >= 16 && secret.length <= 32) return new Uint8Array(secret);
  throw configError('keySecret', `has ${secret.length} bytes`, 'Give it 16 to 32 random bytes.');
}
