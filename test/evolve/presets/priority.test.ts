/** Presets of priority: scores and ranks worked out by hand from the formulas. */

import { describe, expect, test } from 'vitest';
import { bindBundle } from '../../../src/policy/evolve/binding/bind.ts';
import { preset } from '../../../src/policy/evolve/bundle/presets.ts';
import { PolicyControlPlane } from '../../../src/sim/control/plane.ts';
import type { RequestView } from '../../../src/sim/control/policy.ts';
import { priorityPolicies } from '../../../src/sim/control/priority.ts';
import { newSimulation } from '../../../src/sim/description/deployment.ts';
import { type SmallRequest, smallPool } from '../../sim/cluster/smallCluster.ts';
import { request, router, world } from '../../sim/control/fixtures.ts';
import { audited, scheduledBy, smallSetup } from '../binding/scheduledRun.ts';
import { choiceOf, eachPresetHasARow } from './rows.ts';

interface Row {
  readonly template: string;
  readonly formula: string;
  /** Requests with their score, their rank, and whether they may be shed. */
  readonly given: readonly (readonly [Partial<RequestView>, number, number, boolean])[];
}

/** Two tenants, 8 in flight: a fair share of 4 each. `a` has 6, `b` 20, `c` 3. */
const active: Readonly<Record<string, number>> = { a: 6, b: 20, c: 3 };
const empty = router();
const tenant = (tenantId: string) => ({
  ...empty.tenant(tenantId),
  activeRequests: active[tenantId] ?? 0,
});
const state = router({
  tenant,
  tenants: [tenant('a'), tenant('b')],
  global: { inFlight: 8, pending: 0, throughput: 0, requestRate: 0 },
});

const rows: readonly Row[] = [
  {
    template: 'slo-class',
    formula: 'score by class: 4, 3, -1, -2, -3, others 3; rank = 4 - score',
    given: [
      [{ sloClass: 'critical' }, 4, 0, false],
      [{ sloClass: 'standard' }, 3, 1, false],
      [{ sloClass: 'batch' }, -1, 5, true],
      [{ sloClass: 'sheddable' }, -2, 6, true],
      [{ sloClass: 'background' }, -3, 7, true],
      [{ sloClass: '' }, 3, 1, false],
      [{ sloClass: 'unheard of' }, 3, 1, false],
    ],
  },
  {
    template: 'constant',
    formula: 'score 0, rank 0; the class says who may be shed',
    given: [
      [{ sloClass: 'critical' }, 0, 0, false],
      [{ sloClass: 'batch' }, 0, 0, true],
    ],
  },
  {
    template: 'slo-deadline',
    formula:
      'rank = arrival + target - 1 s x class, a target of an hour where it has no target; score = -rank',
    given: [
      // 1000 + 500000 - 4000000
      [{ sloClass: 'critical', arrivalUs: 1000, sloTargetUs: 500_000 }, 3_499_000, -3_499_000, false],
      // 1000 + 500000 + 1000000
      [{ sloClass: 'batch', arrivalUs: 1000, sloTargetUs: 500_000 }, -1_501_000, 1_501_000, true],
      // 1000 + 3600000000 - 3000000
      [{ sloClass: 'standard', arrivalUs: 1000 }, -3_597_001_000, 3_597_001_000, false],
    ],
  },
  {
    template: 'fair-share',
    formula: 'score = class - min(1, max(0, 0.1 x (active - inFlight / tenants))); rank = 1000 x (4 - score)',
    given: [
      [{ sloClass: 'standard', tenantId: 'a' }, 2.8, 1200, false], // 2 beyond 4
      [{ sloClass: 'standard', tenantId: 'b' }, 2, 2000, false], // 16 beyond: at most 1
      [{ sloClass: 'standard', tenantId: 'c' }, 3, 1000, false], // below its share
      [{ sloClass: 'batch', tenantId: 'a' }, -1.2, 5200, true],
    ],
  },
];

/** One seat, which number 0 has until 4670 µs. Numbers 1 to 6 wait for it. */
const waiting: SmallRequest[] = [
  { atUs: 0, prompt: 64, output: 4, tenant: 'b' },
  { atUs: 100, prompt: 8, output: 1, tenant: 'a', sloClass: 'batch' },
  { atUs: 150, prompt: 8, output: 1, tenant: 'a', sloClass: 'batch' },
  { atUs: 200, prompt: 8, output: 1, tenant: 'a', sloClass: 'standard' },
  { atUs: 300, prompt: 8, output: 1, tenant: 'b', sloClass: 'standard' },
  { atUs: 400, prompt: 8, output: 1, tenant: 'a', sloClass: 'critical' },
  { atUs: 450, prompt: 8, output: 1, tenant: 'b', sloClass: 'batch', ttftTargetUs: 500 },
];

/** In which order the preset lets them run. */
async function joined(name: string): Promise<number[]> {
  const order: number[] = [];
  const bound = await bindBundle(preset(name));
  const setup = smallSetup(smallPool({ maxSequences: 1 }), waiting, {
    joined: ({ number }) => void order.push(number),
  });
  const control = new PolicyControlPlane(bound.control, { key: 1n, blockTokens: 4, maxSequences: 1 });
  audited(newSimulation(scheduledBy({ ...setup, control }, bound)));
  return order;
}

describe('priority', () => {
  test.each([
    ['constant', 'as they came', [0, 1, 2, 3, 4, 5, 6]],
    ['slo-class', 'ranks 0, 1, 1, 5, 5, 5', [0, 5, 3, 4, 1, 2, 6]],
    // the one with a target is due in 950 µs, the others in an hour, less 4, 3 and -1 s
    ['slo-deadline', 'the one that is due first, then by class', [0, 6, 5, 3, 4, 1, 2]],
    // number 3 comes when its tenant has 2 of the 3 in flight, half a request beyond its share: rank 1050
    ['fair-share', 'rank 1050 behind 1000', [0, 5, 4, 3, 1, 2, 6]],
  ])('a run with the preset %s goes by its ranks: %s', async (template, _, order) => {
    expect(await joined(`priority/${template}`)).toEqual(order);
  });

  test.each(rows)('$template: $formula', ({ template, given }) => {
    const policy = priorityPolicies.make(choiceOf('priority', template), world());
    for (const [fields, score, rank, sheddable] of given) {
      const made = policy.prioritise(request(fields), state);
      expect(made.score, JSON.stringify(fields)).toBeCloseTo(score, 9);
      expect(made.rank, JSON.stringify(fields)).toBe(rank);
      expect(made.hints.sheddable, JSON.stringify(fields)).toBe(sheddable);
    }
  });

  eachPresetHasARow('priority', rows);
});
