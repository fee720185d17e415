/**
 * What an unlimited prefix cache would find: blocks of traces that name them, token lists in blocks of 16,
 * and the spans that drawn prompts share. What was seen is remembered, up to a limit.
 */

import { TierKVError } from '../../runtime/errors.ts';
import type { PromptIdentity, TokenSpan, WorkloadRequest } from './request.ts';

/** Most sessions, blocks and spans of prompts that are told apart. */
export const maxRemembered: number = 2 ** 22;

export function tooMuch(what: string): TierKVError {
  return new TierKVError(
    'TKV_CAPACITY',
    `the workload has more than ${what}, the most that is summarized. Look at a part of it ` +
      `(--num-requests, --horizon)`,
  );
}

const LIST_BLOCK_TOKENS = 16;

/** Counts what an unlimited prefix cache would find. */
export class ReuseCounter {
  reusedTokens: number = 0;
  blocks: number = 0;
  reusedBlocks: number = 0;
  readonly #blocksSeen = new Map<string, Set<number>>();
  #remembered = 0;
  readonly #chains = new Set<number>();
  readonly #spans = new Set<string>();

  add(request: WorkloadRequest): void {
    const { prompt } = request;
    if (prompt.kind === 'blocks') this.#addBlocks(prompt, request.inputTokens);
    else if (prompt.kind === 'tokens') this.#addTokens(prompt.tokens);
    else if (prompt.kind === 'drawn') this.#addSpans(request, prompt.spans);
    if (this.#remembered > maxRemembered)
      throw tooMuch(`${maxRemembered} different blocks or parts of prompts`);
  }

  #addBlocks(prompt: PromptIdentity & { kind: 'blocks' }, inputTokens: number): void {
    let seen = this.#blocksSeen.get(prompt.namespace);
    if (seen === undefined) this.#blocksSeen.set(prompt.namespace, (seen = new Set()));
    const before = seen.size;
    let leading = 0;
    let broken = false;
    for (let i = 0; i < prompt.runs.length; i += 2) {
      for (let id = prompt.runs[i], end = id + prompt.runs[i + 1]; id < end; id++) {
        this.blocks++;
        if (!broken && seen.has(id)) leading++;
        else {
          broken = true;
          seen.add(id);
        }
      }
    }
    this.#remembered += seen.size - before;
    this.reusedBlocks += leading;
    this.reusedTokens += Math.min(leading * prompt.blockTokens, inputTokens);
  }

  /** Token lists in blocks of 16, each identified by a hash of everything up to its end. */
  #addTokens(tokens: Int32Array): void {
    const before = this.#chains.size;
    let low = 0x811c9dc5;
    let high = 0x01000193;
    let broken = false;
    for (let at = 0; at + LIST_BLOCK_TOKENS <= tokens.length; at += LIST_BLOCK_TOKENS) {
      for (let i = at; i < at + LIST_BLOCK_TOKENS; i++) {
        low = Math.imul(low ^ tokens[i], 0x01000193);
        high = Math.imul(high + tokens[i], 0x85ebca6b) ^ (high >>> 15);
      }
      const key = (high >>> 11) * 2 ** 32 + (low >>> 0);
      this.blocks++;
      if (!broken && this.#chains.has(key)) {
        this.reusedBlocks++;
        this.reusedTokens += LIST_BLOCK_TOKENS;
      } else {
        broken = true;
        this.#chains.add(key);
      }
    }
    this.#remembered += this.#chains.size - before;
  }

  /** Drawn prompts share whole spans: prefixes of groups, and the history of a session. */
  #addSpans(request: WorkloadRequest, spans: (PromptIdentity & { kind: 'drawn' })['spans']): void {
    const before = this.#spans.size;
    this.#lookUp(request, spans);
    this.#remembered += this.#spans.size - before;
  }

  #lookUp(request: WorkloadRequest, spans: readonly TokenSpan[]): void {
    const shared = request.sessionId === '' ? spans.length - 1 : spans.length;
    let broken = false;
    for (let i = 0; i < shared; i++) {
      const key = `${spans[i].seed}/${spans[i].position}/${spans[i].tokens}`;
      if (!broken && this.#spans.has(key)) this.reusedTokens += spans[i].tokens;
      else {
        broken = true;
        this.#spans.add(key);
      }
    }
    if (request.sessionId === '' || request.output.kind !== 'drawn') return;
    // a follow-up repeats the output too, whole or without its last token
    for (const span of request.output.spans) {
      this.#spans.add(`${span.seed}/${span.position}/${span.tokens}`);
      this.#spans.add(`${span.seed}/${span.position}/${span.tokens - 1}`);
    }
  }
}
