/**
 * Random requests on three settings of tiers, with jobs that end late, out of order or badly, aborts, stops
 * and both ways to publish. After every call scheduler and manager audit themselves; a log of the plan checks
 * what no audit of one moment can: each token of a request is computed in order, none is lost, and every
 * request ends.
 */

import { expect, it } from 'vitest';
import { Outcome } from '../../../src/runtime/index.ts';
import { SeededRandom } from '../../../src/testing/index.ts';
import { sized } from '../../sized.ts';
import { keysOf, World, type WorldConfig } from './world.ts';

const firstSeed = Number(process.env.TIERKV_SEED ?? 1);
const pick = <T>(random: SeededRandom, from: readonly T[]): T => from[random.below(from.length)];

function randomConfig(random: SeededRandom): WorldConfig {
  const hasTiers = random.chance(0.7);
  return {
    blockTokens: pick(random, [1, 4, 8]),
    hbmBlocks: 10 + random.below(12),
    manager: { owners: 4 },
    ...(hasTiers ? { ddrBlocks: 8 + random.below(40) } : {}),
    landingBlocks: pick(random, [0, 0, 4]),
    isInstant: !hasTiers && random.chance(0.3),
    maxBatchedTokens: 3 + random.below(40),
    maxSequences: 1 + random.below(7),
    longPrefillTokens: random.chance(0.5) ? 0 : 3 + random.below(12),
    queueOrder: pick(random, ['fcfs', 'tenant-turns', 'priority-fcfs', 'sjf', 'reverse-priority', 'ranked']),
    victimRule: pick(random, ['fcfs', 'priority', 'ranked']),
    preemption: pick(random, hasTiers ? ['recompute', 'offload', 'restart'] : ['recompute', 'restart']),
    publish: pick(random, ['whenComputed', 'whenPlanned']),
    prefixLoads: pick(random, ['awaited', 'overlapped']),
    sharedPrefixes: pick(random, ['awaited', 'awaited', 'computed']),
  };
}

/**
 * What the engine has seen of a request: how many of its tokens it has computed since its last preemption.
 */
interface Seen {
  readonly prompt: number;
  computed: number;
  preemptions: number;
}

class Campaign {
  readonly #random: SeededRandom;
  readonly #config: WorldConfig;
  readonly world: World;
  readonly seen: Map<string, Seen> = new Map();
  readonly aborted: Set<string> = new Set();
  added = 0;

