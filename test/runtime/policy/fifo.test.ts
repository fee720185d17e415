import { expect, it } from 'vitest';
import { KVManager, LogWriter, type ManagerConfig } from '../../../src/runtime/index.ts';
import { replayLog } from '../../../src/runtime/log/replayer.ts';
import { World } from '../manager/world.ts';

const fifo = { eviction: { policy: 'fifo' } };
const cached = (world: World, ...ids: number[]): number[] =>
  ids.filter((id) => world.manager.matchLength(world.keys(id), 1) === 1);

it('the block that came first goes first, however often it was used since; by lru the one used longest ago', () => {
  for (const [config, left] of [
    [fifo, [2, 3, 4]],
    [{}, [1, 3, 4]],
  ] as const) {
    const world = new World({ hbm: { capacityBytes: 3 }, ...config });
    world.cache(1);
    world.cache(2);
    world.cache(3);
    world.cache(1); // a hit
    world.cache(4);
    expect(cached(world, 1, 2, 3, 4)).toEqual(left);
  }
});

it('a block that comes back is the newest again', () => {
  const world = new World({ hbm: { capacityBytes: 2 }, ...fifo });
  for (const id of [1, 2, 3, 1]) world.cache(id);
  world.cache(4);
  expect(cached(world, 1, 2, 3, 4)).toEqual([1, 4]);
});

it('a recorded run with it is the same again, to the byte', () => {
  const config: ManagerConfig = {
    unitBytes: [1],
    hbm: { capacityBytes: 3 },
    ddr: { capacityBytes: 4 },
    ...fifo,
  };
  let text = '';
  const writer = new LogWriter(config, { log: (piece) => (text += piece) });
  const world = new World(config);
  const recorded = new KVManager(config, writer);
  Object.assign(world, { manager: recorded });
  for (let i = 0; i < 60; i++) world.cache(1 + ((i * i) % 7), 10 + ((i * 3) % 5));
  writer.end();
  expect(text).toContain('"policy":"fifo"');
  expect(recorded.inspect.counters.evictions[0]).toBeGreaterThan(20);
  let again = '';
  const second = new LogWriter(config, { log: (piece) => (again += piece) });
  replayLog(text.trimEnd().split('\n'), 'fifo.log', second);
  second.end();
  expect(again).toBe(text);
});
