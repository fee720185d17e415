/** The bytes of a whole tier go: what callers and the books say then. */

import { describe, expect, it } from 'vitest';
import {
  type DecisionSink,
  Entry,
  type JobId,
  KVManager,
  LogWriter,
  type ManagerConfig,
  Outcome,
} from '../../../src/runtime/index.ts';
import { replayLog } from '../../../src/runtime/log/replayer.ts';
import { World } from './world.ts';

const threeTiers = { hbm: { capacityBytes: 4 }, ddr: { capacityBytes: 4 }, nvme: { capacityBytes: 4 } };
const twoTiers = { hbm: { capacityBytes: 4 }, ddr: { capacityBytes: 4 } };

describe('a lost tier', () => {
  it('is empty, and what lay nowhere else is found nowhere', () => {
    const world = new World(threeTiers);
    world.cache(1, 2, 3);
    world.manager.evict(0, 1, 0);
    world.settle();
    expect(world.manager.loseTier(0, 0)).toEqual({ replicas: 2, lost: 2 });
    world.manager.checkIntegrity();
    expect(world.manager.inspect.usage(0)).toMatchObject({
      residentBytes: 0,
      cachedBytes: 0,
      slots: { free: 4 },
    });
    expect(world.manager.inspect.counters.lost).toBe(2);
    expect(world.manager.lookup(world.keys(1, 2, 3), 3).blocks).toBe(0);
    expect(world.manager.lookup(world.keys(3), 1).byTier).toEqual([0, 1, 0]);
  });

  it('brings a block that a sequence held back from the tier below', () => {
    const world = new World(twoTiers);
    world.cache(1);
    world.manager.evict(0, 1, 0);
    world.settle();
    const sequence = world.compute(1, 2);
    expect([...sequence.state.subarray(0, 2)]).toEqual([Entry.READY, Entry.READY]);
    expect(world.manager.loseTier(0, 0)).toEqual({ replicas: 2, lost: 1 });
    world.manager.checkIntegrity();
    expect([...sequence.state.subarray(0, 2)]).toEqual([Entry.MATCHED, Entry.FAILED]);
    expect(sequence.outcome[1]).toBe(Outcome.REFUSED);
    expect(world.manager.loadedBlock(sequence, 0)).toBeUndefined();
    expect(world.manager.load(sequence, 0, 0, sequence.length)).toBe(true);
    expect(world.manager.allocate(sequence, 1, 2, 0)).toBe(true);
    world.settle();
    expect([...sequence.state.subarray(0, 2)]).toEqual([Entry.READY, Entry.OPEN]);
  });

  it('fails open blocks and blocks whose digest was being taken; their slots wait for the driver', () => {
    const world = new World(twoTiers);
    const sequence = world.manager.open(world.keys(1, 2), 2, 0);
    world.manager.allocate(sequence, 0, 2, 0);
    world.manager.seal(sequence, 0, 1, world.keys(1), 0, 16, 0);
    const [seal] = world.issued();
    world.manager.loseTier(0, 0);
    world.manager.checkIntegrity();
    expect([...sequence.state.subarray(0, 2)]).toEqual([Entry.FAILED, Entry.FAILED]);
    expect(sequence.pending).toBe(0);
    expect(world.manager.inspect.usage(0).slots).toMatchObject({ free: 3, draining: 1 });
    world.end(seal, Outcome.LOADED, 5);
    expect(world.manager.inspect.usage(0).slots.free).toBe(4);
    expect(world.manager.lookup(world.keys(1), 1).blocks).toBe(0);
  });

  it('starts a load that was under way to it again, to another slot', () => {
    const world = new World(twoTiers);
    world.cache(1);
    world.manager.evict(0, 1, 0);
    world.settle();
    const sequence = world.manager.open(world.keys(1), 1, 0);
    world.manager.load(sequence, 0);
    const [before] = world.issued();
    world.manager.loseTier(0, 0);
    world.manager.checkIntegrity();
    const [again] = world.issued();
    expect(again?.source).toEqual(before?.source);
    expect(again?.target.slot).not.toBe(before?.target.slot);
    world.end(before);
    expect(sequence.state[0]).toBe(Entry.LOADING);
    world.end(again);
    expect(sequence.state[0]).toBe(Entry.READY);
  });

  it('hazard 17: calls off a demotion that waits for a slot, since its bytes are gone', () => {
    const world = new World({ hbm: { capacityBytes: 2 }, ddr: { capacityBytes: 1 } });
    world.cache(1, 2);
    world.manager.evict(0, 1, 0);
    const [slow] = world.issued();
    world.manager.evict(0, 1, 0);
    expect(world.issued()).toEqual([]);
    expect(world.manager.inspect.jobsInFlight).toBe(2);
    world.manager.loseTier(0, 0);
    world.manager.checkIntegrity();
    expect(world.manager.inspect.jobsInFlight).toBe(1);
    world.end(slow, Outcome.REFUSED);
    expect(world.manager.lookup(world.keys(1), 1).blocks).toBe(0);
    expect(world.manager.lookup(world.keys(2), 1).blocks).toBe(0);
  });

  it('below HBM: a sequence pinned to it finds another copy, or is told to compute', () => {
    const world = new World(threeTiers);
    world.cache(1, 2);
    world.manager.evict(0, 2, 0);
    world.settle();
    world.manager.evict(1, 1, 0);
    world.settle();
    expect(world.manager.lookup(world.keys(1, 2), 2).byTier).toEqual([0, 1, 1]);
    const sequence = world.manager.open(world.keys(1, 2), 2, 0);
    world.manager.loseTier(1, 0);
    world.manager.checkIntegrity();
    expect([...sequence.state.subarray(0, 2)].sort()).toEqual([Entry.MATCHED, Entry.FAILED].sort());
    world.manager.loseTier(2, 0);
    world.manager.checkIntegrity();
    expect([...sequence.state.subarray(0, 2)]).toEqual([Entry.FAILED, Entry.FAILED]);
    world.manager.release(sequence, 0);
    world.settle();
    for (const tier of [0, 1, 2]) expect(world.manager.inspect.usage(tier).slots.free).toBe(4);
  });

  it('refuses a position that there is not', () => {
    expect(() => new World(twoTiers).manager.loseTier(2, 0)).toThrow(/position is 2/);
  });
});

