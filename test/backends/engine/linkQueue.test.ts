import { describe, expect, it } from 'vitest';
import { type LinkJob, type LinkLimits, LinkQueue } from '../../../src/backends/engine/linkQueue.ts';
import { type JobId, JobPriority, Tier, type Transfer } from '../../../src/runtime/index.ts';

const KIB = 1024;
const limits = { windowBytes: 64 * KIB, batchBytes: 16 * KIB };

function transfer(job: number, priority: JobPriority, bytes = 8 * KIB, deadlineUs = 1000): Transfer {
  return {
    job: job as JobId,
    kind: 'move',
    source: { tier: Tier.DDR, slot: job, generation: 1 },
    target: { tier: Tier.HBM, slot: job, generation: 1 },
    sizeClass: 0,
    bytes,
    key: new Uint32Array(4),
    digest: { lo: 0, hi: 0 },
    priority,
    deadlineUs,
  };
}

/** A queue whose batches end when the test says so. */
function world(own: LinkLimits = limits) {
  const state = {
    nowUs: 0,
    expired: [] as number[],
    begun: [] as number[][],
    ends: [] as (() => void)[],
  };
  const queue = new LinkQueue<LinkJob>(
    own,
    () => state.nowUs,
    (batch) => {
      state.begun.push(batch.map((job) => job.transfer.job));
      return new Promise((resolve) => state.ends.push(resolve));
    },
    (job) => state.expired.push(job.transfer.job),
  );
  /** Batches begin one after the other, in the microtasks that follow. */
  const push = async (...transfers: Transfer[]): Promise<void> => {
    for (const one of transfers) queue.push({ transfer: one });
    queue.pump();
    await new Promise((resolve) => setImmediate(resolve));
  };
  const end = async (batch: number): Promise<void> => {
    state.ends[batch]();
    await new Promise((resolve) => setImmediate(resolve));
  };
  return { queue, state, push, end };
}

describe('the queue of a link', () => {
  it('begins the most urgent first, in batches of bounded size', async () => {
    const { state, push } = world();
    await push(
      transfer(1, JobPriority.SCRUB),
      transfer(2, JobPriority.WRITE_THROUGH),
      transfer(3, JobPriority.DEMAND_LOAD),
      transfer(4, JobPriority.PREFETCH),
    );
    expect(state.begun).toEqual([
      [3, 4],
      [2, 1],
    ]);
  });

  it('bounds the bytes under way, keeps a quarter for demand loads, and goes on as batches end', async () => {
    const { queue, state, push, end } = world();
    await push(...Array.from({ length: 20 }, (_, i) => transfer(i, JobPriority.WRITE_THROUGH)));
    expect(queue.bytesUnderWay).toBe(48 * KIB);
    expect(queue.waiting).toBe(14);
    await push(
      transfer(100, JobPriority.DEMAND_LOAD),
      transfer(101, JobPriority.DEMAND_LOAD),
      transfer(102, JobPriority.DEMAND_LOAD),
    );
    expect(state.begun.at(-1)).toEqual([100, 101]);
    expect(queue.bytesUnderWay).toBe(64 * KIB);
    await end(0);
    expect(state.begun.at(-1)).toEqual([102]);
    expect(queue.bytesUnderWay).toBeLessThanOrEqual(64 * KIB);
    for (let i = 1; i < state.ends.length; i++) await end(i);
    expect(queue.waiting).toBe(0);
    expect(state.begun.flat().toSorted((a, b) => a - b)).toEqual([...Array(20).keys(), 100, 101, 102]);
    expect(queue.bytesUnderWay).toBe(0);
  });

  it('runs jobs larger than half the window two at a time', async () => {
    const { queue, state, push, end } = world();
    await push(
      transfer(1, JobPriority.PREFETCH, 100 * KIB),
      transfer(2, JobPriority.DEMAND_LOAD, 100 * KIB),
      transfer(3, JobPriority.PREFETCH, 40 * KIB),
      transfer(4, JobPriority.PREFETCH, 100 * KIB),
    );
    expect(state.begun).toEqual([[2], [1]]);
    await end(0);
    expect(state.begun).toEqual([[2], [1]]);
    await end(1);
    expect(state.begun).toEqual([[2], [1], [3], [4]]);
    await end(2);
    await end(3);
    expect(queue.bytesUnderWay).toBe(0);
  });

  it('never begins a job past its deadline, and is not blocked by a job that never ends', async () => {
    const { queue, state, push } = world();
    await push(
      ...Array.from({ length: 10 }, (_, i) => transfer(i, JobPriority.PREFETCH, 8 * KIB, i < 8 ? 10 : 50)),
    );
    expect(state.begun.flat()).toEqual([0, 1, 2, 3, 4, 5]);
    state.nowUs = 20;
    queue.expire(20);
    await new Promise((resolve) => setImmediate(resolve));
    expect(state.expired).toEqual([6, 7]);
    expect(state.begun.flat()).toEqual([0, 1, 2, 3, 4, 5, 8, 9]);
    expect(queue.bytesUnderWay).toBe(16 * KIB);
    state.ends[0](); // late: its room was given up long ago
    await new Promise((resolve) => setImmediate(resolve));
    expect(queue.bytesUnderWay).toBe(16 * KIB);
  });
});
