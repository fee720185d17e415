/**
 * A manager that was made alike and given the state of another one makes the same decisions from then on:
 * whatever the eviction policy, the quotas, the hints, and whatever is on its way. So does a scheduler.
 */

import { describe, expect, it } from 'vitest';
import { ManagerPort } from '../../../src/runtime/batching/kvPort.ts';
import { Scheduler } from '../../../src/runtime/batching/scheduler.ts';
import {
  BlockKeys,
  evictionPolicyNames,
  KVManager,
  type ServingRequest,
  TierKVError,
} from '../../../src/runtime/index.ts';
import { restoreState, saveState } from '../../../src/runtime/snapshot.ts';
import { SeededRandom } from '../../../src/testing/index.ts';
import { Caller, configOf } from './randomManager.ts';

describe('a restored manager', () => {
  it.each(evictionPolicyNames.map((name, i) => [name, i] as const))(
    'goes on the same with %s, on 12 random settings',
    (_name, first) => {
      for (let i = 0; i < 12; i++) {
        const seed = first + i * evictionPolicyNames.length;
        const random = new SeededRandom(seed);
        const whole = new Caller(new KVManager(configOf(seed)), random);
        for (let calls = 20 + random.below(200); calls > 0; calls--) whole.call();
        const saved = saveState(whole.manager);
        const restored = new KVManager(configOf(seed));
        restoreState(restored, structuredClone(saved));
        expect(saveState(restored), `seed ${seed}`).toEqual(saved);
        const [a, b] = [whole.fork(whole.manager, seed + 1), whole.fork(restored, seed + 1)];
        for (let call = 0; call < 150; call++) {
          a.call();
          b.call();
          expect(b.look(), `seed ${seed}, call ${call} after the fork`).toBe(a.look());
        }
      }
    },
  );

  it.each(['keep', 'move'] as const)('of lowerCopy %s goes on soundly with the other one', (lowerCopy) => {
    for (let seed = 0; seed < 12; seed++) {
      const config = { ...configOf(seed), ddr: { capacityBytes: 16, landingBytes: 2 } };
      const random = new SeededRandom(seed);
      const whole = new Caller(new KVManager({ ...config, lowerCopy }), random);
      for (let calls = 20 + random.below(200); calls > 0; calls--) whole.call();
      const other = new KVManager({ ...config, lowerCopy: lowerCopy === 'keep' ? 'move' : 'keep' });
      restoreState(other, structuredClone(saveState(whole.manager)));
      const after = whole.fork(other, seed + 1);
      expect(after.look(), `seed ${seed}`).toBe(whole.look());
      // each call checks all tables
      for (let call = 0; call < 150; call++) after.call();
    }
  });

  it('takes no state of a manager of another size', () => {
    const saved = saveState(new KVManager({ unitBytes: [1], hbm: { capacityBytes: 8 } }));
    const other = new KVManager({ unitBytes: [1], hbm: { capacityBytes: 9 } });
    expect(() => restoreState(other, saved)).toThrow(/^The saved state has another configuration\./);
    expect(() => restoreState(other, [])).toThrow(TierKVError);
    const owned = new KVManager({ unitBytes: [1], hbm: { capacityBytes: 8 }, owners: 3 });
    expect(() => restoreState(owned, saved)).toThrow(/^The saved state has another configuration\./);
  });

  it('takes no state of a manager that clears blocks of another owner', () => {
    const config = { unitBytes: [1], hbm: { capacityBytes: 8 }, owners: 3 };
    const saved = saveState(new KVManager({ ...config, sharedOwner: 1 }));
    restoreState(new KVManager({ ...config, sharedOwner: 1 }), saved);
    for (const other of [config, { ...config, sharedOwner: 2 }]) {
      expect(() => restoreState(new KVManager(other), saved)).toThrow(/^The saved state has another config/);
    }
  });

  it('takes no damaged state: whatever stands in the place of a part, the error is one of ours', () => {
    const config = { unitBytes: [1], hbm: { capacityBytes: 8 }, ddr: { capacityBytes: 8, landingBytes: 1 } };
    const manager = new KVManager(config);
    manager.allocate(manager.open(new Uint32Array(8), 2, 0), 0, 2, 1);
    const saved = saveState(manager);
    const head = new Uint32Array(9);
    const wrongs = [null, undefined, Number.NaN, {}, 3n, { head, tail: 0, length: 2 }, { head, length: -1 }];
    let refused = 0;
    for (const wrong of wrongs) {
      for (let i = 0; i < saved.length; i++) {
        try {
          restoreState(new KVManager(config), saved.with(i, wrong));
        } catch (error) {
          expect(error, `element ${i}`).toMatchObject({ code: 'TKV_MISMATCH' });
          refused++;
        }
      }
    }
    expect(refused).toBeGreaterThan(4 * saved.length);
    for (const wrong of [null, undefined, 'saved', {}, 7]) {
      const call = (): void => restoreState(new KVManager(config), wrong as never);
      expect(call).toThrow(expect.objectContaining({ code: 'TKV_INPUT', field: 'saved' }));
      expect(() => saveState(wrong as never)).toThrow(expect.objectContaining({ field: 'owner' }));
    }
  });
});

it('a scheduler shows no state while a step is computed', () => {
  const manager = new KVManager({ unitBytes: [1], hbm: { capacityBytes: 8 } });
  const scheduler = new Scheduler<ServingRequest>({}, new ManagerPort(manager, { blockTokens: 4 }));
  scheduler.add({ id: 'a', promptTokens: 4, maxOutputTokens: 2, keys: new BlockKeys() }, 0);
  const names = { nameOf: () => 1, requestOf: () => ({}) as ServingRequest, sequenceOf: () => undefined };
  const shown = {
    visitState: (visitor: Parameters<typeof scheduler.visitState>[0]) => scheduler.visitState(visitor, names),
  };
  saveState(shown);
  scheduler.step(0);
  expect(() => saveState(shown)).toThrow('A step is computing. Call stepEnded before the state is saved.');
});
