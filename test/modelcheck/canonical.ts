/**
 * Decides whether two states of the model are the same. Slots, job rows and content numbers are only names,
 * so they are replaced by the order in which a walk over block tables, cached lists and jobs meets them. Free
 * slots are all alike.
 */

import type { Model } from './model.ts';

export function canonical(model: Model): string {
  const dump = model.manager.inspect.dump();
  const keyOf = new Map(dump.contents.map(({ content, key }) => [content, key[0]]));
  const names = new Map<number, number>();
  const nameOf = (replica: number): number => {
    if (replica === -1) return -1;
    let name = names.get(replica);
    if (name === undefined) names.set(replica, (name = names.size));
    return name;
  };
  const requestOf = new Map(model.requests.map(({ sequence }, r) => [sequence?.id as number | undefined, r]));
  const jobNames = new Map<number, number>(dump.jobs.map(({ job }, i) => [job, i]));

  const sequences = dump.sequences.map(({ id, matched, entries }) => [
    requestOf.get(id),
    matched,
    entries.map(({ state, content, replica, outcome }) => [
      state,
      keyOf.get(content) ?? -1,
      nameOf(replica),
      outcome,
    ]),
  ]);
  const cached = dump.cached.map((tier) => tier.map(nameOf));
  const jobs = dump.jobs.map((job) => [
    job.kind,
    job.state,
    job.priority,
    keyOf.get(job.content) ?? -1,
    nameOf(job.source),
    nameOf(job.target),
    job.targetTier,
    job.resident,
    job.overdue,
    job.waiters.map(([sequence, block]) => [requestOf.get(sequence), block]),
  ]);
  const contents = [...dump.contents]
    .sort((a, b) => a.key[0] - b.key[0])
    .map(({ key, sealed, replicas, incoming }) => [
      key[0],
      sealed,
      replicas.map(nameOf),
      incoming.map((row) => (row === -1 ? -1 : 1)),
    ]);
  const base = model.slots.map((_, tier) => model.slots.slice(0, tier).reduce((sum, s) => sum + s.length, 0));
  const replicas = dump.replicas
    .map((each) => [
      nameOf(each.replica),
      each.tier,
      each.state,
      each.refs,
      each.readers,
      each.resident,
      each.writing,
      model.slots[each.tier][each.replica - base[each.tier]],
    ])
    .sort((a, b) => a[0] - b[0]);
  const flights = model.flights.map(({ transfer, early, sourceLost, overdue }) => [
    jobNames.get(transfer.job),
    early,
    sourceLost,
    overdue,
  ]);
  const zombies = model.zombies.map(({ transfer, early }) => [
    transfer.target.tier,
    transfer.target.slot,
    early,
  ]);
  return JSON.stringify([
    model.requests.map(({ phase, retries, sequence }, r) => [
      phase,
      retries,
      Array.from({ length: sequence?.length ?? 0 }, (_, i) => (model.isWritten(r, i) ? 1 : 0)),
    ]),
    model.faultsSpent < model.scope.faultsMax ? Object.values(model.faultsLeft) : [],
    sequences,
    cached,
    jobs,
    contents,
    replicas,
    dump.claims.map((queue) => queue.map((job) => jobNames.get(job))),
    flights,
    zombies,
  ]);
}