it('the loss of a tier is an input: its record gives the same decisions again', () => {
  const config: ManagerConfig = { unitBytes: [1], hbm: { capacityBytes: 3 }, ddr: { capacityBytes: 3 } };
  const recorder = new Recorder(config);
  const manager = new KVManager(config, recorder.sink);
  const keys = Uint32Array.from([1, 0, 0, 0, 2, 0, 0, 0]);
  const sequence = manager.open(keys, 2, 0);
  manager.allocate(sequence, 0, 2, 1);
  manager.seal(sequence, 0, 1, keys, 0, 16, 2);
  manager.complete(manager.nextJob(), Outcome.LOADED, 3, 9, 9);
  manager.loseTier(0, 4);
  manager.allocate(sequence, 0, 1, 5);
  manager.release(sequence, 6);
  recorder.writer.end();
  expect(recorder.decisions.split('\n').length).toBeGreaterThan(5);

  expect(recorder.log.endsWith('\n')).toBe(true);

  const again = new Recorder(config);
  const lines = recorder.log.slice(0, -1).split('\n');
  const replayed = replayLog(lines, 'the log', again.sink);
  again.writer.end();
  expect(again.decisions).toBe(recorder.decisions);
  expect(again.log).toBe(recorder.log);
  expect(replayed.nextJob() satisfies JobId).toBe(0);
});

class Recorder {
  log = '';
  decisions = '';
  readonly writer: LogWriter;

  constructor(config: ManagerConfig) {
    this.writer = new LogWriter(config, {
      log: (text) => {
        this.log += text;
      },
      decisions: (text) => {
        this.decisions += text;
      },
    });
  }

  get sink(): DecisionSink {
    return this.writer;
  }
}
