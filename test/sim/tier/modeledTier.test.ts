import { Tier } from '../../../src/runtime/tier/tier.ts';
import { ModeledTier } from '../../../src/sim/links/modeledTier.ts';
import { tierContract } from '../../../src/testing/tierContract.ts';

tierContract('modeled', (shape) => {
  const store = new ModeledTier(Tier.NVME, shape);
  return { store, movesBytes: false, remembersKeys: true, flipBit: (slot) => store.damage(slot) };
});
