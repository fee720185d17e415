/**
 * The manager's state as plain data: every taken slot, every job, every block table. For debuggers, and for
 * model checkers that have to know whether two states are the same. It copies everything, so it belongs
 * beside `checkIntegrity`, not on a hot path. What only counts or measures (counters, times, generations) is
 * left out.
 */

import { type JobId, JobState } from '../tables/jobTable.ts';
import { ReplicaState } from '../tables/replicaTable.ts';
import type { Core } from './core.ts';

/** A replica's number: its tier's base plus its slot; -1 for none. */
type DumpedReplica = number;

interface ReplicaDump {
  readonly replica: DumpedReplica;
  readonly tier: number;
  readonly state: number;
  readonly refs: number;
  readonly readers: number;
  readonly resident: number;
  readonly writing: number;
}

interface JobDump {
  readonly job: JobId;
  readonly kind: number;
  readonly state: number;
  readonly priority: number;
  readonly content: number;
  readonly source: DumpedReplica;
  readonly target: DumpedReplica;
  readonly targetTier: number;
  readonly resident: number;
  readonly overdue: number;
  /** Pairs of (sequence, block), in the order in which they began to wait. */
  readonly waiters: readonly (readonly [number, number])[];
}

interface ContentDump {
  readonly content: number;
  readonly key: Uint32Array;
  readonly sealed: number;
  /** Ready replicas in the order in which they are found. */
  readonly replicas: readonly DumpedReplica[];
  /** Job that brings it into each tier, as a row; -1 for none. */
  readonly incoming: readonly number[];
}

interface SequenceDump {
  readonly id: number;
  readonly matched: number;
  readonly entries: readonly {
    readonly state: number;
    readonly content: number;
    readonly replica: DumpedReplica;
    readonly outcome: number;
  }[];
}

export interface ManagerDump {
  readonly replicas: readonly ReplicaDump[];
  /** Cached replicas of each tier, in the order in which they would be evicted. */
  readonly cached: readonly (readonly DumpedReplica[])[];
  readonly contents: readonly ContentDump[];
  /** In the order of their rows. */
  readonly jobs: readonly JobDump[];
  /** Jobs that wait for a slot of each tier, in order, without the jobs that have ended meanwhile. */
  readonly claims: readonly (readonly JobId[])[];
  readonly sequences: readonly SequenceDump[];
}

export function dump(core: Core): ManagerDump {
  return {
    replicas: replicasOf(core),
    cached: Array.from({ length: core.tiers }, (_, tier) => core.policy.dump(tier)),
    contents: contentsOf(core),
    jobs: jobsOf(core),
    claims: core.claims.map((queue) => queue.toArray().filter((job) => core.jobs.isLive(job))),
    sequences: Array.from(core.sequences.values(), (sequence) => ({
      id: sequence.id,
      matched: sequence.matched,
      entries: Array.from({ length: sequence.length }, (_, i) => ({
        state: sequence.state[i],
        content: sequence.content[i],
        replica: sequence.replica[i],
        outcome: sequence.outcome[i],
      })),
    })),
  };
}

function replicasOf(core: Core): ReplicaDump[] {
  const { replicas } = core;
  const found: ReplicaDump[] = [];
  for (let replica = 0; replica < replicas.rows; replica++) {
    if (replicas.state[replica] === ReplicaState.FREE) continue;
    found.push({
      replica,
      tier: replicas.tierOf(replica),
      state: replicas.state[replica],
      refs: replicas.refs[replica],
      readers: replicas.readers[replica],
      resident: replicas.resident[replica],
      writing: replicas.writing[replica],
    });
  }
  return found;
}

function contentsOf(core: Core): ContentDump[] {
  const { contents, replicas } = core;
  const found: ContentDump[] = [];
  for (let content = 0; content < contents.rows; content++) {
    if (contents.uses(content) === 0) continue;
    const chain: DumpedReplica[] = [];
    for (let r = contents.replica[content]; r !== -1; r = replicas.alias[r]) chain.push(r);
    found.push({
      content,
      key: contents.key(content),
      sealed: contents.sealed[content],
      replicas: chain,
      incoming: Array.from({ length: core.tiers }, (_, tier) => core.incomingTo(content, tier)),
    });
  }
  return found;
}

function jobsOf(core: Core): JobDump[] {
  const { jobs, waiters } = core;
  const found: JobDump[] = [];
  for (let row = 0; row < jobs.rows; row++) {
    if (jobs.state[row] === JobState.NONE) continue;
    const waiting: [number, number][] = [];
    for (let w = jobs.waiter[row]; w !== -1; w = waiters.next(w)) {
      waiting.push([waiters.sequence(w), waiters.block(w)]);
    }
    found.push({
      job: jobs.idOf(row),
      kind: jobs.kind[row],
      state: jobs.state[row],
      priority: jobs.priority[row],
      content: jobs.content[row],
      source: jobs.source[row],
      target: jobs.target[row],
      targetTier: jobs.targetTier[row],
      resident: jobs.resident[row],
      overdue: jobs.overdue[row],
      waiters: waiting,
    });
  }
  return found;
}
