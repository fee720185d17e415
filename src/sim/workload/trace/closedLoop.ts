/**
 * A recorded trace in closed loop: the first round of each session arrives as recorded, each later one its
 * recorded pause after the one before has ended. Where a trace has no pauses, a pause is what is left of the
 * time between two arrivals beyond a microsecond for each token of the answer, as generated conversations
 * have it.
 */

import type { SessionPlan } from '../generate/index.ts';
import type { RequestStream, WorkloadRequest } from '../request.ts';

export interface ClosedLoopTrace {
  /** Requests outside sessions, and first rounds. */
  readonly stream: RequestStream;
  readonly sessions: SessionPlan;
}

/**
 * @param requests in order of arrival; all of them are held
 * @param pauseUs between rounds, in place of the recorded ones
 */
export function closedLoopTrace(requests: Iterable<WorkloadRequest>, pauseUs?: number): ClosedLoopTrace {
  const first: WorkloadRequest[] = [];
  const later: WorkloadRequest[][] = [];
  const numberOf = new Map<string, number>();
  const last: WorkloadRequest[] = [];
  for (const request of requests) {
    const { sessionId } = request;
    const known = sessionId === '' ? undefined : numberOf.get(sessionId);
    if (known === undefined) {
      first.push(request);
      if (sessionId === '') continue;
      request.session = later.push([]) - 1;
      numberOf.set(sessionId, request.session);
      last[request.session] = request;
      continue;
    }
    const before = last[known];
    const gapUs = Math.max(0, request.arrivalUs - before.arrivalUs - before.outputTokens);
    const recordedUs = request.thinkTimeUs > 0 ? request.thinkTimeUs : gapUs;
    const thinkTimeUs = pauseUs ?? recordedUs;
    later[known].push({ ...request, thinkTimeUs });
    last[known] = request;
  }
  let next = 0;
  return {
    stream: { next: () => (next < first.length ? { ...first[next++] } : undefined) },
    sessions: {
      kinds: [],
      kindOf: new Int32Array(later.length),
      seeds: new BigInt64Array(later.length),
      recorded: later,
      followUpBudget: -1,
      horizonUs: Infinity,
    },
  };
}
