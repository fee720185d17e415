/**
 * However many requests one owner has waiting, another owner's next request waits for at most one of them, and its k-th for at most
 * k: counted in turns, never in time. Both queues for room go by this: the scheduler's under `tenant-turns`, and the one of `begin`.
 */

import { describe, expect, it } from 'vitest';
import { AdmissionQueue } from '../../../src/embed/context.ts';
import { type InTurn, OwnerTurns } from '../../../src/runtime/batching/ownerTurns.ts';
import { SeededRandom } from '../../../src/testing/index.ts';
import { keysOf, World } from './world.ts';

const firstSeed = Number(process.env.TIERKV_SEED ?? 1);

/** Counts turns: at its own turn, each request may have seen one turn of each other owner for itself and for each of its own before it. */
class TurnCount {
  most = 0;
  readonly #turns: Map<number, number> = new Map();
  readonly #waiting: Map<string, { owner: number; before: number; seen: Map<number, number> }> = new Map();

  added(id: string, owner: number): void {
    const before = [...this.#waiting.values()].filter((other) => other.owner === owner).length;
    this.#waiting.set(id, { owner, before, seen: new Map(this.#turns) });
  }

  gone(id: string): void {
    this.#waiting.delete(id);
  }

  hadTurn(id: string, hint: string): void {
    const request = this.#waiting.get(id);
    if (request === undefined) return; // it comes back, and had its turn before
    this.#waiting.delete(id);
    for (const [owner, turns] of this.#turns) {
      if (owner === request.owner) continue;
      const passed = turns - (request.seen.get(owner) ?? 0);
      this.most = Math.max(this.most, passed);
      expect(passed, `${hint}: turns of owner ${owner} before ${id}`).toBeLessThanOrEqual(request.before + 1);
    }
    this.#turns.set(request.owner, (this.#turns.get(request.owner) ?? 0) + 1);
  }
}

it(`in the scheduler, with aborts, preemption and loads (seeds from ${firstSeed})`, () => {
  let preempted = 0;
  let deferred = 0;
  for (let seed = firstSeed; seed < firstSeed + 2; seed++) {
    const random = new SeededRandom(seed);
    const world = new World({
      queueOrder: 'tenant-turns',
      hbmBlocks: 14,
      ddrBlocks: 40,
      isInstant: false,
      manager: { owners: 8 },
      sharedPrefixes: 'computed',
      maxBatchedTokens: 20,
      maxSequences: 1 + random.below(5),
      prefixLoads: random.chance(0.5) ? 'awaited' : 'overlapped',
    });
    const turns = new TurnCount();
    const alive: string[] = [];
    let number = 0;
    for (let i = 0; i < 100 || world.scheduler.size > 0; i++) {
      expect(i, `seed ${seed}: requests are left`).toBeLessThan(4000);
      for (let flood = i < 100 ? random.below(4) : 0; flood > 0; flood--) {
        const owner = random.chance(0.8) ? 1 : 2 + random.below(3);
        const id = `${number++}`;
        const blocks = Array.from({ length: 5 }, (_, b) =>
          random.chance(0.3) ? owner * 100 + b : number * 1000 + b,
        );
        world.add(id, 1 + random.below(24), 1 + random.below(12), { owner, keys: keysOf(blocks) });
        turns.added(id, owner);
        alive.push(id);
      }
      if (random.chance(0.2)) {
        const id = alive[random.below(alive.length)];
        const isWaiting = world.scheduler.waitingRequests().some((each) => each.id === id);
        world.scheduler.abort(id, world.now);
        if (isWaiting) turns.gone(id);
      }
      const plan = world.scheduler.step(world.now);
      world.audit();
      for (const { id } of plan.opened) turns.hadTurn(id, `seed ${seed}`);
      if (plan.tokens > 0) world.end();
      for (const job of world.issued()) if (random.chance(0.7)) world.endJob(job);
      if (i % 3 === 0) world.settle();
    }
    preempted += world.scheduler.counters.preemptions;
    deferred += world.scheduler.counters.deferrals;
    expect(turns.most).toBeGreaterThan(0);
  }
  expect(preempted).toBeGreaterThan(1);
  expect(deferred).toBeGreaterThan(1);
});

it('requests that wait for blocks which the batch computes hold up no other owner', () => {
  const world = new World({
    queueOrder: 'tenant-turns',
    maxBatchedTokens: 4,
    maxSequences: 4,
    manager: { owners: 8 },
  });
  for (let i = 0; i < 40; i++) world.add(`flood ${i}`, 13, 1, { owner: 1, keys: keysOf([1, 2, 3]) });
  world.step();
  world.add('other', 4, 1, { owner: 2, keys: keysOf([9]) });
  const opened: string[] = [];
  while (!opened.includes('other')) {
    opened.push(...world.scheduler.step(world.now).opened.map(({ id }) => id));
    world.end();
  }
  expect(opened.filter((id) => id !== 'other').length).toBeLessThanOrEqual(1);
});

it('a step that shares room with others opens no more requests than it may, and requests that hold blocks go on', () => {
  const world = new World({
    queueOrder: 'tenant-turns',
    maxBatchedTokens: 40,
    maxSequences: 8,
    manager: { owners: 8 },
  });
  for (let i = 0; i < 4; i++) world.add(`${i}`, 4, 6, { owner: i });
  for (const most of [0, 1, 0, 2]) {
    const { opened, heldUp } = world.scheduler.step(world.now, most);
    expect(opened.length).toBe(most);
    expect(heldUp === undefined).toBe(world.scheduler.waitingCount === 0);
    if (world.scheduler.isComputing) world.end();
  }
  expect(() => world.scheduler.step(world.now, -1)).toThrow(expect.objectContaining({ field: 'opensMost' }));
});

it(`in the queue of begin, with priorities, requests aside and requests that leave (seeds from ${firstSeed})`, async () => {
  for (let seed = firstSeed; seed < firstSeed + 8; seed++) {
    const random = new SeededRandom(seed);
    const queue = new AdmissionQueue();
    const turns = new TurnCount();
    const waiting: { id: string; ticket: ReturnType<AdmissionQueue['join']> }[] = [];
    let number = 0;
    for (let i = 0; i < 200; i++) {
      for (let flood = random.below(3); flood > 0; flood--) {
        const owner = random.chance(0.8) ? 1 : 2 + random.below(3);
        const id = `${number++}`;
        waiting.push({ id, ticket: queue.join(owner, 0) });
        turns.added(id, owner);
      }
      if (waiting.length > 0 && random.chance(0.2)) {
        const [{ id, ticket }] = waiting.splice(random.below(waiting.length), 1);
        queue.leave(ticket);
        turns.gone(id);
      }
      if (waiting.length === 0) continue;
      const firsts = waiting.filter(({ ticket }) => queue.isFirst(ticket));
      expect(firsts.length, `seed ${seed}: one is first`).toBe(1);
      const [first] = firsts;
      queue.take(first.ticket);
      waiting.splice(waiting.indexOf(first), 1);
      turns.hadTurn(first.id, `seed ${seed}`);
    }
    expect(turns.most).toBeGreaterThan(0);
    expect(queue.waiting).toBe(waiting.length);
  }
});

describe('the queue of begin', () => {
  it('goes by priority before turns, lets others pass who stepped aside, and brings back first who lost its room', async () => {
    const queue = new AdmissionQueue();
    const flood = [queue.join(1, 0), queue.join(1, 0)];
    const other = queue.join(2, 0);
    const urgent = queue.join(1, -1);
    const back = queue.join(1, 0, true);
    const order: object[] = [];
    const serve = (): void => {
      const first = [...flood, other, urgent, back].find((ticket) => queue.isFirst(ticket));
      if (first === undefined) return;
      order.push(first);
      queue.take(first);
    };
    const { promise, resolve } = Promise.withResolvers<void>();
    const aside = queue.aside(urgent, () => promise);
    serve();
    resolve();
    await aside;
    for (let i = 0; i < 4; i++) serve();
    // the turn of `urgent` was one of its tenant's, so the other tenant goes next
    expect(order.map((ticket) => [back, urgent, other, ...flood].indexOf(ticket as never))).toEqual([
      0, 1, 2, 3, 4,
    ]);
    expect(queue.waiting).toBe(0);
  });
});

it('an owner that did not wait makes no turns up', () => {
  const turns = new OwnerTurns<InTurn>();
  let ticket = 0;
  const wait = (owner: number): void => turns.add({ owner, ticket: ++ticket });
  const take = (): number => {
    const order = turns.toArray();
    const first = turns.first() as InTurn;
    expect(order[0]).toBe(first);
    turns.remove(first, true);
    turns.checkIntegrity();
    return first.owner;
  };
  for (let i = 0; i < 6; i++) wait(1);
  expect([take(), take(), take()]).toEqual([1, 1, 1]);
  for (let i = 0; i < 3; i++) wait(2);
  expect([take(), take(), take(), take(), take(), take()]).toEqual([1, 2, 1, 2, 1, 2]);
  expect(turns.size).toBe(0);
});
