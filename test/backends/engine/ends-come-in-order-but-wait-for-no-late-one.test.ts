import { expect, it } from 'vitest';
import { CompletionQueue, type Ticket } from '../../../src/backends/engine/completionQueue.ts';
import { TransferEngine } from '../../../src/backends/engine/index.ts';
import { MemoryStore } from '../../../src/backends/memory/index.ts';
import {
  type Completion,
  type JobId,
  Outcome,
  poolShape,
  type TierStore,
  type Transfer,
} from '../../../src/runtime/index.ts';
import { StandInDevice, StandInDisk } from '../../../src/testing/faults/index.ts';

const end = (job: number): Completion => ({
  job: job as JobId,
  outcome: Outcome.LOADED,
  reason: '',
  digestLo: 0,
  digestHi: 0,
});

function tickets(queue: CompletionQueue, ...deadlinesUs: number[]): Ticket[] {
  return deadlinesUs.map((deadlineUs) => queue.ticket(deadlineUs));
}

const jobs = async (queue: CompletionQueue): Promise<number[]> => (await queue.take()).map(({ job }) => job);

it('ends are handed out in the order of submission, whatever order they came in', async () => {
  const queue = new CompletionQueue();
  const [first, second, third] = tickets(queue, 10, 10, 10) as [Ticket, Ticket, Ticket];
  queue.settle(third, end(3));
  queue.settle(second, end(2));
  const taken = jobs(queue);
  queue.settle(first, end(1));
  expect(await taken).toEqual([1, 2, 3]);
  expect(queue.waiting).toBe(0);
});

it('a job past its deadline holds up nobody, and its own end comes when it comes', async () => {
  const queue = new CompletionQueue();
  const [stuck, second, third] = tickets(queue, 10, 20, 20) as [Ticket, Ticket, Ticket];
  queue.settle(second, end(2));
  const taken = jobs(queue);
  expect(queue.nextDeadlineUs).toBe(10);
  queue.pass(15);
  expect(await taken).toEqual([2]);
  expect([queue.overdue, queue.waiting, queue.nextDeadlineUs]).toEqual([1, 2, 20]);
  queue.settle(stuck, end(1));
  expect(await jobs(queue)).toEqual([1]);
  queue.settle(third, end(3));
  expect(await jobs(queue)).toEqual([3]);
  expect([queue.overdue, queue.waiting]).toEqual([0, 0]);
});

it('a job that has ended by its deadline keeps its place', async () => {
  const queue = new CompletionQueue();
  const [first, second] = tickets(queue, 10, 10) as [Ticket, Ticket];
  queue.settle(second, end(2));
  queue.pass(15);
  expect(await jobs(queue)).toEqual([2]);
  queue.settle(first, end(1));
  expect(await jobs(queue)).toEqual([1]);
});

it('a store that rejects, against its contract, costs its own jobs and no others', async () => {
  const shape = poolShape(2, 64, [64]);
  const hbm = new StandInDevice(shape);
  const ddr = await MemoryStore.open(shape, { native: false });
  const broken: TierStore = Object.assign(new StandInDisk(shape), {
    write: () => Promise.reject(new Error('out of order')),
  });
  const engine = new TransferEngine({ hbm, ddr, nvme: broken }, null, () => 0);
  ddr.view(0, 0).fill(1);
  ddr.markWritten(0, 1);
  const move = (job: number, to: 0 | 2): Transfer => ({
    job: job as JobId,
    kind: 'move',
    source: { tier: 1, slot: 0, generation: 1 },
    target: { tier: to, slot: job, generation: 1 },
    sizeClass: 0,
    bytes: 64,
    key: new Uint32Array(4),
    digest: { lo: 0, hi: 0 },
    tokens: 16,
    priority: 0,
    deadlineUs: Number.POSITIVE_INFINITY,
  });
  engine.submit([move(0, 2), move(1, 0)]);
  const ends: Completion[] = [];
  while (engine.inFlight > 0) ends.push(...(await engine.take()));
  expect(ends.map(({ job, outcome }) => [job, outcome])).toEqual([
    [0, Outcome.REFUSED],
    [1, Outcome.CORRUPT],
  ]);
  expect(ends[0].reason).toContain('out of order');
  await ddr[Symbol.asyncDispose]();
});
