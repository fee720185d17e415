/**
 * Ranks are an input: who joins the batch first and who gives way follow from them, a log holds them, and a
 * scheduler that is brought back from its state has them still.
 */

import { describe, expect, it } from 'vitest';
import { ManagerPort } from '../../../src/runtime/batching/kvPort.ts';
import type { ServingRequest } from '../../../src/runtime/batching/request.ts';
import { Scheduler } from '../../../src/runtime/batching/scheduler.ts';
import { KVManager, LogWriter, Outcome } from '../../../src/runtime/index.ts';
import { replayLog } from '../../../src/runtime/log/replayer.ts';
import { parseSchedulerInput } from '../../../src/runtime/log/schedulerLog.ts';
import { restoreState, saveState } from '../../../src/runtime/snapshot.ts';
import type { JobId } from '../../../src/runtime/tables/jobTable.ts';
import { SeededRandom } from '../../../src/testing/index.ts';
import { keysOf, World, type WorldConfig } from './world.ts';

const ranked = { queueOrder: 'ranked', victimRule: 'ranked' } as const;

function worldOf(ids: readonly string[], config: WorldConfig = {}, prompt = 4, output = 4): World {
  const world = new World({ ...ranked, ...config });
  for (const [arrivalUs, id] of ids.entries()) world.add(id, prompt, output, { arrivalUs });
  return world;
}

describe('waiting requests', () => {
  it('join by rank, and in order of arrival where ranks are equal', () => {
    const world = worldOf(['a', 'b', 'c', 'd'], { maxSequences: 1 }, 4, 1);
    world.scheduler.rerank(
      [
        { id: 'a', rank: 1.5 },
        { id: 'c', rank: -3 },
        { id: 'd', rank: -3 },
      ],
      0,
    );
    world.audit();
    world.finish();
    expect(Object.keys(world.finished)).toEqual(['c', 'd', 'b', 'a']);
  });

  it('keep their rank when a step has gone by', () => {
    const world = worldOf(['a', 'b', 'c'], { maxSequences: 1 }, 4, 2);
    world.scheduler.rerank([{ id: 'c', rank: -1 }], 0);
    world.step();
    world.scheduler.rerank([{ id: 'a', rank: 9 }], world.now);
    world.finish();
    expect(Object.keys(world.finished)).toEqual(['c', 'b', 'a']);
  });
});

describe('running requests', () => {
  it('give way by the highest rank, and the last of the batch where ranks are equal', () => {
    // three blocks of four tokens are full: every request needs a second one, and two have to go
    const givenWay = (ranks: Record<string, number>): string[] => {
      const world = worldOf(['a', 'b', 'c'], { hbmBlocks: 3 });
      world.step();
      world.scheduler.rerank(
        Object.entries(ranks).map(([id, rank]) => ({ id, rank })),
        world.now,
      );
      return world.scheduler.step(world.now).preempted.map(({ id }) => id);
    };
    expect(givenWay({})).toEqual(['c', 'b']);
    expect(givenWay({ a: 5, b: 0, c: 1 })).toEqual(['a', 'c']);
    expect(givenWay({ a: 0.5, b: 0.25 })).toEqual(['a', 'b']);
  });

  it('come back by the rank that they had in the queue', () => {
    const world = worldOf(['a', 'b', 'c'], { hbmBlocks: 2, maxSequences: 2 });
    world.scheduler.rerank([{ id: 'c', rank: 5 }], world.now);
    world.step();
    world.scheduler.rerank([{ id: 'a', rank: 9 }], world.now);
    expect(world.scheduler.step(world.now).preempted.map(({ id }) => id)).toEqual(['a']);
    expect(world.scheduler.waitingRequests().map(({ id }) => id)).toEqual(['a', 'c']);
  });

  it('are said to run short only when they may', () => {
    const roomy = worldOf(['a', 'b'], { hbmBlocks: 4 });
    expect(roomy.scheduler.mayRunShort, 'no request runs').toBe(false);
    roomy.step();
    expect(roomy.scheduler.mayRunShort, 'both need a block, and two are free').toBe(false);
    const tight = worldOf(['a', 'b'], { hbmBlocks: 3 });
    tight.step();
    expect(tight.scheduler.mayRunShort, 'both need a block, and one is free').toBe(true);
  });
});

describe('an invalid rank', () => {
  const refused = (
    config: WorldConfig,
    ranks: readonly { id: string; rank: number }[],
    message: RegExp,
  ): void => {
    const world = worldOf(['a', 'b'], config);
    expect(() => world.scheduler.rerank(ranks, 0)).toThrow(message);
    world.audit();
    world.finish();
    expect(Object.keys(world.finished), 'nothing was done').toEqual(['a', 'b']);
  };

  it.each([
    [
      [
        { id: 'b', rank: -1 },
        { id: 'x', rank: 0 },
      ],
      /^Request x is unknown\. Rank requests that have not ended/,
    ],
    [
      [
        { id: 'b', rank: -1 },
        { id: 'a', rank: NaN },
      ],
      /^The rank of request a is NaN\. Give it a finite number\.$/,
    ],
    [
      [
        { id: 'b', rank: -1 },
        { id: 'a', rank: Infinity },
      ],
      /^The rank of request a is Infinity\./,
    ],
    [
      [
        { id: 'b', rank: -1 },
        { id: 'b', rank: -2 },
      ],
      /^Request b has two ranks\. Give it one\.$/,
    ],
  ])('%o', (ranks, message) => refused({ maxSequences: 1 }, ranks, message));

  it('is refused where neither rule reads ranks', () => {
    const config = { queueOrder: 'sjf', victimRule: 'fcfs', maxSequences: 1 };
    refused(
      config,
      [{ id: 'b', rank: -1 }],
      /^queueOrder is 'sjf', and victimRule is 'fcfs': .* to 'ranked'\.$/,
    );
  });
});

