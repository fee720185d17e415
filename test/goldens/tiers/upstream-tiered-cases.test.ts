/**
 * Upstream's whole runs with lower tiers: the models of its engine and stores, under our instances, cluster
 * and metrics, equal each of them to the last bit, metrics and every request. So the defects that the models
 * have are all that there is to explain; what tierkv does instead is in upstream-whole-cases.test.ts.
 */

import { describe, expect, it } from 'vitest';
import { goldens } from '../goldenFolders.ts';
import { caseAsUpstream, UpstreamCaseEngine } from '../upstream/upstreamCaseEngine.ts';
import { differences, loadCase, run } from '../upstream/wholeCases.ts';
import { tieredStore } from './storeOfCase.ts';

const root = goldens('whole runs with lower tiers');
const cases = [
  '18-tiered-cpu',
  '19-tiered-cpu-slow',
  '20-tiered-cpu-small',
  '21-offload-cpuonly',
  '23-offload-nvme-decode',
].flatMap((name) => loadCase(root, name) ?? []);

/** Upstream counts here what U1 tries to take; nothing like it is tried here. */
const notCounted = 'kv_allocation_failures';

describe('whole runs with lower tiers, as upstream', () => {
  it('are there', () => {
    expect(cases.length).toBeGreaterThanOrEqual(2);
  });

  it.each(cases)('$name', (golden) => {
    const ours = run(golden.args, {
      makeEngine: (pool, timeline, woken) =>
        new UpstreamCaseEngine(pool, caseAsUpstream, {
          store: tieredStore(golden.args, pool.engine),
          clock: { timeline, woken },
        }),
    });
    expect(differences(ours, golden.metrics).filter((found) => !found.startsWith(notCounted))).toEqual([]);
  });
});
