import { expect, it } from 'vitest';
import { StagingSlots } from '../../../src/backends/engine/stagedBatch.ts';

it('staging slots are taken in turn, and a call that finds none free waits for one', async () => {
  using staging = await StagingSlots.open(4096, 4);
  expect(await staging.take(2)).toEqual([0, 1]);
  staging.giveBack([1]);
  expect(await staging.take(3)).toEqual([2, 3, 1]);
  const waiting = staging.take(2);
  staging.giveBack([3, 2]);
  expect(await waiting).toEqual([3, 2]);
});
