/** Building requests from trace rows: the fields a row does not have get the values of a plain request. */

import { fnv1a64 } from '../../../random/index.ts';
import type { PromptIdentity, RequestOrigin, WorkloadRequest } from '../../request.ts';

export function traceOrigin(clientId: string): RequestOrigin {
  return { clientId, tenantId: '', sloClass: '', model: '', adapter: '', sloTargetUs: 0, prefixGroup: '' };
}

export interface ImportedRow {
  readonly index: number;
  readonly origin: RequestOrigin;
  readonly arrivalUs: number;
  readonly inputTokens: number;
  readonly outputTokens: number;
  readonly prompt: PromptIdentity;
  readonly output?: PromptIdentity;
  readonly sessionId?: string;
  readonly round?: number;
  readonly thinkTimeUs?: number;
}

/** Tokens that no other request shares: a stream of its own for every row of every trace. */
export function ownTokens(trace: string, side: 'in' | 'out', index: number, tokens: number): PromptIdentity {
  const seed = BigInt.asIntN(64, fnv1a64(`${trace}/${side}`) ^ BigInt(index));
  return { kind: 'drawn', spans: [{ seed, position: 0, tokens }] };
}

export function importedRequest(row: ImportedRow): WorkloadRequest {
  return {
    id: `request_${row.index}`,
    origin: row.origin,
    arrivalUs: row.arrivalUs,
    inputTokens: row.inputTokens,
    outputTokens: row.outputTokens,
    prefixTokens: 0,
    prompt: row.prompt,
    output: row.output ?? ownTokens(row.origin.clientId, 'out', row.index, row.outputTokens),
    deadlineUs: 0,
    sessionId: row.sessionId ?? '',
    session: -1,
    round: row.round ?? 0,
    streaming: false,
    modalities: null,
    reasonRatio: 0,
    thinkTimeUs: row.thinkTimeUs ?? 0,
    recordedPrefixGroup: '',
  };
}

/** Ids as pairs of first id and count. */
export function runsOf(ids: readonly number[]): Int32Array {
  const runs: number[] = [];
  for (const id of ids) {
    const last = runs.length - 2;
    if (last >= 0 && runs[last] + runs[last + 1] === id) runs[last + 1]++;
    else runs.push(id, 1);
  }
  return Int32Array.from(runs);
}

/**
 * Checks that prefix-chained ids are a tree: every id follows one and the same parent, none follows itself.
 */
export class PrefixTree {
  readonly #parents = new Map<number, number>();

  /** Different blocks so far. */
  get blocks(): number {
    return this.#parents.size;
  }

  /** Returns what is wrong with a path from the root, or undefined; a correct path is remembered. */
  check(ids: readonly number[]): string | undefined {
    let parent = -1;
    for (const id of ids) {
      const known = this.#parents.get(id);
      if (known === undefined) this.#parents.set(id, parent);
      else if (known !== parent) {
        const cycle = ids.indexOf(id) !== ids.lastIndexOf(id);
        if (cycle) return `names block ${id} twice, so its prefix would contain itself`;
        const name = (block: number): string => (block < 0 ? 'the start' : `block ${block}`);
        return `has block ${id} behind ${name(parent)}, which was behind ${name(known)} before`;
      }
      parent = id;
    }
    return undefined;
  }
}
