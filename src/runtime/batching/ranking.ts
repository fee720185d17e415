/**
 * Ranks that somebody outside gives to requests, between two steps: an input like any other, so that a log
 * holds them and a replay has them again. Under the queue order `ranked` the lowest rank of those that wait
 * joins the batch first; under the victim rule `ranked` the highest of those that run gives way first. A rank
 * stays until it is given anew, whatever becomes of the request meanwhile.
 */

import { configError, TierKVError } from '../errors.ts';
import type { SchedulerCore } from './core.ts';
import { SchedulerInput } from './schedulerSink.ts';
import { RANKED } from './state/policies.ts';
import { Phase, type RequestState, type ServingRequest } from './state/request.ts';

/** What a request is to be ranked by from now on. */
export interface RequestRank {
  readonly id: string;
  /**
   * Finite. While the request runs: the higher, the sooner it gives way. Else: the lower, the sooner it
   * joins.
   */
  readonly rank: number;
}

/**
 * The requests that these ranks change, checked.
 * @throws TKV_CONFIG where nobody goes by ranks, TKV_UNKNOWN_ID, TKV_INPUT for a rank that is none and for a
 * request with two
 */
export function checkRanks<R extends ServingRequest>(
  core: SchedulerCore<R>,
  ranks: readonly RequestRank[],
): Map<RequestState<R>, number> {
  const { queueOrder, victimRule } = core.config;
  if (queueOrder !== RANKED && victimRule !== RANKED) {
    const problem = `is '${queueOrder}', and victimRule is '${victimRule}': neither goes by ranks`;
    throw configError('queueOrder', problem, `Set one of them to '${RANKED}'.`);
  }
  const given = new Map<RequestState<R>, number>();
  for (const { id, rank } of ranks) {
    const state = core.requests.get(id);
    if (state === undefined) {
      throw new TierKVError(
        'TKV_UNKNOWN_ID',
        `No request ${id} is there to be ranked. Rank those that have not ended.`,
        {
          field: 'id',
        },
      );
    }
    if (!Number.isFinite(rank)) {
      throw new TierKVError('TKV_INPUT', `The rank of request ${id} is ${rank}. Give it a finite number.`, {
        field: 'rank',
      });
    }
    if (given.has(state)) {
      throw new TierKVError('TKV_INPUT', `Request ${id} has two ranks. Give it one.`, { field: 'id' });
    }
    given.set(state, rank);
  }
  for (const [state, rank] of given) if (rankOf(state) === rank) given.delete(state);
  return given;
}

/** Logs the ranks and puts each request where it belongs now. */
export function applyRanks<R extends ServingRequest>(
  core: SchedulerCore<R>,
  ranks: ReadonlyMap<RequestState<R>, number>,
  nowUs: number,
): void {
  if (core.sink !== null) {
    const pairs: number[] = [];
    for (const [{ number }, rank] of ranks) pairs.push(number, rank);
    core.sink.input(SchedulerInput.RERANK, nowUs, 0, 0, 0, 0, 0, undefined, pairs);
  }
  const { waiting } = core;
  for (const [state, rank] of ranks) {
    // a rank of -0 and one of 0 have one text in a log
    const plain = rank + 0;
    if (state.seat !== -1) {
      state.victimRank = plain;
    } else if (state.phase === Phase.WAITING) {
      waiting.remove(state);
      state.queueRank = plain;
      waiting.putBack(state);
    } else {
      state.queueRank = plain;
    }
  }
  core.sink?.done?.();
}

function rankOf({ seat, victimRank, queueRank }: RequestState): number {
  return seat === -1 ? queueRank : victimRank;
}

/**
 * Whether blocks may run out for those that run in the step that comes next. False is certain, as long as
 * nothing else happens before it and no owner has a quota.
 */
export function mayRunShort<R extends ServingRequest>(core: SchedulerCore<R>): boolean {
  const { batch, port, config } = core;
  if (batch.size === 0) return false;
  if (batch.stalledCount > 0 || port.disturbances !== core.disturbances) return true;
  const most = config.longPrefillTokens > 0 ? config.longPrefillTokens : config.maxBatchedTokens;
  let blocks = batch.needingBlock;
  for (let seat = batch.firstPrefill(); seat !== -1; seat = batch.nextAlike(seat)) {
    const state = batch.state(seat);
    if (state.isMeeting) return true;
    const end = Math.min(state.known, state.computed + most);
    blocks += Math.max(0, core.blocksFor(end) - state.blocks);
  }
  return blocks > 0 && !port.canAllocate(blocks);
}
