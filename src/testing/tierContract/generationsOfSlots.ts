/**
 * A slot belongs to the latest generation that was written to it: older ones are refused, newer ones are not
 * there yet, and nobody is served what the place held under another cut.
 */

import { expect, it } from 'vitest';
import { Outcome } from '../../runtime/transfer/outcome.ts';
import { emptyItem } from '../patternItems.ts';
import type { Trial } from './trial.ts';

export function generationsOfSlots(trial: Trial): void {
  const { item, write, read, readBack, shape } = trial;

  it('refuses an older generation than the slot holds as stale, and changes nothing', async () => {
    const current = item(0, 0, 7);
    await trial.store.write([current]);
    const isStale = [expect.objectContaining({ outcome: Outcome.REFUSED, isStale: true })];
    expect(await trial.store.write([item(0, 0, 6)])).toEqual(isStale);
    expect(await trial.store.read([emptyItem(item(0, 0, 6))])).toEqual(isStale);
    expect(await readBack(current)).toBe('loaded');
  });

  it('answers corrupt to a read of a newer generation than the slot holds', async () => {
    await trial.store.write([item(0, 0, 7)]);
    expect(await read(item(0, 0, 8))).toEqual(['corrupt']);
    expect(await readBack(item(0, 0, 7))).toBe('loaded');
  });

  it('gives the slot to a newer generation, and forgets the old one', async () => {
    await trial.store.write([item(0, 0, 1)]);
    expect(await write(item(0, 0, 9))).toEqual(['loaded']);
    expect(await readBack(item(0, 0, 9))).toBe('loaded');
    expect(await read(item(0, 0, 1))).toEqual(['refused']);
  });

  it('never serves what a page held before it was cut into slots of another size', async () => {
    const small = shape.slotBytes.length - 1;
    await trial.store.write([item(0, small, 1), item(1, small, 1)]);
    expect(await read(item(0, 0, 1))).toEqual(['corrupt']);
    await trial.store.write([item(0, 0, 2)]);
    expect(await read(item(1, small, 1))).toEqual(['missing']);
    expect(await readBack(item(0, 0, 2))).toBe('loaded');
    await trial.store.write([item(0, small, 3)]);
    expect(await read(item(1, small, 1))).toEqual(['missing']);
  });

  it('answers corrupt when the bytes in the slot turn out to be those of an older generation', async ({
    skip,
  }) => {
    if (trial.tier.setGeneration === undefined) return skip('no way to change a generation was given');
    const current = item(0, 0, 4);
    await trial.store.write([current]);
    await trial.tier.setGeneration(0, 0, 3);
    expect(await read(emptyItem(current))).toEqual(['corrupt']);
  });
}
