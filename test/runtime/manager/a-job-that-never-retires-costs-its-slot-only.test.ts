import { expect, it } from 'vitest';
import { Entry, Outcome } from '../../../src/runtime/index.ts';
import { World } from './world.ts';

/** Block 1 lies in DDR, and a load of it to the only slot of HBM is in the driver's hands. */
function stuckLoad(cancelled: boolean): World {
  const world = new World({ hbm: { capacityBytes: 1 }, ddr: { capacityBytes: 4 } });
  world.cache(1);
  world.manager.evict(0, 1, 0);
  world.settle();
  const sequence = world.manager.open(world.keys(1), 1, 0);
  world.manager.load(sequence, 0);
  const [load] = world.issued();
  world.manager.setDeadline(load.job, 50);
  if (cancelled) world.manager.cancel(sequence, 10);
  else world.manager.release(sequence, 10);
  return world;
}

it.each([
  ['is detached by its deadline', false],
  ['was cancelled before its deadline', true],
])('a job that %s and never retires does not keep others waiting for its slot', (_, cancelled) => {
  const world = stuckLoad(cancelled);
  const other = world.manager.open(world.keys(7), 1, 20);
  if (cancelled) {
    expect(world.manager.allocate(other, 0, 1, 20)).toBe(true);
    expect(other.state[0]).toBe(Entry.WAITING);
  }
  world.manager.tick(60);
  world.manager.checkIntegrity();
  expect(world.manager.inspect.jobsOverdue).toBe(1);
  if (!cancelled) world.manager.allocate(other, 0, 1, 60);
  expect(other.pending).toBe(0);
  expect(other.state[0]).toBe(Entry.FAILED);
  expect(other.outcome[0]).toBe(Outcome.REFUSED);
  expect(world.manager.inspect.usage(0).slots.draining).toBe(1);

  world.now = 70;
  world.end(world.jobs[0]);
  expect(world.manager.inspect.jobsOverdue).toBe(0);
  expect(world.manager.inspect.usage(0).slots).toMatchObject({ draining: 0, free: 1 });
  expect(world.manager.allocate(other, 0, 1, 70)).toBe(true);
  expect(other.state[0]).toBe(Entry.OPEN);
});
