/**
 * What arrives is compared with what it must be, as far as the store says that it does: the digest, the key,
 * every bit.
 */

import { expect, it } from 'vitest';
import { emptyItem } from '../patternItems.ts';
import type { Trial } from './trial.ts';

export function verificationOfReads(trial: Trial): void {
  const { item, write, read, readBack } = trial;

  it('checks the digest of what arrives, where it says that it does', async () => {
    const good = item(0, 0, 1);
    const wrong = { lo: good.digest.lo ^ 1, hi: good.digest.hi };
    const lied = await write({ ...good, digest: wrong });
    expect(lied).toEqual([trial.store.verifies.onWrite ? 'corrupt' : 'loaded']);
    if (trial.store.verifies.onWrite)
      expect(['missing', 'corrupt']).toContain((await read(emptyItem(good)))[0]);
    expect(await write(item(0, 0, 2))).toEqual(['loaded']);
    expect(await read(emptyItem(item(0, 0, 2), wrong))).toEqual([
      trial.store.verifies.onRead || trial.tier.remembersDigests === true ? 'corrupt' : 'loaded',
    ]);
    expect(await readBack(item(0, 0, 2))).toBe('loaded');
  });

  it('answers corrupt to a read under another key, where it remembers keys', async () => {
    const good = item(0, 0, 1);
    await trial.store.write([good]);
    for (let lane = 0; lane < 4; lane++) {
      const key = good.key.slice();
      key[lane] = key[lane] ^ 0x8000_0000;
      expect(await read({ ...emptyItem(good), key })).toEqual([
        trial.tier.remembersKeys === true ? 'corrupt' : 'loaded',
      ]);
    }
  });

  it('notices one flipped bit anywhere in the bytes, where it verifies reads', async ({ skip }) => {
    skip(!trial.store.verifies.onRead, 'does not verify reads');
    if (trial.tier.flipBit === undefined) return skip('no way to flip a bit was given');
    const good = item(0, 0, 1);
    await trial.store.write([good]);
    const length = good.bytes.byteLength;
    for (const byteIndex of [0, 1, 511, length >> 1, length - 4, length - 1]) {
      await trial.tier.flipBit(0, 0, byteIndex);
      expect(await readBack(good), `byte ${byteIndex}`).toBe('corrupt');
      await trial.tier.flipBit(0, 0, byteIndex);
      expect(await readBack(good)).toBe('loaded');
    }
  });

  it('leaves the digest to whoever checks later, and what it knows of the place to nobody', async ({
    skip,
  }) => {
    skip(!trial.tier.movesBytes, 'moves no bytes that could be checked later');
    if (trial.tier.flipBit === undefined) return skip('no way to flip a bit was given');
    const good = item(0, 0, 1);
    await trial.store.write([good]);
    await trial.tier.flipBit(0, 0, 5);
    const target = { ...emptyItem(good), checkedLater: true };
    expect(await read(target)).toEqual(['loaded']);
    expect(target.bytes[5]).not.toBe(good.bytes[5]);
    expect(await read({ ...target, generation: 2 })).toEqual(['corrupt']);
    if (trial.tier.remembersKeys !== true) return;
    expect(await read({ ...target, key: good.key.map((word) => word ^ 1) })).toEqual(['corrupt']);
  });
}
