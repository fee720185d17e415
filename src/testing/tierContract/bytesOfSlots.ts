/**
 * A store keeps bytes by place: what was written to a slot comes back, no other slot is touched, and a place
 * that the pool does not have is refused.
 */

import { expect, it } from 'vitest';
import { emptyItem, mismatchedWords } from '../patternItems.ts';
import { outcomes, type Trial } from './trial.ts';

export function bytesOfSlots(trial: Trial): void {
  const { item, write, read, readBack, fullPool, shape } = trial;

  it('says what it is', () => {
    expect(trial.store.capacityBytes).toBe(shape.capacityBytes);
    expect([0, 1, 2, 3]).toContain(trial.store.tier);
    const facts = Object.values(trial.store.describe());
    expect(facts.length).toBeGreaterThan(0);
    for (const fact of facts) expect(['string', 'number', 'boolean']).toContain(typeof fact);
  });

  it('gives every slot of every size class back as it was written, in one big batch', async () => {
    const items = fullPool(1);
    expect(new Set(await write(...items))).toEqual(new Set(['loaded']));
    const targets = items.map((written) => emptyItem(written));
    expect(new Set(await read(...targets))).toEqual(new Set(['loaded']));
    if (trial.tier.movesBytes) for (const target of targets) expect(mismatchedWords(target)).toBe(0);
  });

  it('answers in the order of the items, with a reason for whatever was not loaded', async () => {
    await trial.store.write([item(0, 0, 5)]);
    const results = await trial.store.read([
      item(shape.slotsPerPageMax, 0, 1),
      emptyItem(item(0, 0, 5)),
      item(0, 0, 4),
    ]);
    expect(outcomes(results)).toEqual(['missing', 'loaded', 'refused']);
    expect(results.map((result) => result.reason === '')).toEqual([false, true, false]);
    expect(await trial.store.write([])).toEqual([]);
    expect(await trial.store.read([])).toEqual([]);
  });

  it('touches no bytes but those of the slot', async () => {
    const items = fullPool(1);
    await trial.store.write(items);
    const rewritten = items.map((old) => (old.slot % 3 === 1 ? item(old.slot, old.sizeClass, 2) : old));
    for (const changed of rewritten.filter((one) => one.generation === 2)) await trial.store.write([changed]);
    for (const one of rewritten) expect(await readBack(one)).toBe('loaded');
  });

  it('keeps its own copy: what happens to the source after a write does not reach the slot', async () => {
    const source = item(0, 0, 1);
    await trial.store.write([source]);
    source.bytes.fill(0x5a);
    expect(await readBack(item(0, 0, 1))).toBe('loaded');
  });

  it('writes from and reads into bytes that start anywhere', async () => {
    const source = item(0, 0, 1);
    for (const byteOffset of [1, 4, 100, 4096]) {
      const room = new Uint8Array(source.bytes.byteLength + byteOffset + 8).fill(0x77);
      const bytes = room.subarray(byteOffset, byteOffset + source.bytes.byteLength);
      bytes.set(source.bytes);
      expect(await write({ ...source, bytes })).toEqual(['loaded']);
      if (trial.tier.movesBytes) bytes.fill(0);
      expect(await read({ ...source, bytes })).toEqual(['loaded']);
      expect(Buffer.compare(bytes, source.bytes)).toBe(0);
      expect(room.subarray(0, byteOffset).every((byte) => byte === 0x77)).toBe(true);
      expect(room.subarray(byteOffset + bytes.byteLength).every((byte) => byte === 0x77)).toBe(true);
    }
  });

  it('answers missing for a slot that was never written, also beside written ones', async () => {
    expect(await read(item(0, 0, 1))).toEqual(['missing']);
    const last = shape.slotBytes.length - 1;
    await trial.store.write([item(0, last, 1), item(2, last, 1)]);
    expect(await read(item(1, last, 1))).toEqual(['missing']);
  });

  it('refuses places that its pool does not have', async () => {
    const good = item(0, 0, 1);
    const missingClass = { ...good, sizeClass: shape.slotBytes.length };
    const beyond = { ...good, slot: shape.slotLimit };
    const pastPage = { ...good, slot: shape.slotsPerPage[0] };
    const noGeneration = { ...good, generation: 0 };
    const all = [missingClass, beyond, pastPage, { ...good, slot: -1 }, { ...good, slot: 0.5 }, noGeneration];
    expect(new Set(await write(...all))).toEqual(new Set(['refused']));
    expect(new Set(await read(...all))).toEqual(new Set(['refused']));
    expect(await read(good)).toEqual(['missing']);
  });

  it('refuses bytes of another length than the slot', async ({ skip }) => {
    skip(!trial.tier.movesBytes, 'moves no bytes');
    const good = item(0, 0, 1);
    const short = { ...good, bytes: good.bytes.subarray(4) };
    expect(await write(short)).toEqual(['refused']);
    await trial.store.write([good]);
    expect(await read(short)).toEqual(['refused']);
    expect(await readBack(good)).toBe('loaded');
  });
}
