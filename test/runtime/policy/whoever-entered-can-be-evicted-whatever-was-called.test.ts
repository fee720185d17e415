import { expect, it } from 'vitest';
import { evictionPolicyNames } from '../../../src/runtime/eviction/registry.ts';
import { PolicyModel } from './policyModel.ts';

const seed = Number(process.env.TIERKV_POLICY_SEED ?? 27_06);
const STEPS = 1_500;

it.each(evictionPolicyNames)(
  `%s names a victim as long as one has entered, in every tier and class (seed ${seed})`,
  (policy) => {
    for (let world = 0; world < 4; world++) {
      const model = new PolicyModel({ policy }, seed + world, true);
      for (let step = 0; step < STEPS; step++) {
        try {
          model.step();
        } catch (error) {
          throw new Error(`${policy}, seed ${seed + world}, step ${step}: ${String(error)}`, {
            cause: error,
          });
        }
      }
      expect(model.decisions.filter((victim) => victim !== -1).length).toBeGreaterThan(STEPS / 20);
    }
  },
);

it.each(evictionPolicyNames.filter((policy) => policy !== 's3fifo'))(
  `%s decides the same in a second run, and whether or not it is audited (seed ${seed})`,
  (policy) => {
    const runs = [true, false, false].map((audited) => {
      const model = new PolicyModel({ policy }, seed + 99, audited);
      for (let step = 0; step < STEPS; step++) model.step();
      return model.decisions;
    });
    expect(runs[1]).toEqual(runs[0]);
    expect(runs[2]).toEqual(runs[0]);
  },
);

it(`s3fifo, whose queues go round when it is asked, decides the same in a second run (seed ${seed})`, () => {
  const runs = [0, 1].map(() => {
    const model = new PolicyModel({ policy: 's3fifo' }, seed + 99, false);
    for (let step = 0; step < STEPS; step++) model.step();
    return model.decisions;
  });
  expect(runs[1]).toEqual(runs[0]);
});
