/**
 * Saves or restores the manager between two calls: all tables and counters. Deferred work is empty at that
 * point. Listener and log belong to the owner and are not saved.
 */

import { invariant } from '../errors.ts';
import type { StateVisitor } from '../snapshot.ts';
import type { Core } from './core.ts';
import { OwnerQuotas } from './ownerQuotas.ts';
import { newArrays, Sequence } from './sequence.ts';

export function visitCore(core: Core, visitor: StateVisitor): void {
  invariant(core.settled.length === 0 && core.moved.length === 0, 'state is shown between two calls');
  visitor.constant(core.config.owners); // rows of arrays that `fields` would replace by others of another length
  visitor.constant(core.config.sharedOwner); // whose open blocks have to be cleared is a part of the tables
  visitor.fields(core);
  visitor.fields(core.counters);
  visitor.list(core.tokenCounts);
  for (const pool of core.pools) pool.visitState(visitor);
  for (const census of core.census) census?.visitState(visitor);
  core.replicas.visitState(visitor);
  core.contents.visitState(visitor);
  core.policy.visitState(visitor);
  core.use?.visitState(visitor);
  core.jobs.visitState(visitor);
  core.deadlines.visitState(visitor);
  core.deferred.visitState(visitor);
  core.waiters.visitState(visitor);
  for (const queue of core.claims) queue.visitState(visitor);
  core.outbox.visitState(visitor);
  visitor.value(
    () => [...core.speculativeLoads],
    (saved) => {
      core.speculativeLoads.clear();
      for (const job of saved) core.speculativeLoads.add(job);
    },
  );
  for (const pace of core.paces) pace.visitState(visitor);
  for (const link of core.links) link.visitState(visitor);
  for (const taker of core.takers) taker.visitState(visitor);
  for (const budget of core.writeBudgets) budget?.visitState(visitor);
  visitQuotas(core, visitor);
  visitSequences(core, visitor);
}

/** Quotas exist once an owner was given the first one. */
function visitQuotas(core: Core, visitor: StateVisitor): void {
  if (!visitor.flag(core.quotas !== null)) {
    core.quotas = null;
    return;
  }
  const { tiers, replicas, ownedBytes } = core;
  const { owners } = core.config;
  core.quotas ??= new OwnerQuotas({ tiers, owners, replicas: replicas.size, ownedBytes });
  core.quotas.visitState(visitor);
}

function visitSequences(core: Core, visitor: StateVisitor): void {
  const { sequences } = core;
  visitor.value(
    () => [...sequences.values()].map(({ id, visit, owner }) => ({ id, visit, owner })),
    (saved) => {
      sequences.clear();
      for (const { id, visit, owner } of saved)
        sequences.set(id, new Sequence(core, id, visit, owner, newArrays(visit.blocks)));
    },
  );
  for (const sequence of sequences.values()) sequence.visitState(visitor);
}
