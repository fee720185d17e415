/**
 * Token ids on demand. A drawn span names a random stream and a place in it, so its tokens can be drawn again
 * at any time; `TokenReader` keeps the last streams it stood in and goes on from there when the next span
 * lies ahead. For drawn prompts the ids are upstream's, bit for bit. Prompts known by block ids get ids
 * derived from them: equal blocks, equal tokens.
 */

import { TierKVError } from '../../../runtime/errors.ts';
import { fnv1a64, GoRandom } from '../../random/index.ts';
import type { PromptIdentity, TokenSpan, WorkloadRequest } from '../request.ts';

/** Token ids lie in [0, VOCABULARY). */
export const VOCABULARY = 128_000;

const KEPT_STREAMS = 64;

export class TokenReader {
  readonly #streams = new Map<bigint, GoRandom>();

  /** All token ids of the prompt of `request`. */
  prompt(request: WorkloadRequest): Int32Array {
    return this.#read(request.prompt, request.inputTokens);
  }

  /** The token ids that will be generated for `request`. */
  output(request: WorkloadRequest): Int32Array {
    return this.#read(request.output, request.outputTokens);
  }

  #read(identity: PromptIdentity, tokens: number): Int32Array {
    switch (identity.kind) {
      case 'tokens':
        return identity.tokens;
      case 'text':
        throw new TierKVError(
          'TKV_INPUT',
          'a prompt of text has no token ids. Tokenize it with the tokenizer of the model',
        );
      case 'drawn':
        return this.#drawn(identity.spans, tokens);
      case 'blocks': {
        const out = new Int32Array(tokens);
        const space = fnv1a64(identity.namespace);
        let at = 0;
        for (let i = 0; i < identity.runs.length && at < tokens; i += 2) {
          for (let id = identity.runs[i], end = id + identity.runs[i + 1]; id < end && at < tokens; id++) {
            const count = Math.min(identity.blockTokens, tokens - at);
            new GoRandom(BigInt.asIntN(64, space ^ BigInt(id))).fillIntn(out, at, count, VOCABULARY);
            at += count;
          }
        }
        // what lies behind the last full block is this request's own; it is never shared, so any ids will do
        if (at < tokens) new GoRandom(space).fillIntn(out, at, tokens - at, VOCABULARY);
        return out;
      }
    }
  }

  #drawn(spans: readonly TokenSpan[], tokens: number): Int32Array {
    const out = new Int32Array(tokens);
    let at = 0;
    for (const span of spans) {
      this.#at(span).fillIntn(out, at, span.tokens, VOCABULARY);
      at += span.tokens;
    }
    return out;
  }

  #at(span: TokenSpan): GoRandom {
    let random = this.#streams.get(span.seed);
    if (random === undefined) {
      if (this.#streams.size >= KEPT_STREAMS) this.#streams.delete(this.#streams.keys().next().value!);
      random = new GoRandom(span.seed);
    } else {
      this.#streams.delete(span.seed);
      if (random.position > span.position) random.seek(span.seed, 0);
    }
    this.#streams.set(span.seed, random);
    random.skipTo(span.position);
    return random;
  }
}
