/**
 * What the API needs of any engine: requests go in, answers come token by token, and KV lies in a runtime of
 * tierkv. The engine of this folder is one, `../engines` has others.
 */

import type { KVRuntime } from '../../../src/index.ts'; // in your project: 'tierkv'
import type { Answer, GenerationRequest } from './answer.ts';
import type { Decoder } from './text/index.ts';

/** Text to tokens and back, by the model's own vocabulary. */
export interface EngineText extends Decoder {
  /** What `tokenizer_config.json` says, with the chat template of the model as `chat_template`. */
  readonly settings: Readonly<Record<string, unknown>>;
  /** @param special whether what begins a text, such as a begin token, is added */
  encode(text: string, special: boolean): number[];
}

export interface ServedEngine {
  readonly cache: { readonly kv: KVRuntime };
  readonly tokenizer: EngineText;
  /** Number of tokens that the model knows. */
  readonly vocabulary: number;
  /** Most tokens of prompt and answer together. */
  readonly contextTokens: number;
  /** What a request may not ask for, by the name of its field, and why. */
  readonly without: Readonly<Record<string, string>>;
  /** Requests that have not ended. */
  readonly size: number;
  /** Requests among them that are computed now. */
  readonly running: number;
  /**
   * Several answers to one prompt; each seed is one more than the one before.
   * @throws TKV_CAPACITY for a prompt and an answer that are together longer than the context, TKV_STATE when the engine closes
   */
  submitSeveral(request: GenerationRequest, count: number): Answer[];
  /** The client has left. */
  cancel(answer: Answer): void;
  /**
   * Requests that have not ended are cancelled, and what is cached is saved.
   * @returns blocks that the files hold @throws TKV_IO when not all was saved; everything is closed then too
   */
  close(saves?: boolean): Promise<number>;
}
