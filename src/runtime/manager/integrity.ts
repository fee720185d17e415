/**
 * The audit of everything: each table by itself, and all of them against each other. It walks all state, so
 * it belongs in tests and in a debugger, not on a hot path.
 */

import { invariant } from '../errors.ts';
import { JobState, Leaving } from '../tables/jobTable.ts';
import { ReplicaState, STATES, stateNames } from '../tables/replicaTable.ts';
import { TOP } from '../tier/tier.ts';
import { checkSpeculative } from './blocks.ts';
import type { Core } from './core.ts';
import { Entry, type Sequence } from './sequence.ts';

/**
 * States from which blocks may be read. Loads and demotions read a block that is READY or leaving; a copy may also be
 * taken of a block that is written or sealed.
 */
const mayBeRead: ReadonlySet<ReplicaState> = new Set([
  ReplicaState.READY,
  ReplicaState.DRAINING,
  ReplicaState.OPEN,
  ReplicaState.SEALED,
  ReplicaState.VERIFYING,
  ReplicaState.PRIVATE,
]);

export function checkIntegrity(core: Core): void {
  core.jobs.checkIntegrity();
  core.policy.checkIntegrity();
  invariant(core.deferred.isEmpty, 'a call leaves nothing undone');
  for (let tier = 0; tier < core.tiers; tier++) checkTier(core, tier);
  checkQuotas(core);
  checkReferences(core);
  checkContents(core);
  checkSpeculative(core);
}

function checkQuotas(core: Core): void {
  const { quotas, replicas, tiers } = core;
  if (quotas === null) return;
  const cachedBytes = new Float64Array(core.config.owners * tiers);
  for (let replica = 0; replica < replicas.rows; replica++) {
    if (replicas.evictable[replica] === 0) continue;
    const tier = replicas.tierOf(replica);
    cachedBytes[replicas.owner[replica] * tiers + tier] += core.unitBytes(core.sizeClassOf(replica, tier));
  }
  quotas.checkIntegrity(cachedBytes);
}

function checkTier(core: Core, tier: number): void {
  const { replicas, pools } = core;
  const pool = pools[tier];
  pool.checkIntegrity();
  const counts = new Int32Array(STATES);
  let resident = 0;
  let cached = 0;
  let held = 0;
  for (let r = replicas.base[tier]; r < replicas.end(tier); r++) {
    const state = replicas.state[r] as ReplicaState;
    if (state === ReplicaState.FREE) {
      invariant(
        replicas.refs[r] === 0 &&
          replicas.readers[r] === 0 &&
          replicas.writing[r] === 0 &&
          replicas.resident[r] === 0,
        () =>
          `free slot ${r} has refs ${replicas.refs[r]}, readers ${replicas.readers[r]}, writing ` +
          `${replicas.writing[r]}, resident ${replicas.resident[r]}`,
      );
      continue;
    }
    counts[state]++;
    const bytes = core.unitBytes(core.sizeClassOf(r, tier));
    if (replicas.resident[r] === 1) resident += bytes;
    if (replicas.resident[r] === 1 && replicas.refs[r] > 0) held += bytes;
    if (replicas.evictable[r] === 1) {
      cached += bytes;
      invariant(
        state === ReplicaState.READY && replicas.refs[r] === 0,
        'exactly ready replicas without holders are evictable',
      );
      invariant(replicas.resident[r] === 1, 'what is evictable counts against the capacity');
    } else if (state === ReplicaState.READY && replicas.refs[r] === 0) {
      invariant(replicas.readers[r] > 0, 'a ready replica without a holder or reader is evictable');
    }
    if (replicas.readers[r] > 0) {
      invariant(mayBeRead.has(state), () => `${stateNames[state]} has a reader`);
    }
  }
  let taken = 0;
  for (let state = 1; state < STATES; state++) {
    invariant(
      counts[state] === replicas.count(tier, state as ReplicaState),
      'the replica table counts its states',
    );
    taken += counts[state];
  }
  invariant(
    taken === pool.takenSlots,
    'every taken slot has a state: free and taken slots make up the capacity',
  );
  for (let row = 0; row < core.jobs.rows; row++) {
    if (
      core.jobs.state[row] !== JobState.NONE &&
      core.jobs.resident[row] === 1 &&
      core.jobs.targetTier[row] === tier
    ) {
      resident += core.unitBytes(core.jobs.sizeClass[row]);
    }
  }
  checkPolicy(core, tier);
  checkOwners(core, tier);
  invariant(resident === core.residentBytes[tier], 'a tier knows the bytes that it holds');
  invariant(cached === core.cachedBytes[tier], 'a tier knows the bytes that it could evict');
  invariant(held === core.heldBytes[tier], 'a tier knows the bytes that sequences hold');
  invariant(
    resident <= core.capacityBytes[tier] || cached === (core.quotas?.protectedBytes(tier) ?? 0),
    'a tier over its capacity has nothing left that it could evict',
  );
}

/** The policy has exactly the evictable replicas, and the census knows their pages. */
function checkPolicy(core: Core, tier: number): void {
  const { replicas } = core;
  const pool = core.pools[tier];
  const entered = core.policy.dump(tier);
  let evictable = 0;
  const fixed = new Int32Array(pool.shape.pages);
  const taken = new Int32Array(pool.shape.pages);
  for (let r = replicas.base[tier]; r < replicas.end(tier); r++) {
    if (replicas.state[r] === ReplicaState.FREE) continue;
    const page = pool.pageOf(replicas.slotOf(r, tier));
    taken[page]++;
    if (replicas.evictable[r] === 1) evictable++;
    else fixed[page]++;
  }
  const known = new Set(entered);
  invariant(known.size === entered.length && evictable === known.size, 'the policy has what may be evicted');
  for (const r of entered) invariant(replicas.evictable[r] === 1, 'the policy has nothing else');
  core.census[tier]?.checkIntegrity(fixed, taken);
}

