import { expect, it } from 'vitest';
import { TransferEngine } from '../../src/backends/engine/index.ts';
import { Pump } from '../../src/embed/pump.ts';
import { KVManager } from '../../src/runtime/index.ts';
import { StandInDevice, settled } from '../../src/testing/faults/index.ts';

it('a job that is issued in the very moment in which the last one was handed back is carried out too', async () => {
  const manager = new KVManager({ unitBytes: [64], hbm: { capacityBytes: 256 } });
  const hbm = new StandInDevice(manager.config.tiers[0].shape);
  const pump = new Pump(manager, new TransferEngine({ hbm }, null, () => 0), 1000, () => {});
  const keys = Uint32Array.of(1, 0, 0, 0, 2, 0, 0, 0);
  const sequence = manager.open(keys, 2, 0);
  manager.allocate(sequence, 0, 2, 0);
  manager.seal(sequence, 0, 1, keys, 0, 16, 0);
  let asked = false;
  await pump.until(() => {
    if (sequence.pending > 0) return false;
    if (!asked) {
      asked = true;
      queueMicrotask(() => {
        manager.seal(sequence, 1, 2, keys, 4, 16, 0);
        pump.poke();
      });
    }
    return true;
  });
  await settled();
  await settled();
  expect(manager.jobsInFlight).toBe(0);
  expect(sequence.readyPrefix()).toBe(2);
});