describe('a log', () => {
  const managerConfig = {
    unitBytes: [1],
    hbm: { capacityBytes: 10 },
    ddr: { capacityBytes: 16 },
    maxJobs: 256,
  };

  /** Random requests with random ranks; jobs end between two calls of the scheduler. */
  function record(seed: number, log: (text: string) => void): Scheduler {
    const random = new SeededRandom(seed);
    const writer = new LogWriter(managerConfig, { log });
    const manager = new KVManager(managerConfig, writer);
    let nowUs = 0;
    const port = new ManagerPort(manager, { blockTokens: 4 });
    const config = { ...ranked, maxSequences: 5, maxBatchedTokens: 24, preemption: 'offload' };
    const head = { ...new Scheduler(config, port).config, blockTokens: 4, sizeClass: 0 };
    const scheduler = new Scheduler<ServingRequest>(config, port, writer.scheduler(head, 0));
    const alive: string[] = [];
    const jobs: JobId[] = [];
    for (let i = 0; i < 200; i++) {
      nowUs += random.below(50);
      if (random.chance(0.3)) {
        const id = `r${i}`;
        const shared = random.below(5);
        const keys = keysOf(
          [0, 1, 2, 3, 4, 5].map((block) => (block < shared ? 1 + block : 100 * (i + 1) + block)),
        );
        scheduler.add({ id, promptTokens: 1 + random.below(16), maxOutputTokens: 9, keys }, nowUs);
        alive.push(id);
      }
      const some = alive.filter((id) => scheduler.progress(id) !== undefined && random.chance(0.5));
      scheduler.rerank(
        some.map((id) => ({ id, rank: (random.below(2 ** 20) - 2 ** 19) / 2 ** random.below(40) })),
        nowUs,
      );
      if (scheduler.step(nowUs).tokens > 0) scheduler.stepEnded({}, nowUs);
      for (let job = manager.nextJob(); job !== 0; job = manager.nextJob()) jobs.push(job);
      for (const job of jobs.splice(0)) {
        if (random.chance(0.5)) manager.complete(job, Outcome.LOADED, nowUs);
        else jobs.push(job);
      }
      scheduler.checkIntegrity();
    }
    writer.end();
    return scheduler;
  }

  const firstSeed = Number(process.env.TIERKV_SEED ?? 1);

  it(`with ranks is replayed byte for byte (seeds from ${firstSeed})`, () => {
    for (let seed = firstSeed; seed < firstSeed + 10; seed++) {
      let text = '';
      const { counters } = record(seed, (piece) => (text += piece));
      expect(text, `seed ${seed}`).toMatch(/^\( \d+ rerank( \d+ -?[\d.e-]+)+ [0-9a-f]{8}$/m);
      expect(counters.preemptions, `seed ${seed}`).toBeGreaterThan(0);
      let again = '';
      const writer = new LogWriter(managerConfig, { log: (piece) => (again += piece) });
      replayLog(text.trimEnd().split('\n'), 'run.log', writer);
      writer.end();
      expect(again === text, `seed ${seed}: the replayed log is the recorded one`).toBe(true);
    }
  });
});

describe('a line of a log', () => {
  const parse = (line: string): readonly number[] =>
    parseSchedulerInput(line, (problem) => new Error(`the line ${problem}`)).args;

  it('has pairs of a number and a rank, to the last bit', () => {
    const ranks = [0.1 + 0.2, -1e300, 5e-324, 2 ** 53 + 2];
    expect(parse(`( 7 rerank ${ranks.map((rank, i) => `${i + 1} ${rank}`).join(' ')}`)).toEqual(
      ranks.flatMap((rank, i) => [i + 1, rank]),
    );
  });

  it.each(['', ' 1', ' 1 2 3', ' 1 x', ' 1.5 2', ' 1 NaN', ' 1 Infinity', ' 1 ', '  2'])(
    'with "%s" behind its name is refused',
    (rest) => expect(() => parse(`( 7 rerank${rest}`)).toThrow('the line is not a whole rerank'),
  );
});

it('a scheduler that is brought back has the ranks', () => {
  const make = (): World => worldOf(['a', 'b', 'c', 'd', 'e'], { hbmBlocks: 5, maxSequences: 3 });
  const first = make();
  first.scheduler.rerank(
    [
      { id: 'd', rank: -2 },
      { id: 'c', rank: -1 },
    ],
    0,
  );
  first.step();
  first.scheduler.rerank(
    [
      { id: 'd', rank: 7 },
      { id: 'e', rank: -1 },
    ],
    first.now,
  );

  const second = make();
  const byNumber = new Map(
    first.scheduler
      .waitingRequests()
      .concat(first.scheduler.runningRequests())
      .map((r, i) => [i, r]),
  );
  const nameOf = (request: ServingRequest): number =>
    [...byNumber].find(([, { id }]) => id === request.id)?.[0] ?? -1;
  const names = (world: World) => ({
    nameOf,
    requestOf: (name: number) => byNumber.get(name) as ServingRequest,
    sequenceOf: world.manager.inspect.sequence.bind(world.manager.inspect),
  });
  restoreState(second.manager, saveState(first.manager));
  const saved = saveState({ visitState: (visitor) => first.scheduler.visitState(visitor, names(first)) });
  restoreState({ visitState: (visitor) => second.scheduler.visitState(visitor, names(second)) }, saved);
  second.now = first.now;
  second.audit();
  for (const world of [first, second]) {
    expect(world.scheduler.step(world.now).preempted.map(({ id }) => id)[0]).toBe('d');
    world.end();
    world.finish();
  }
  expect(Object.keys(second.finished)).toEqual(Object.keys(first.finished));
});
