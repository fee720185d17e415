import { describe, expect, it } from 'vitest';
import { Outcome, poolShape } from '../../src/runtime/index.ts';
import type { StoreItem } from '../../src/runtime/tier/tierStore.ts';
import {
  FaultClock,
  FaultDevice,
  type FaultKind,
  FaultPlan,
  FaultStore,
  type FiredFault,
  StandInDevice,
  StandInDisk,
} from '../../src/testing/faults.ts';
import { emptyItem, mismatchedWords, patternItem } from '../../src/testing/index.ts';

const shape = poolShape(8, 2048, [2048]);
const item = (slot: number, generation = 1): StoreItem => patternItem(shape, slot, 0, generation);

function faulty(rates: Partial<Record<FaultKind, number>>, verify = true) {
  const clock = new FaultClock();
  const fired: FiredFault[] = [];
  const disk = new StandInDisk(shape, { verify });
  const plan = new FaultPlan({ seed: 3, rates, lateUs: [5000, 5000] });
  const wait = (delayUs: number): Promise<void> => clock.wait(delayUs);
  const store = new FaultStore(disk, { plan, wait, onFault: (fault) => fired.push(fault) });
  return { clock, fired, disk, plan, store };
}

describe('a reported fault', () => {
  it.each(['EIO', 'ENOSPC', 'EMFILE'] as const)('%s on a write is refused by name', async (kind) => {
    const { store, fired } = faulty({ [kind]: 1 });
    const [end] = await store.write([item(2)]);
    expect(end.outcome).toBe(Outcome.REFUSED);
    expect(end.reason).toContain(kind);
    expect(fired).toMatchObject([{ kind, op: 'write', places: [{ slot: 2, generation: 1 }] }]);
  });

  it('leaves the other items of the call alone', async () => {
    const { store, plan } = faulty({ EIO: 0.5 });
    const items = [0, 1, 2, 3, 4, 5, 6, 7].map((slot) => item(slot));
    const ends = await store.write(items);
    const good = items.filter((_, i) => ends[i].outcome === Outcome.LOADED);
    expect(good.length).toBeGreaterThan(0);
    expect(good.length).toBeLessThan(8);
    plan.pause();
    for (const written of good) {
      const back = emptyItem(written);
      expect((await store.read([back]))[0].outcome).toBe(Outcome.LOADED);
      expect(mismatchedWords(back)).toBe(0);
    }
  });
});

describe('a silent fault', () => {
  it.each(['torn', 'short', 'flipped'] as const)(
    '%s on a write passes for right until it is read',
    async (kind) => {
      const { store, plan } = faulty({ [kind]: 1 });
      expect((await store.write([item(1)]))[0].outcome).toBe(Outcome.LOADED);
      plan.pause();
      expect((await store.read([emptyItem(item(1))]))[0].outcome).toBe(Outcome.CORRUPT);
    },
  );

  it.each(['short', 'flipped'] as const)('%s on a read leaves other bytes than it should', async (kind) => {
    const { store, disk } = faulty({ [kind]: 1 });
    await disk.write([item(1)]);
    const back = emptyItem(item(1));
    expect((await store.read([back]))[0].outcome).toBe(Outcome.LOADED);
    expect(mismatchedWords(back)).toBeGreaterThan(0);
  });

  it('torn leaves the rest of what the slot held before', async () => {
    const { store, disk } = faulty({ torn: 1 }, false);
    await store.write([item(1, 1)]);
    await store.write([item(1, 2)]);
    const bytes = disk.bytesAt(1);
    const old = item(1, 1).bytes;
    const fresh = item(1, 2).bytes;
    const sectors = [0, 512, 1024, 1536].map((at) =>
      [old, fresh].findIndex(
        (one) => Buffer.compare(one.subarray(at, at + 512), bytes.subarray(at, at + 512)) === 0,
      ),
    );
    expect(sectors).toEqual([...sectors].sort().reverse());
    expect(sectors.at(-1)).toBe(0);
  });
});

describe('a delayed call', () => {
  it('late: ends after its delay, and then its bytes are there', async () => {
    const { store, clock, fired } = faulty({ lateAfterCancel: 1 });
    let ended = false;
    const call = store.write([item(0)]).then((ends) => {
      ended = true;
      return ends;
    });
    await clock.step();
    expect(clock.nowUs).toBe(5000);
    expect(ended).toBe(true);
    expect((await call)[0].outcome).toBe(Outcome.LOADED);
    expect(fired.map(({ kind }) => kind)).toEqual(['lateAfterCancel']);
  });

  it('stalled: never ends, until the store is given up', async () => {
    const { store, clock } = faulty({ stalled: 1 });
    const call = store.write([item(0)]);
    await clock.step();
    expect(store.stalledCalls).toBe(1);
    store.releaseStalled();
    expect((await call)[0].outcome).toBe(Outcome.LOADED);
  });
});

it('a lost device ends every call at once, touches no bytes any more, and says why', async () => {
  const clock = new FaultClock();
  const inner = new StandInDevice(shape);
  const plan = new FaultPlan({ seed: 1, rates: {}, latencyUs: [100, 100] });
  const device = new FaultDevice(inner, { plan, wait: (delayUs) => clock.wait(delayUs) });
  await inner.write([item(0)]);
  const target = emptyItem(item(0));
  const pending = device.read([target]);
  device.lose();
  expect((await pending)[0].outcome).toBe(Outcome.REFUSED);
  expect(await device.lost).toContain('lost');
  await clock.step();
  expect(target.bytes.every((byte) => byte === 0xee)).toBe(true);
  for (const end of [
    await device.write([item(0)]),
    await device.read([target]),
    await device.seal([item(0)]),
  ]) {
    expect(end[0].outcome).toBe(Outcome.REFUSED);
  }
});

it('the same seed gives the same faults', () => {
  const draw = (seed: number): (FaultKind | null)[] => {
    const plan = new FaultPlan({ seed, rates: { EIO: 0.3, flipped: 0.3 } });
    return Array.from({ length: 50 }, () => plan.itemFault('disk', 'write'));
  };
  expect(draw(5)).toEqual(draw(5));
  expect(draw(5)).not.toEqual(draw(6));
  expect(new Set(draw(5))).toEqual(new Set(['EIO', 'flipped', null]));
});
