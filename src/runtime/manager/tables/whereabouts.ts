/**
 * Where a content is: the chain of its ready replicas, from the fastest tier down, and the chain of jobs that
 * bring it into a tier, at most one for each. Both run through the tables of replicas and jobs, by row.
 */

import { ManagerTables } from './managerTables.ts';

export abstract class Whereabouts extends ManagerTables {
  /** A ready replica of the content in the tier, or -1. */
  readyIn(content: number, tier: number): number {
    const { alias, base } = this.replicas;
    for (let at = this.contents.replica[content]; at !== -1; at = alias[at]) {
      if (at >= base[tier]) return at < base[tier + 1] ? at : -1;
    }
    return -1;
  }

  /** The fastest ready replica in tiers `from` and below, or -1. */
  fastestReady(content: number, from: number): number {
    const { alias, base } = this.replicas;
    let at = this.contents.replica[content];
    while (at !== -1 && at < base[from]) at = alias[at];
    return at;
  }

  /** The job that brings the content into the tier, or -1. */
  incomingTo(content: number, tier: number): number {
    const { jobs } = this;
    let row = this.contents.incoming[content];
    while (row !== -1 && jobs.targetTier[row] !== tier) row = jobs.nextIncoming[row];
    return row;
  }

  /** From here on the job is the one that brings the content into its target tier. */
  addIncoming(content: number, row: number): void {
    this.jobs.nextIncoming[row] = this.contents.incoming[content];
    this.contents.incoming[content] = row;
    this.contents.addCopy(content);
  }

  /** The job brings the content no more, if it did. */
  removeIncoming(content: number, row: number): void {
    const { incoming } = this.contents;
    const { nextIncoming } = this.jobs;
    if (incoming[content] === row) {
      incoming[content] = nextIncoming[row];
    } else {
      let before = incoming[content];
      while (before !== -1 && nextIncoming[before] !== row) before = nextIncoming[before];
      if (before === -1) return;
      nextIncoming[before] = nextIncoming[row];
    }
    nextIncoming[row] = -1;
    this.contents.removeCopy(content);
  }

  /** The replica is a copy of the content from here on. */
  protected link(replica: number, content: number, tier: number): void {
    const { replicas, contents } = this;
    const next = contents.replica[content];
    if (next === -1 || replica < replicas.base[replicas.tierOf(next) + 1]) {
      replicas.alias[replica] = next;
      contents.replica[content] = replica;
    } else {
      this.#linkBehind(next, replica, tier);
    }
    contents.addCopy(content);
  }

  /** Links a replica into its content's chain, which is ordered by tier, somewhere behind its head. */
  #linkBehind(head: number, replica: number, tier: number): void {
    const { alias, base } = this.replicas;
    let before = head;
    while (alias[before] !== -1 && alias[before] < base[tier]) before = alias[before];
    alias[replica] = alias[before];
    alias[before] = replica;
  }

  /** The replica is no copy of its content any more. */
  protected unlink(replica: number): void {
    const { replicas, contents } = this;
    const content = replicas.content[replica];
    if (contents.replica[content] === replica) {
      contents.replica[content] = replicas.alias[replica];
    } else {
      let before = contents.replica[content];
      while (replicas.alias[before] !== replica) before = replicas.alias[before];
      replicas.alias[before] = replicas.alias[replica];
    }
    replicas.alias[replica] = -1;
    replicas.content[replica] = -1;
    contents.removeCopy(content);
  }
}
