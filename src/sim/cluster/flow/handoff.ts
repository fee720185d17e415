/**
 * One hand-off of a request's KV, and what is transferred at a time:
 *
 *     granularity   transfers, each with the base latency
 *     request       one, of the whole prompt
 *     chunk         one for what each prefill step computed
 *     block         one for each block
 *     stream        one, into which bytes flow when they are computed
 */

import { configError, requireFinite, requirePositive } from '../../../runtime/errors.ts';
import { nearestName } from '../../../runtime/nearestName.ts';
import type { SimRequest } from '../../instance/index.ts';

export const handoffGranularities = ['request', 'chunk', 'block', 'stream'] as const;
export type HandoffGranularity = (typeof handoffGranularities)[number];

export interface HandoffConfig {
  /** Of each transfer. */
  readonly baseLatencyUs: number;
  readonly bandwidthBytesPerS: number;
  /** What is one transfer. Default: `request`. */
  readonly granularity?: HandoffGranularity;
  /**
   * Whether what a prefill step computed goes while the rest of the prompt is computed. Not with `request`,
   * which has nothing to send before. Default: false.
   */
  readonly pipelined?: boolean;
}

export type HandoffState = 'local' | 'transferring' | 'transferred';

/** Blocks that one prefill step completed, and when it ended. */
export interface HandoffPart {
  readonly blocks: number;
  readonly computedUs: number;
}

/** One hand-off, as traces have it. */
export interface Handoff {
  readonly request: SimRequest;
  readonly from: number;
  to: number;
  /** Of the whole prompt. */
  readonly blocks: number;
  readonly bytes: number;
  state: HandoffState;
  /** When the whole prompt was computed; -1 before. */
  readyUs: number;
  /** When room for it was first asked for; -1 before. */
  askedUs: number;
  /** When its first transfer could begin, and the newest ended or will end; -1 before. */
  startUs: number;
  endUs: number;
  /** Blocks that are computed, and transfers so far. */
  computedBlocks: number;
  transfers: number;
  /** What is computed and not sent, in order. */
  parts: readonly HandoffPart[];
}

/** Blocks of a hand-off that go on the link together: one transfer, or one each with granularity `block`. */
export interface HandoffSend {
  readonly request: SimRequest;
  readonly from: number;
  readonly to: number;
  /** Place of the first of them in the prompt. */
  readonly firstBlock: number;
  readonly blocks: number;
  readonly bytes: number;
  /** That begin with them; 0 where they join a stream. */
  readonly transfers: number;
  /** When they were given to the link, and when it carries them. */
  readonly sentUs: number;
  readonly startUs: number;
  readonly endUs: number;
}

export interface HandoffCounters {
  /** Hand-offs that had to wait for room on the decode side. */
  delayed: number;
  completed: number;
  bytes: number;
  /** Transfers that completed hand-offs took. */
  transfers: number;
  /** Sum of the times that hand-offs waited for room, and that their transfers took with queueing. */
  waitedUs: number;
  transferUs: number;
  /** Most hand-offs that waited at a time. */
  longestQueue: number;
}

/** @throws TKV_CONFIG with the setting that is wrong */
export function checkHandoffConfig(config: HandoffConfig): Required<HandoffConfig> {
  const { baseLatencyUs, bandwidthBytesPerS, granularity = 'request', pipelined = false } = config;
  requirePositive('handoff.bandwidthBytesPerS', bandwidthBytesPerS);
  requireFinite('handoff.baseLatencyUs', baseLatencyUs);
  if (!handoffGranularities.includes(granularity)) {
    const near = nearestName(granularity, handoffGranularities);
    const remedy = near === undefined ? '' : `Did you mean '${near}'? `;
    const names = handoffGranularities.join(', ');
    throw configError('handoff.granularity', `is "${granularity}"`, `${remedy}Use one of ${names}.`);
  }
  if (pipelined && granularity === 'request') {
    const problem = 'has nothing to send before the prompt is done with granularity request';
    throw configError('handoff.pipelined', problem, 'Use chunk, block or stream.');
  }
  return { baseLatencyUs, bandwidthBytesPerS, granularity, pipelined };
}

/** Transfers that begin when these parts are sent, where so many were before. */
export function transfersOf(
  granularity: HandoffGranularity,
  parts: readonly HandoffPart[],
  before: number,
): number {
  switch (granularity) {
    case 'chunk':
      return parts.length;
    case 'block':
      return parts.reduce((sum, { blocks }) => sum + blocks, 0);
    default:
      return before === 0 ? 1 : 0;
  }
}