  constructor(random: SeededRandom) {
    this.#random = random;
    this.#config = randomConfig(random);
    this.world = new World(this.#config);
  }

  add(): void {
    const random = this.#random;
    const blockTokens = this.#config.blockTokens ?? 4;
    const most = (this.#config.hbmBlocks ?? 16) * blockTokens;
    const prompt = 1 + random.below(Math.floor(most * 0.7));
    const output = 1 + random.below(Math.min(20, most - prompt));
    const family = 1 + random.below(3);
    const shared = random.below(Math.ceil(prompt / blockTokens) + 1);
    const blocks = Array.from({ length: Math.floor((prompt + output) / blockTokens) }, (_, i) =>
      i < shared ? family * 1000 + i : (this.added + 10) * 1000 + i,
    );
    const id = `r${this.added++}`;
    this.world.add(id, prompt, output, {
      keys: keysOf(blocks),
      priority: random.below(3),
      owner: random.below(3),
    });
    this.seen.set(id, { prompt, computed: 0, preemptions: 0 });
  }

  abort(): void {
    const id = pick(this.#random, [...this.seen.keys()]);
    if (this.world.scheduler.abort(id, this.world.now) === 'unknown') return;
    this.aborted.add(id);
    this.world.audit();
  }

  /** Anybody gets any rank, whether or not it waits. */
  rank(): void {
    const random = this.#random;
    const { queueOrder, victimRule } = this.#config;
    if (queueOrder !== 'ranked' && victimRule !== 'ranked') return;
    const { scheduler, now } = this.world;
    const alive = [...this.seen.keys()].filter((id) => scheduler.progress(id) !== undefined);
    const some = alive.filter(() => random.chance(0.3));
    scheduler.rerank(
      some.map((id) => ({ id, rank: random.below(9) / 4 - 1 })),
      now,
    );
    this.world.audit();
  }

  /** Ends some jobs in any order; a few fail. */
  endJobs(share: number): void {
    const random = this.#random;
    const { world } = this;
    world.issued();
    for (const job of [...world.jobs]) {
      if (random.chance(0.1)) world.now += random.below(200);
      if (!random.chance(share)) continue;
      const fails = job.kind !== 'seal' && random.chance(0.1);
      world.endJob(
        job,
        fails ? pick(random, [Outcome.CORRUPT, Outcome.TIMED_OUT, Outcome.MISSING]) : Outcome.LOADED,
      );
    }
  }

  step(isOpen: boolean): void {
    const random = this.#random;
    const { world } = this;
    if (random.chance(0.5)) this.rank();
    const short = world.scheduler.mayRunShort;
    const losses = world.scheduler.counters.preemptions;
    // now and then others wait for room too
    const planned = world.plan(random.chance(0.1) ? random.below(3) : undefined);
    const gaveWay = world.scheduler.counters.preemptions > losses;
    expect(short || !gaveWay, 'who gives way was told of before').toBe(true);
    const ids = Object.keys(planned);
    for (const id of ids) this.#check(id, planned[id]);
    if (ids.length === 0) return;
    if (isOpen && random.chance(0.2)) this.add();
    if (random.chance(0.05)) this.abort();
    if (random.chance(0.3)) this.endJobs(0.5);
    world.now += random.below(100);
    if (!random.chance(0.02)) {
      world.end();
      return;
    }
    world.scheduler.stepFailed(world.now);
    world.audit();
  }

  #check(id: string, [from, to]: [number, number]): void {
    const seen = this.seen.get(id) as Seen;
    const progress = this.world.scheduler.progress(id);
    expect(this.world.finished).not.toHaveProperty(id);
    if (progress !== undefined && progress.preemptions > seen.preemptions) {
      seen.preemptions = progress.preemptions;
    } else if (seen.computed > 0 && this.#config.prefixLoads === 'awaited') {
      expect(from, `${id} goes on where it was`).toBe(seen.computed);
    } else if (from !== seen.computed) {
      const { blockTokens = 4 } = this.#config;
      expect(from, `${id} goes on where it was, or behind blocks that have arrived`).toBeGreaterThan(
        seen.computed,
      );
      expect(from % blockTokens).toBe(0);
    }
    seen.computed = to;
  }
}

it(`every request ends, and each of its tokens is computed in order (seeds from ${firstSeed})`, () => {
  let preemptions = 0;
  let deferrals = 0;
  let yields = 0;
  let recomputed = 0;
  for (let seed = firstSeed; seed < firstSeed + sized(10, 25); seed++) {
    const random = new SeededRandom(seed);
    const campaign = new Campaign(random);
    const { world } = campaign;
    try {
      for (let i = 0; i < 150; i++) {
        if (i < 90 && random.chance(0.4)) campaign.add();
        if (random.chance(0.02) && campaign.added > 0) campaign.abort();
        campaign.step(i < 90);
        campaign.endJobs(0.5);
      }
      for (let i = 0; world.scheduler.size > 0; i++) {
        expect(i, 'steps without an end').toBeLessThan(5000);
        campaign.step(false);
        campaign.endJobs(0.7);
      }
    } catch (error) {
      throw new Error(`seed ${seed}`, { cause: error });
    }
    for (const [id, { prompt }] of campaign.seen) {
      if (campaign.aborted.has(id)) continue;
      expect(['length', 'capacity'], `seed ${seed}, ${id}`).toContain(world.finished[id]);
      expect(prompt).toBeGreaterThan(0);
    }
    world.settle();
    expect(world.manager.inspect.openSequences).toBe(0);
    expect(world.manager.inspect.usage(0).heldBytes).toBe(0);
    ({ preemptions, deferrals, yields } = addUp(world, preemptions, deferrals, yields));
    recomputed += world.scheduler.counters.recomputedBlocks;
  }
  for (const count of [preemptions, deferrals, yields, recomputed]) expect(count).toBeGreaterThan(20);
});

function addUp(
  world: World,
  preemptions: number,
  deferrals: number,
  yields: number,
): { preemptions: number; deferrals: number; yields: number } {
  const { counters } = world.scheduler;
  return {
    preemptions: preemptions + counters.preemptions,
    deferrals: deferrals + counters.deferrals,
    yields: yields + counters.yields,
  };
}
