/**
 * A saved state in which anything was changed is refused before anything is made of it, whatever it is the state of. A state
 * of another object is refused, or it is sound in this one.
 */

import { describe, expect, it } from 'vitest';
import { KVManager, TierKVError } from '../../../src/runtime/index.ts';
import { restoreState, saveState } from '../../../src/runtime/snapshot.ts';
import { SeededRandom } from '../../../src/testing/index.ts';
import { sized } from '../../sized.ts';
import { damagedStates } from './damagedStates.ts';
import { Caller, configOf } from './randomManager.ts';

const seed = Number(process.env.TIERKV_SEED ?? 1);
/** More than a restore of the largest state here takes. */
const MOST_BYTES = 64 * 2 ** 20;

describe('a saved state', () => {
  it(`that is damaged is refused, or equal to what was saved (seed ${seed})`, () => {
    const states = sized(300, 2000);
    const { refused, equal, wrong, largestBytes } = damagedStates(states, seed);
    expect(wrong).toEqual([]);
    expect(refused + equal).toBe(states);
    expect(refused).toBeGreaterThan(0.9 * states);
    expect(largestBytes).toBeLessThan(MOST_BYTES);
  });

  it('with the length of a table of 2^28 is refused before the table is made', () => {
    const config = { unitBytes: [1], hbm: { capacityBytes: 8 }, ddr: { capacityBytes: 8, landingBytes: 1 } };
    const saved = saveState(new KVManager(config));
    let tables = 0;
    const before = process.memoryUsage().arrayBuffers;
    for (const [i, value] of saved.entries()) {
      if (typeof value !== 'object' || !Object.hasOwn(value as object, 'head')) continue;
      tables++;
      const longer = saved.with(i, { ...(value as object), length: 2 ** 28 });
      expect(() => restoreState(new KVManager(config), longer), `element ${i}`).toThrow(/is damaged/);
    }
    expect(tables).toBeGreaterThan(20);
    expect(process.memoryUsage().arrayBuffers - before).toBeLessThan(MOST_BYTES);
  });

  it('of another configuration is refused, or sound in this one', () => {
    let [refused, taken] = [0, 0];
    for (let from = 0; from < 40; from++) {
      const caller = new Caller(new KVManager(configOf(from)), new SeededRandom(from));
      for (let calls = 0; calls < 60; calls++) caller.call();
      const saved = saveState(caller.manager);
      for (let to = 0; to < 40; to++) {
        const target = new KVManager(configOf(to));
        try {
          restoreState(target, saved);
        } catch (error) {
          expect(error, `${from} into ${to}`).toMatchObject({ code: 'TKV_MISMATCH' });
          refused++;
          continue;
        }
        taken++;
        const after = caller.fork(target, to);
        for (let call = 0; call < 20; call++) after.call(); // each one audits
      }
    }
    expect(taken).toBeGreaterThanOrEqual(40);
    expect(refused).toBeGreaterThan(1000);
  });

  it('must pass the audit of what it was put into', () => {
    const owner = {
      visitState: () => {},
      checkIntegrity: () => {
        throw new Error('a rule is broken');
      },
    };
    const call = (): void => restoreState(owner, saveState({ visitState: () => {} }));
    expect(call).toThrow(TierKVError);
    expect(call).toThrow(/is damaged, or of another object/);
  });

  it('is plain data: what is not is refused when it is saved', () => {
    const owner = {
      visitState: (visitor: { value<T>(save: () => T, restore: (saved: T) => void): void }) =>
        visitor.value(
          () => ({ call: () => 1 }),
          () => {},
        ),
    };
    expect(() => saveState(owner)).toThrow(/^State must be plain data, and it holds a function/);
  });
});
