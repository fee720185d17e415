/**
 * What of the scheduler is written down and brought back, between two steps: each request's progress, the
 * batch and the queue. A plan, its outcome and what is left of a step's budget are made anew by every step.
 * Requests and sequences belong to others, so they are written down by name.
 */

import { invariant } from '../errors.ts';
import type { Sequence, SequenceId } from '../manager/sequences/blockTable/sequence.ts';
import type { StateVisitor } from '../snapshot/index.ts';
import type { SchedulerCore } from './core.ts';
import { RequestState, type ServingRequest } from './state/request.ts';

/** How state names what it does not own. */
export interface SchedulerNames<R extends ServingRequest> {
  nameOf(request: R): number;
  requestOf(name: number): R;
  sequenceOf(id: SequenceId): Sequence | undefined;
}

/** Of a request: who it is, what its state is made with, and the id of its sequence or 0. */
interface SavedRequest {
  readonly name: number;
  readonly number: number;
  readonly limitTokens: number;
  readonly arrivalUs: number;
  readonly sequence: number;
}

export function visitCore<R extends ServingRequest>(
  core: SchedulerCore<R>,
  visitor: StateVisitor,
  names: SchedulerNames<R>,
): void {
  const byNumber = new Map<number, RequestState<R>>();
  const stateOf = (number: number): RequestState<R> => {
    const state = byNumber.get(number);
    invariant(state !== undefined, 'a saved request is among those that have not ended');
    return state;
  };
  visitor.fields(core);
  visitor.fields(core.counters);
  core.pace.visitState(visitor);
  visitor.value(
    () => [...core.requests.values()].map((state) => saved(state, names)),
    (all) => {
      core.requests.clear();
      for (const one of all) {
        const state = restored(one, names);
        core.requests.set(state.request.id, state);
        byNumber.set(state.number, state);
      }
    },
  );
  for (const state of core.requests.values()) visitor.fields(state);
  core.waiting.visitState(visitor, stateOf);
  core.batch.visitState(visitor, stateOf);
  visitor.value(
    () => core.holders.map(({ number }) => number),
    (numbers) => {
      core.holders.length = 0;
      for (const number of numbers) core.holders.push(stateOf(number));
    },
  );
}

function saved<R extends ServingRequest>(state: RequestState<R>, names: SchedulerNames<R>): SavedRequest {
  const { request, number, limitTokens, arrivalUs, sequence } = state;
  return { name: names.nameOf(request), number, limitTokens, arrivalUs, sequence: sequence?.id ?? 0 };
}

function restored<R extends ServingRequest>(
  { name, number, limitTokens, arrivalUs, sequence }: SavedRequest,
  names: SchedulerNames<R>,
): RequestState<R> {
  const state = new RequestState(names.requestOf(name), number, limitTokens, arrivalUs);
  state.sequence = sequence === 0 ? null : (names.sequenceOf(sequence as SequenceId) ?? null);
  invariant((state.sequence === null) === (sequence === 0), 'a saved sequence is open');
  return state;
}
