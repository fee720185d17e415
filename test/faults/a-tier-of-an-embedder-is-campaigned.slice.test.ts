/** A slice of the faults over the tier of an embedder. Over the tiers of this package: `npm run campaign -- faults`. */

import { expect, it } from 'vitest';
import { testSeed } from '../../src/testing/index.ts';
import { ShelfStore } from '../backends/shelfTier.ts';
import { lastLine, runCampaign } from './campaign.ts';
import type { WorldTier } from './faultWorld.ts';

const seed = testSeed(20_262);

function shelf(): { readonly below: WorldTier; readonly opened: ShelfStore[] } {
  const opened: ShelfStore[] = [];
  const open: WorldTier['open'] = (shape) => {
    const store = new ShelfStore(shape);
    opened.push(store);
    return store;
  };
  return { below: { name: 'shelf', open }, opened };
}

it(`faults on a tier that was registered: no wrong block, no hang, no leaked slot (seed ${seed})`, async () => {
  const { below, opened } = shelf();
  const report = await runCampaign(1_500, seed, true, undefined, below);
  console.log(lastLine(report));
  expect(report.failures).toEqual([]);
  expect(report.accounts.violations).toEqual([]);
  expect([report.wrongBlocks, report.hangs, report.leakedSlots]).toEqual([0, 0, 0]);
  expect(opened.length).toBe(report.worlds);
  expect(opened.every((store) => Number(store.describe().slots) > 0)).toBe(true);
});

it(`control: where the device checks nothing that arrives, wrong blocks are found (seed ${seed})`, async () => {
  const report = await runCampaign(1_000, seed, false, undefined, shelf().below);
  expect(report.wrongBlocks).toBeGreaterThan(10);
});
