/**
 * What of a cluster is written down and brought back. Requests come before the instances that serve them, and
 * instances before whoever counts on them.
 */

import {
  restoreState,
  type Stateful,
  type StateVisitor,
  saveState,
} from '../../../runtime/snapshot/index.ts';
import type { PlainState } from '../../control/index.ts';
import { SimRequest } from '../../instance/index.ts';
import { EventQueue } from '../../kernel/index.ts';
import { SessionManager, type WorkloadRequest } from '../../workload/index.ts';
import type { ClusterCore } from '../core.ts';
import { checkSnapshot, type SnapshotData, snapshotVersion } from './simulationSnapshot.ts';

export function saveCluster(core: ClusterCore, events: number): SnapshotData {
  return {
    version: snapshotVersion,
    key: core.parts.key,
    events,
    timeUs: core.nowUs,
    taken: core.tape.taken,
    state: saveState(clusterState(core)),
  };
}

/** @returns events that were handled. @throws TKV_MISMATCH for a snapshot of another version or key */
export function restoreCluster(core: ClusterCore, data: SnapshotData): number {
  checkSnapshot(data, core.parts.key);
  core.clock.advanceTo(data.timeUs);
  restoreState(clusterState(core), data.state);
  return data.events;
}

function clusterState(core: ClusterCore): Stateful {
  return {
    visitState(visitor) {
      visitInstances(core, visitor);
      core.table.visitState(visitor);
      visitRequests(core, visitor);
      for (const instance of core.instances) instance.visitState(visitor, (row) => core.request(row));
      visitor.list(core.sent);
      visitor.list(core.expected);
      core.handoffs.visitState(visitor, (row) => core.request(row));
      core.gateway?.visitState(visitor);
      core.scaling?.visitState(visitor);
      visitControl(core, visitor);
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

function visitControl(core: ClusterCore, visitor: StateVisitor): void {
  const { control } = core;
  visitor.value<PlainState>(
    () => control.snapshot(),
    (saved) => {
      control.restore(saved);
      control.gateway?.adopt((row) => core.request(row));
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
