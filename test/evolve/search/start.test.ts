import { expect, it } from 'vitest';
import { bindBundle } from '../../../src/policy/evolve/binding/bind.ts';
import { type PolicyBundle, policySlots } from '../../../src/policy/evolve/bundle/policyBundle.ts';
import { policyId } from '../../../src/policy/evolve/bundle/presets.ts';
import { readBundle } from '../../../src/policy/evolve/bundle/readBundle.ts';
import { NumberSpace, varyBundle } from '../../../src/policy/evolve/search/individual.ts';
import { firstPolicies, slotGuides } from '../../../src/policy/evolve/search/seeds.ts';
import { GoRandom } from '../../../src/sim/random/goRand.ts';

const seed = Number(process.env.TIERKV_SEED ?? 17);
const slots = policySlots;

it('the first policies of every slot are valid, bind, and have names of their own', async () => {
  const policies = firstPolicies(slots);
  expect(policies.length).toBeGreaterThan(30);
  expect(new Set(policies.map(({ name }) => name)).size).toBe(policies.length);
  for (const policy of policies) await bindBundle(readBundle(policy));
});

it(`random points of every policy's numbers are valid bundles (seed ${seed})`, () => {
  const random = new GoRandom(BigInt(seed));
  for (const policy of firstPolicies(slots)) {
    const space = new NumberSpace(policy, slotGuides, slots);
    for (let i = 0; i < 20; i++) {
      const moved = space.at(space.point.map(() => random.float64()));
      policyId(readBundle(moved));
    }
    for (const end of [0, 1]) policyId(readBundle(space.at(space.point.map(() => end))));
  }
});

it('a number of a filter that is off is not searched', () => {
  const dimensions = (parameters: Record<string, boolean | string>): number =>
    new NumberSpace({ routing: { type: 'parameterized', template: 'llm-d', parameters } }, slotGuides)
      .dimensions;
  const plain = dimensions({});
  // the least match, the penalty, the chance and the rate
  expect(dimensions({ prefixCacheAffinity: true })).toBe(plain + 4);
  // the chance, two targets; the rate counts for both
  expect(dimensions({ prefixCacheAffinity: true, sloHeadroomTier: true })).toBe(plain + 7);
  expect(dimensions({ concurrencyKind: 'hybrid' })).toBe(plain + 3);
});

it(`2,000 children of children are valid bundles (seed ${seed})`, async () => {
  const random = new GoRandom(BigInt(seed));
  const policies = firstPolicies(slots);
  let pool: PolicyBundle[] = policies;
  const kinds = new Set<string>();
  for (let i = 0; i < 2000; i++) {
    const parent = pool[random.intn(pool.length)];
    const other = pool[random.intn(pool.length)];
    const child = varyBundle(parent, other, 1 + random.intn(2), { slots, guides: slotGuides, random });
    if (child === undefined) continue;
    policyId(readBundle(child.bundle));
    for (const slot of slots) kinds.add(`${slot} ${child.bundle[slot]?.type}`);
    pool = i % 100 === 99 ? policies : [...pool, child.bundle];
  }
  expect(kinds).toContain('routing code');
  expect(kinds).toContain('routing decisionTree');
  expect(kinds).toContain('admission decisionTree');
  expect(kinds).toContain('instanceScheduler decisionTree');
});
