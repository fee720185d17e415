/**
 * What of the manager is written down and brought back, between two calls: all tables and counts. What a call
 * leaves to its own end is empty then. Who listens, and the log, belong to whoever made the manager.
 */

import { invariant } from '../../errors.ts';
import type { StateVisitor } from '../../snapshot/index.ts';
import type { Core } from '../core.ts';
import { OwnerQuotas } from '../residency/ownerQuotas.ts';
import { Sequence } from '../sequences/blockTable/sequence.ts';
import { newArrays } from '../sequences/blockTable/tableArrays.ts';

export function visitCore(core: Core, visitor: StateVisitor): void {
  invariant(core.settled.length === 0 && core.moved.length === 0, 'state is shown between two calls');
  visitor.fields(core);
  visitor.fields(core.counters);
  for (const pool of core.pools) pool.visitState(visitor);
  for (const census of core.census) census?.visitState(visitor);
  core.replicas.visitState(visitor);
  core.contents.visitState(visitor);
  core.policy.visitState(visitor);
  core.use?.visitState(visitor);
  core.jobs.visitState(visitor);
  core.deadlines.visitState(visitor);
  core.agenda.visitState(visitor);
  core.waiters.visitState(visitor);
  for (const queue of core.claims) queue.visitState(visitor);
  core.outbox.visitState(visitor);
  visitor.value(
    () => [...core.unasked],
    (saved) => {
      core.unasked.clear();
      for (const job of saved) core.unasked.add(job);
    },
  );
  for (const pace of core.paces) pace.visitState(visitor);
  for (const link of core.links) link.visitState(visitor);
  for (const budget of core.writeBudgets) budget?.visitState(visitor);
  visitQuotas(core, visitor);
  visitSequences(core, visitor);
}

/** There are none until an owner gets the first one. */
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
