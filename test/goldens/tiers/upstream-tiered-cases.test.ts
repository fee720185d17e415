/**
 * Upstream's whole runs with lower tiers: the models of its engine and stores, under our instances, cluster
 * and metrics, equal each of them to the last bit, metrics and every request. So the defects that the models
 * have are all that there is to explain; what tierkv does instead is in upstream-whole-cases.test.ts.
 */

import { existsSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { caseAsUpstream, UpstreamCaseEngine } from '../upstream/upstreamCaseEngine.ts';
import { differences, loadCase, run, type WholeCase } from '../upstream/wholeCases.ts';
import { tieredStore } from './storeOfCase.ts';

const shared = new URL('../../../../shared/goldens/blis/', import.meta.url);
const isShared = existsSync(shared);
if (!isShared) console.warn('SKIPPED: the whole cases of lower tiers in goldens/blis are not here');

/** Upstream counts here what U1 tries to take; nothing like it is tried here. */
const notCounted = 'kv_allocation_failures';

describe.skipIf(!isShared)('whole runs with lower tiers, as upstream', () => {
  it.each([
    '18-tiered-cpu',
    '19-tiered-cpu-slow',
    '20-tiered-cpu-small',
    '21-offload-cpuonly',
    '23-offload-nvme-decode',
  ])('%s', (name) => {
    const golden = loadCase(shared, name) as WholeCase;
    const ours = run([...golden.args, '--as-upstream'], {
      makeEngine: (pool, timeline, woken) =>
        new UpstreamCaseEngine(pool, caseAsUpstream, {
          store: tieredStore(golden.args, pool.engine),
          clock: { timeline, woken },
        }),
    });
    expect(differences(ours, golden.metrics).filter((found) => !found.startsWith(notCounted))).toEqual([]);
  });
});