/** Owners' books and the bytes on their way down agree with replicas and jobs. */
function checkOwners(core: Core, tier: number): void {
  const { replicas, jobs } = core;
  const owned = new Float64Array(core.config.owners);
  let leaving = 0;
  for (let r = replicas.base[tier]; r < replicas.end(tier); r++) {
    if (replicas.resident[r] === 1) owned[replicas.owner[r]] += core.unitBytes(core.sizeClassOf(r, tier));
  }
  for (let row = 0; row < jobs.rows; row++) {
    if (jobs.state[row] === JobState.NONE) continue;
    const bytes = core.unitBytes(jobs.sizeClass[row]);
    if (jobs.resident[row] === 1 && jobs.targetTier[row] === tier) owned[jobs.owner[row]] += bytes;
    if (jobs.leaving[row] !== Leaving.NOT && replicas.tierOf(jobs.source[row]) === tier) leaving += bytes;
  }
  invariant(leaving === core.leavingBytes[tier], 'a tier knows the bytes that are on their way down');
  for (let owner = 0; owner < owned.length; owner++) {
    invariant(
      owned[owner] === core.ownedBytes[owner * core.tiers + tier],
      'an owner knows its bytes in a tier',
    );
  }
}

/** References and readers are exactly the ones that sequences and jobs have. */
function checkReferences(core: Core): void {
  const { replicas, jobs, sequences } = core;
  const refs = new Int32Array(replicas.rows);
  const readers = new Int32Array(replicas.rows);
  const writing = new Uint8Array(replicas.rows);
  for (const sequence of sequences.values()) {
    let pending = 0;
    for (let i = 0; i < sequence.length; i++) {
      const state = sequence.state[i];
      const replica = sequence.replica[i];
      if (replica !== -1) refs[replica]++;
      if (state === Entry.LOADING || state === Entry.WAITING || state === Entry.SEALING) pending++;
      if (state === Entry.READY) {
        const s = replicas.state[replica];
        invariant(
          s === ReplicaState.READY || s === ReplicaState.PRIVATE,
          'a sequence reads ready replicas only',
        );
        invariant(replicas.tierOf(replica) === TOP, 'a sequence reads from HBM only');
      }
    }
    invariant(pending === sequence.pending, 'a sequence knows how many of its blocks wait');
  }
  let waiters = 0;
  for (let row = 0; row < jobs.rows; row++) {
    if (jobs.state[row] === JobState.NONE) continue;
    if (jobs.source[row] !== -1) readers[jobs.source[row]]++;
    if (jobs.state[row] !== JobState.WAITING) writing[jobs.target[row]] = 1;
    for (let w = jobs.waiter[row]; w !== -1; w = core.waiters.next(w)) {
      const sequence = sequences.get(core.waiters.sequence(w) as Sequence['id']);
      invariant(sequence !== undefined && ++waiters <= core.waiters.count, 'every waiter of a job is alive');
    }
  }
  invariant(waiters === core.waiters.count, 'every waiter hangs on a job');
  for (let r = 0; r < replicas.rows; r++) {
    invariant(refs[r] === replicas.refs[r], () => `replica ${r} has as many holders as sequences hold it`);
    invariant(readers[r] === replicas.readers[r], () => `replica ${r} has as many readers as jobs read it`);
    invariant(writing[r] === replicas.writing[r], () => `replica ${r} is written by the jobs that say so`);
  }
}

/** Directory equals bytes: a content's chains hold exactly its ready replicas and the jobs that bring it. */
function checkContents(core: Core): void {
  const { contents, replicas, jobs } = core;
  const uses = new Int32Array(contents.rows);
  const copies = new Int32Array(contents.rows);
  let chained = 0;
  for (let content = 0; content < contents.rows; content++) {
    if (contents.uses(content) === 0) continue;
    let before = -1;
    for (let r = contents.replica[content]; r !== -1; r = replicas.alias[r]) {
      invariant(
        replicas.state[r] === ReplicaState.READY && replicas.content[r] === content,
        'the directory lists ready replicas',
      );
      invariant(++chained <= replicas.size, 'a replica is listed once');
      invariant(
        before === -1 || replicas.tierOf(before) <= replicas.tierOf(r),
        'the fastest replica is listed first',
      );
      before = r;
      uses[content]++;
      copies[content]++;
    }
    for (let row = contents.incoming[content]; row !== -1; row = jobs.nextIncoming[row]) {
      const tier = jobs.targetTier[row];
      invariant(jobs.content[row] === content, 'an incoming job brings this content');
      invariant(core.incomingTo(content, tier) === row, 'one job at a time brings a content into a tier');
      invariant(
        jobs.state[row] === JobState.WAITING || jobs.state[row] === JobState.ISSUED,
        'an incoming job is alive',
      );
      invariant(tier === TOP || core.readyIn(content, tier) === -1, 'a lower tier is not sent what it has');
      copies[content]++;
    }
  }
  for (let row = 0; row < jobs.rows; row++) {
    if (jobs.state[row] !== JobState.NONE && jobs.content[row] !== -1) uses[jobs.content[row]]++;
  }
  for (const sequence of core.sequences.values()) {
    for (let i = 0; i < sequence.length; i++) {
      if (sequence.content[i] !== -1) uses[sequence.content[i]]++;
    }
  }
  let ready = 0;
  for (let tier = 0; tier < core.tiers; tier++) ready += replicas.count(tier, ReplicaState.READY);
  invariant(chained === ready, 'every ready replica is in the directory');
  contents.checkIntegrity(uses, copies);
}
