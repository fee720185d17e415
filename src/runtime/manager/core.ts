/**
 * The small steps on the manager's tables from which everything else is made: reserve, publish, hold,
 * unpublish, free. Each step keeps the tables consistent with each other. What to do with them is decided in
 * the rooms beside this file: `residency` (who stays), `jobs` (how a job goes out and comes back),
 * `sequences` (what a sequence gets).
 */

import { invariant } from '../errors.ts';
import { DecisionOp } from '../log/decisionSink.ts';
import type { Visit } from '../policy/index.ts';
import { State } from '../replica/state.ts';
import type { Sequence } from './sequences/blockTable/sequence.ts';
import { Whereabouts } from './tables/whereabouts.ts';

export const HBM = 0;

export class Core extends Whereabouts {
  /** A RESERVED replica of the class in the tier, or -1 when no slot is free. */
  reserve(tier: number, sizeClass: number, owner: number): number {
    const slot = this.pools[tier].take(sizeClass);
    if (slot === -1) return -1;
    this.census[tier]?.took(slot);
    const replica = this.replicas.base[tier] + slot;
    this.replicas.reach(replica);
    const { owner: owners } = this.replicas;
    this.replicas.foreign[replica] = owners[replica] === owner && owner !== this.config.sharedOwner ? 0 : 1;
    owners[replica] = owner;
    this.replicas.become(replica, State.RESERVED);
    this.logReplica(DecisionOp.RESERVE, replica);
    return replica;
  }

  /** From here on lookups find the replica: the last step of every way in. */
  publish(replica: number, content: number): void {
    const { replicas, contents } = this;
    const tier = replicas.tierOf(replica);
    replicas.become(replica, State.READY);
    replicas.content[replica] = content;
    if (this.listener.stored !== undefined) this.#tellStored(replica, content, tier);
    contents.hold(content);
    this.link(replica, content, tier);
    this.logReplica(DecisionOp.PUBLISH, replica);
    if (replicas.refs[replica] === 0) this.makeEvictable(replica, tier);
  }

  /** From here on no lookup finds the replica. Its slot stays taken until readers and holders are gone. */
  unpublish(replica: number): void {
    const { replicas } = this;
    invariant(replicas.state[replica] === State.READY, 'only a ready replica can be unpublished');
    const tier = replicas.tierOf(replica);
    if (replicas.evictable[replica] === 1) this.makeUnevictable(replica, tier);
    const content = replicas.content[replica];
    this.unlink(replica);
    replicas.become(replica, State.DRAINING);
    if (this.listener.removed !== undefined && this.readyIn(content, tier) === -1) {
      this.listener.removed(tier, this.contents.key(content));
    }
    this.contents.unhold(content);
  }

