/**
 * Saves and restores a cluster. Requests come before the instances that serve them, and instances before the parts
 * that refer to them.
 */

import { TierKVError } from '../../runtime/errors.ts';
import {
  putBackState,
  restoreState,
  type SavedState,
  type Stateful,
  type StateVisitor,
  sealed,
  takeState,
} from '../../runtime/snapshot.ts';
import { SimRequest } from '../instance/simRequest.ts';
import { EventQueue } from '../kernel/eventQueue.ts';
import { SessionManager } from '../workload/closedLoop.ts';
import type { WorkloadRequest } from '../workload/request.ts';
import type { ClusterCore, RequestTape } from './core.ts';
import { keyText, type SimulationKey, type SimulationParts, sameKey } from './parts.ts';
import { freshScaling } from './scaling.ts';

/** @returns a snapshot whose state has no seal: for forks of this process */
export function takeCluster(core: ClusterCore, events: number): SnapshotData {
  const place = { events, timeUs: core.nowUs, taken: core.tape.taken };
  return {
    version: snapshotVersion,
    key: core.parts.key,
    ...place,
    state: takeState(clusterState(core, place)),
  };
}

/**
 * @param isForeign whether the data come from outside: their seal is checked, and all tables are walked afterwards
 * @returns events that were handled
 * @throws TKV_MISMATCH for a snapshot of another version or key, and for a damaged one
 */
export function restoreCluster(core: ClusterCore, data: SnapshotData, isForeign: boolean): number {
  checkSnapshot(data, core.parts.key);
  const checkIntegrity = (): void => {
    for (const { engine } of core.instances) engine.checkIntegrity();
  };
  const state = clusterState(core, data);
  if (isForeign) restoreState({ ...state, checkIntegrity }, data.state);
  else putBackState(state, data.state);
  core.tape.skipTo(data.taken);
  return data.events;
}

/** Where a run stands. */
type RunPlace = Pick<SnapshotData, 'events' | 'timeUs' | 'taken'>;

function clusterState(core: ClusterCore, { events, timeUs, taken }: RunPlace): Stateful {
  return {
    visitState(visitor) {
      for (const one of [events, timeUs, taken]) visitor.constant(one); // what stands beside the state is sound too
      if (visitor.restores) core.clock.advanceTo(timeUs);
      visitInstances(core, visitor);
      core.table.visitState(visitor);
      visitRequests(core, visitor);
      for (const instance of core.instances) instance.visitState(visitor, (row) => core.request(row));
      visitor.list(core.sent);
      visitor.list(core.expected);
      core.handoffs.visitState(visitor, (row) => core.request(row));
      core.gateway?.visitState(visitor);
      core.scaling?.visitState(visitor);
      core.shared?.visitState(visitor);
      core.control.visitState(visitor);
      if (visitor.restores) core.control.gateway?.adopt((row) => core.request(row));
      visitEvents(core, visitor);
    },
  };
}

/** The instances that there were, and those gone that were gone. */
function visitInstances(core: ClusterCore, visitor: StateVisitor): void {
  visitor.value(
    () => [...core.poolOf],
    (saved) => {
      for (const pool of saved.slice(core.instances.length)) core.addInstance(pool);
    },
  );
  visitor.list(core.removed);
  if (visitor.restores) for (const number of core.removed) core.control.removeInstance(number);
}

function visitRequests(core: ClusterCore, visitor: StateVisitor): void {
  visitor.value(
    () => core.unfinished().map(({ number, workload }) => ({ number, workload })),
    (saved) => {
      for (const { number, workload } of saved) {
        core.requests[number] = new SimRequest(workload, number, core.parts.keys);
      }
    },
  );
  for (const request of core.requests) request?.visitState(visitor);
  core.open = visitor.number(core.open);
  core.admissions = visitor.number(core.admissions);
  core.routings = visitor.number(core.routings);
  visitor.value<readonly (WorkloadRequest | undefined)[]>(
    () => [...core.coming],
    (saved) => {
      core.coming = [...saved];
    },
  );
  visitor.list(core.freeSlots);
  const { sessions } = core.parts.workload;
  if (sessions === undefined) return;
  visitor.value(
    () => core.sessions?.snapshot(),
    (saved) => {
      if (saved !== undefined) core.sessions = SessionManager.restore(sessions, saved);
    },
  );
}

function visitEvents(core: ClusterCore, visitor: StateVisitor): void {
  visitor.value(
    () => core.queue.snapshot(),
    (saved) => {
      core.queue = EventQueue.restore(saved);
    },
  );
}

// A run between two events. `data` is plain: it can be cloned structurally, sent to another thread and kept.
// Forks in the same thread go on from the snapshot itself, which reads on in the requests without drawing any
// of them again, and whose state needs no seal.

/** Version of the data's form; it changes with the fields that are written. */
export const snapshotVersion = 6;

export interface SnapshotData {
  readonly version: number;
  readonly key: SimulationKey;
  /** Events that were handled, and the time of the last one in microseconds. */
  readonly events: number;
  readonly timeUs: number;
  /** Requests that were taken from the workload's stream. */
  readonly taken: number;
  readonly state: SavedState;
}

/** A simulation at one moment, from which any number of runs go on. */
export class SimulationSnapshot {
  /** The state as this process took it, without a seal. */
  readonly own: SnapshotData;
  #data: SnapshotData | undefined;
  readonly #parts: SimulationParts;
  readonly #tape: RequestTape;

  constructor(parts: SimulationParts, data: SnapshotData, tape: RequestTape) {
    this.#parts = parts;
    this.own = data;
    this.#tape = tape;
  }

  /** The snapshot as plain data that may leave the process: sealed when it is first asked for. */
  get data(): SnapshotData {
    this.#data ??= { ...this.own, state: sealed(this.own.state) };
    return this.#data;
  }

  /** Parts for one more simulation, without the observer and the forced decisions of this one. */
  parts(): SimulationParts {
    const { key, options, pools, instances, makeInstance, keys, workload, control, scaling, shared } =
      this.#parts;
    return {
      key,
      options,
      pools,
      instances,
      makeInstance,
      ...(shared === undefined ? {} : { shared }),
      keys,
      workload: { ...workload, stream: this.#tape.fork() },
      control: control.fresh(),
      ...(scaling === undefined ? {} : { scaling: scaling.map(freshScaling) }),
    };
  }
}

/** @throws TKV_MISMATCH for another version or key */
function checkSnapshot({ version, key }: SnapshotData, own: SimulationKey): void {
  if (version !== snapshotVersion) {
    throw new TierKVError(
      'TKV_MISMATCH',
      `The snapshot has version ${version}, and this tierkv reads ${snapshotVersion}. Take it anew.`,
      { field: 'snapshot.version' },
    );
  }
  if (typeof key === 'object' && key !== null && sameKey(key, own)) return;
  throw new TierKVError(
    'TKV_MISMATCH',
    `The snapshot is of ${keyText(key ?? {})}; the simulation has ${keyText(own)}. Use the same key.`,
    { field: 'snapshot.key' },
  );
}
