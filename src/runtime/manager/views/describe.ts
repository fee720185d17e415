/**
 * Turns a job row into what a driver needs to know of it: of one that moves bytes, and of one that moves
 * none.
 */

import type { ContentTable } from '../../content/contentTable.ts';
import { State } from '../../replica/state.ts';
import type { Tier } from '../../tier/tier.ts';
import { JobKind, type Priority } from '../../transfer/jobTable.ts';
import type { Place, Transfer } from '../../transfer/transfer.ts';
import type { Core } from '../core.ts';

export function describeTransfer(core: Core, row: number): Transfer {
  const { jobs, contents } = core;
  const content = jobs.content[row];
  const sizeClass = jobs.sizeClass[row];
  const source = jobs.source[row];
  return {
    job: jobs.idOf(row),
    kind: jobs.kind[row] === JobKind.SEAL ? 'seal' : jobs.kind[row] === JobKind.COPY ? 'copy' : 'move',
    ...(jobs.kind[row] === JobKind.COPY ? { unsealed: core.replicas.state[source] !== State.READY } : {}),
    source: source === -1 ? null : place(core, source, jobs.sourceGeneration[row]),
    target: place(core, jobs.target[row], jobs.targetGeneration[row]),
    sizeClass,
    bytes: core.unitBytes(sizeClass),
    ...(content === -1 ? unnamed : namesOf(contents, content)),
    priority: jobs.priority[row] as Priority,
    deadlineUs: jobs.deadlineUs[row],
  };
}

/** What a driver without bytes asks of a job; one object for any number of them. */
export interface JobRoute {
  /** Null for a seal, whose block lies where it is. */
  from: Tier | null;
  to: Tier;
  bytes: number;
  /** The content's key is the four words of `keys` from `keyAt` on; of a copy, which has none, -1. */
  keys: Uint32Array;
  keyAt: number;
}

export function describeRoute({ jobs, contents, replicas, config }: Core, row: number, into: JobRoute): void {
  const source = jobs.source[row];
  into.from = source === -1 ? null : config.tiers[replicas.tierOf(source)].tier;
  into.to = config.tiers[jobs.targetTier[row]].tier;
  into.bytes = config.unitBytes[jobs.sizeClass[row]];
  into.keys = contents.keys;
  into.keyAt = jobs.content[row] === -1 ? -1 : 4 * jobs.content[row];
}

/** What a copy brings is not sealed: it has no key and no digest. */
const unnamed = { key: new Uint32Array(4), digest: { lo: 0, hi: 0 } };

function namesOf(
  contents: ContentTable,
  content: number,
): Pick<Transfer, 'key' | 'parent' | 'tokens' | 'digest'> {
  return {
    key: contents.key(content),
    parent: contents.parentKey(content),
    tokens: contents.tokens[content],
    digest: contents.digest(content),
  };
}

function place(core: Core, replica: number, generation: number): Place {
  const position = core.replicas.tierOf(replica);
  return {
    tier: core.config.tiers[position].tier,
    slot: core.replicas.slotOf(replica, position),
    generation,
  };
}