  #tellStored(replica: number, content: number, tier: number): void {
    if (this.readyIn(content, tier) !== -1) return;
    const { contents } = this;
    this.listener.stored?.(tier, {
      key: contents.key(content),
      parent: contents.parentKey(content),
      tokens: contents.tokens[content],
      bytes: this.unitBytes(this.sizeClassOf(replica, tier)),
    });
  }

  makeEvictable(replica: number, tier: number): void {
    const { replicas } = this;
    const sizeClass = this.sizeClassOf(replica, tier);
    replicas.evictable[replica] = 1;
    if (this.copiesEagerly[tier] === 1) this.agenda.fresh[tier].push(replica);
    this.policy.enter(replica, tier, sizeClass, replicas.content[replica]);
    this.census[tier]?.becameEvictable(replicas.slotOf(replica, tier));
    this.cachedBytes[tier] += this.unitBytes(sizeClass);
    this.quotas?.entered(replica, tier, replicas.owner[replica], this.unitBytes(sizeClass));
  }

  makeUnevictable(replica: number, tier: number): void {
    const { replicas } = this;
    const sizeClass = this.sizeClassOf(replica, tier);
    replicas.evictable[replica] = 0;
    this.policy.leave(replica, tier, sizeClass);
    this.census[tier]?.becameFixed(replicas.slotOf(replica, tier));
    this.cachedBytes[tier] -= this.unitBytes(sizeClass);
    this.quotas?.left(replica, tier, replicas.owner[replica], this.unitBytes(sizeClass));
  }

  /** The sequence uses the content: the eviction policy learns of it. */
  touch(sequence: Sequence, content: number): void {
    this.policy.touch(content, sequence.visit);
    this.use?.used(content, this.nowUs);
    this.listener.used?.(content);
  }

  visitOf(blocks: number, matched: number): Visit {
    const visit = { number: ++this.visits, blocks, matched };
    this.policy.begin?.(visit);
    return visit;
  }

  setResident(replica: number, resident: 0 | 1): void {
    if (this.replicas.resident[replica] === resident) return;
    this.replicas.resident[replica] = resident;
    const tier = this.replicas.tierOf(replica);
    const bytes = this.unitBytes(this.sizeClassOf(replica, tier));
    this.#count(tier, this.replicas.owner[replica], resident === 1 ? bytes : -bytes);
    if (this.replicas.refs[replica] > 0) this.heldBytes[tier] += resident === 1 ? bytes : -bytes;
  }

  setJobResident(row: number, resident: 0 | 1): void {
    if (this.jobs.resident[row] === resident) return;
    this.jobs.resident[row] = resident;
    const bytes = this.unitBytes(this.jobs.sizeClass[row]);
    this.#count(this.jobs.targetTier[row], this.jobs.owner[row], resident === 1 ? bytes : -bytes);
  }

  #count(tier: number, owner: number, bytes: number): void {
    this.residentBytes[tier] += bytes;
    this.ownedBytes[owner * this.tiers + tier] += bytes;
    this.quotas?.refresh(owner, tier);
  }

  /** A sequence holds the replica: it cannot be evicted. */
  hold(replica: number): void {
    const { replicas } = this;
    if (replicas.refs[replica]++ > 0) return;
    const tier = replicas.tierOf(replica);
    if (replicas.evictable[replica] === 1) this.makeUnevictable(replica, tier);
    if (replicas.resident[replica] === 1)
      this.heldBytes[tier] += this.unitBytes(this.sizeClassOf(replica, tier));
  }

  /**
   * A sequence lets the replica go; true when it was the last one. What becomes of the replica is the
   * caller's choice.
   */
  unhold(replica: number): boolean {
    const { replicas } = this;
    invariant(replicas.refs[replica] > 0, 'a replica is let go as often as it was held');
    if (--replicas.refs[replica] > 0) return false;
    if (replicas.resident[replica] === 1) {
      const tier = replicas.tierOf(replica);
      this.heldBytes[tier] -= this.unitBytes(this.sizeClassOf(replica, tier));
    }
    return true;
  }

  /** Lets the slot go if nothing needs it any more; true when it is free. */
  freeIfDrained(replica: number): boolean {
    const { replicas } = this;
    if (replicas.state[replica] !== State.DRAINING) return false;
    if (replicas.readers[replica] !== 0 || replicas.refs[replica] !== 0 || replicas.writing[replica] !== 0)
      return false;
    this.giveBack(replica);
    return true;
  }

  giveBack(replica: number): void {
    const tier = this.replicas.tierOf(replica);
    this.setResident(replica, 0);
    this.logReplica(DecisionOp.FREE, replica);
    this.replicas.become(replica, State.FREE);
    const slot = this.replicas.slotOf(replica, tier);
    this.census[tier]?.gaveBack(slot);
    this.pools[tier].giveBack(slot);
    this.agenda.slotsFreed(tier);
  }

  /** The job is over; its waiters are served at the end of the call. */
  end(row: number, outcome: number): void {
    const job = this.jobs.idOf(row);
    this.agenda.ended.push(job);
    if (this.unasked.size > 0) this.unasked.delete(job);
    this.jobs.end(row, outcome);
  }

  /** The sequence has ended, and holds nothing any more. */
  closed(sequence: Sequence): void {
    this.sequences.delete(sequence.id);
    this.spares.giveBack(sequence.retire());
  }

  /** An entry of the sequence has lost its bytes. */
  disturb(sequence: Sequence): void {
    sequence.disturbances++;
    this.disturbances++;
  }

  /** One block of the sequence waits no more. */
  stoppedWaiting(sequence: Sequence): void {
    if (--sequence.pending === 0) this.settled.push(sequence);
  }
}
