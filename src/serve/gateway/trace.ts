/**
 * The workload trace of a gateway: a line a request with its times, lengths, tenant, keys of its blocks and what became of
 * it, and nothing of its text. `tierkv simulate` takes it (`src/sim/workload/gatewayTrace.ts` reads it).
 */

import { wordsPerKey } from '../../runtime/keys/keyChain.ts';
import type { EndKind } from '../../sim/control/controlPlane.ts';
import type { AnswerEnd } from './answers.ts';

export type TraceOutcome = 'completed' | 'rejected' | 'unroutable' | 'failed' | 'clientLeft' | 'broken';

/** The outcome of a request by the end of its answer, for the trace and for decisions. */
export function endOf(
  ended: AnswerEnd,
  isGood: boolean,
): { readonly outcome: TraceOutcome; readonly how: EndKind } {
  if (ended === 'whole' && isGood) return { outcome: 'completed', how: 'completed' };
  if (ended === 'whole') return { outcome: 'failed', how: 'dropped' };
  const isLeft = ended === 'clientLeft' || ended === 'clientStalled';
  return { outcome: isLeft ? 'clientLeft' : 'broken', how: 'dropped' };
}

export interface TracedRequest {
  readonly id: string;
  readonly arrivalUs: number;
  readonly promptTokens: number;
  /** Words of the keys of the full blocks. */
  readonly words: Uint32Array;
  readonly outputTokens: number;
  /** Most tokens that it asked for, 0 where it did not say. */
  readonly maxTokens: number;
  readonly model: string;
  readonly adapter: string;
  readonly tenantId: string;
  readonly sloClass: string;
  readonly sloTargetUs: number;
  /** From its arrival, 0 where its client said nothing. */
  readonly deadlineUs: number;
  readonly sessionId: string;
  readonly streams: boolean;
  readonly outcome: TraceOutcome;
  /** The reason for which its answer ended, where that is not known; '' else. */
  readonly unknownEnd: string;
  /** Name of the backend that answered; '' without one. */
  readonly backend: string;
  /** Name of the backend that computed its prompt for that one; '' without one. */
  readonly prefillBackend: string;
  /** From its arrival, -1 where it had none, and for an answer that did not stream. */
  readonly ttftUs: number;
  readonly e2eUs: number;
  /** The backend's count of tokens, -1 where it gave none. */
  readonly countedPromptTokens: number;
  readonly cachedTokens: number;
}

/** A line of the trace. Lines stand in the order in which requests ended; the reader sorts them by arrival. */
export function traceLine(record: TracedRequest, blockTokens: number): object {
  const keys: string[] = [];
  for (let at = 0; at < record.words.length; at += wordsPerKey) {
    // 64 bits tell the blocks of a trace apart
    keys.push(hex(record.words[at]) + hex(record.words[at + 1]));
  }
  return {
    arrival_us: record.arrivalUs,
    prompt_tokens: record.promptTokens,
    output_tokens: record.outputTokens,
    block_tokens: blockTokens,
    block_keys: keys,
    request_id: record.id,
    model: record.model,
    adapter: record.adapter,
    tenant: record.tenantId,
    slo_class: record.sloClass,
    slo_ttft_us: record.sloTargetUs,
    deadline_us: record.deadlineUs,
    session: record.sessionId,
    streaming: record.streams,
    max_tokens: record.maxTokens,
    outcome: record.outcome,
    backend: record.backend,
    prefill_backend: record.prefillBackend,
    ttft_us: record.ttftUs,
    e2e_us: record.e2eUs,
    counted_prompt_tokens: record.countedPromptTokens,
    cached_tokens: record.cachedTokens,
    ...(record.unknownEnd === '' ? {} : { unknown_end: record.unknownEnd }),
  };
}

function hex(word: number): string {
  return (word >>> 0).toString(16).padStart(8, '0');
}
