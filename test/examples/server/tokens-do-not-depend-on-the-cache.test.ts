/**
 * Bit-identical: an engine whose HBM is so small that most blocks lie in DDR and in files gives, to 64 streams
 * at once, the tokens and the logits of an engine with everything in HBM, and of the model alone.
 */

import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import {
  type Answer,
  type CacheConfig,
  Engine,
  type EngineOptions,
  type GenerationRequest,
} from '../../../examples/server/engine/index.ts';
import { tinyModelDirectory } from '../../../examples/server/tinyModel/make.ts';
import { LogReader, LogWriter } from '../../../src/runtime/index.ts';
import { replayLog } from '../../../src/runtime/log/replayer.ts';
import { FaultDevice, FaultHost, FaultPlan, SeededRandom, testSeed } from '../../../src/testing/index.ts';
import { sharedDevice } from '../../sharedDevice.ts';
import { sized } from '../../sized.ts';
import { digestOf, PlainRun, type Traced } from './model/plainRun.ts';
import { slowed } from './slowedDevice.ts';
import { answersOf, expectSame, randomTokens, requestOf } from './streams.ts';

const blockBytes = 3 * 2 * 2 * 16 * 32 * 4;
const streams = sized(16, 64);
const seed = testSeed(29);
const random = new SeededRandom(seed);
const secretKey = new Uint8Array(32).fill(9);

let plain: PlainRun;
/** The second turn of each conversation goes on from the first one's answer. */
let turns: GenerationRequest[][];
let expected: Traced[][];
const directories: string[] = [];

beforeAll(async () => {
  plain = await PlainRun.open();
  const prefixes = Array.from({ length: 8 }, (_, i) => randomTokens(random, 20 + 4 * i));
  const first = Array.from({ length: streams }, (_, i) =>
    requestOf([...prefixes[i % prefixes.length], ...randomTokens(random, 1 + random.below(16))], i),
  );
  const firstAnswers = await answersOf(plain, first);
  const second = first.map((request, i) =>
    requestOf(
      [...request.prompt, ...firstAnswers[i].tokens, ...randomTokens(random, 1 + random.below(12))],
      100 + i,
    ),
  );
  turns = [first, second];
  expected = [firstAnswers, await answersOf(plain, second)];
}, 600_000);
afterAll(async () => {
  await plain[Symbol.asyncDispose]();
  for (const directory of directories) rmSync(directory, { recursive: true });
});

interface Served {
  readonly engine: Engine;
  /** All requests at once. */
  serve(requests: readonly GenerationRequest[]): Promise<Traced[]>;
}

async function openEngine(
  cache: Partial<CacheConfig>,
  options: Partial<EngineOptions> = {},
): Promise<Served> {
  const traces = new Map<string, string[]>();
  const errors: unknown[] = [];
  const engine = await Engine.open({
    directory: tinyModelDirectory,
    model: 'tiny@1',
    cache: { secretKey, hbmBytes: 2000 * blockBytes, offloadThreshold: 1, device: sharedDevice, ...cache },
    stepTokens: 96,
    maxSequences: 24,
    prefixLoads: 'awaited',
    onLogits: (id, index, logits) => {
      const trace = traces.get(id) ?? [];
      trace[index] = digestOf(logits);
      traces.set(id, trace);
    },
    onError: (error) => errors.push(error),
    ...options,
  });
  const serve = async (requests: readonly GenerationRequest[]): Promise<Traced[]> => {
    const answers: Answer[] = requests.map((request) => engine.submit(request));
    await Promise.all(answers.map((answer) => answer.text()));
    expect(errors).toEqual([]);
    return answers.map((answer) => ({
      tokens: [...answer.tokens],
      logits: traces.get(answer.id) ?? [],
    }));
  };
  return { engine, serve };
}

function directory(): string {
  const made = mkdtempSync(join(tmpdir(), 'tierkv-engine-'));
  directories.push(made);
  return made;
}

describe('tokens and logits are bit-identical to a run without any cache', { timeout: 300_000 }, () => {
  it('with everything in HBM', async () => {
    const { engine, serve } = await openEngine({});
    for (const [turn, requests] of turns.entries()) {
      expectSame(await serve(requests), expected[turn], `turn ${turn}, seed ${seed}`);
    }
    expect(engine.counters.cachedTokens).toBeGreaterThan(sized(200, 1000));
    await engine.close();
  });

  it('with most blocks in DDR and in files, preemption, and a restart', async () => {
    const small: Partial<CacheConfig> = {
      hbmBytes: sized(20, 26) * blockBytes,
      ddrBytes: sized(24, 40) * blockBytes,
      nvme: { dir: directory(), bytes: 1200 * blockBytes },
    };
    const before = await openEngine(small);
    expectSame(await before.serve(turns[0]), expected[0], `turn 0, seed ${seed}`);
    expectSame(await before.serve(turns[1]), expected[1], `turn 1, seed ${seed}`);
    const { counters } = before.engine.cache.kv.metrics();
    expect(before.engine.cache.scheduler.counters.preemptions).toBeGreaterThan(0);
    expect(counters['reloads.ddr']).toBeGreaterThan(0);
    expect(counters['reloads.nvme']).toBeGreaterThan(0);
    before.engine.cache.scheduler.checkIntegrity();
    expect(await before.engine.close()).toBeGreaterThan(0);

    const after = await openEngine(small);
    expectSame(await after.serve(turns[1]), expected[1], `turn 1 after a restart, seed ${seed}`);
    expect(after.engine.cache.kv.metrics().counters['reloads.nvme']).toBeGreaterThan(0);
    expect(after.engine.counters.cachedTokens).toBeGreaterThan(sized(200, 1000));
    await after.engine.close();
  });

  it('with loads that fail, and bytes that are damaged on their way', async () => {
    const rates = { flipped: 0.1, short: 0.05, outOfMemory: 0.05 } as const;
    const plan = new FaultPlan({ seed, rates });
    let fired = 0;
    const surroundings = {
      plan,
      wait: async (): Promise<void> => {},
      onFault: (): void => {
        fired++;
      },
    };
    const { engine, serve } = await openEngine({
      hbmBytes: sized(28, 40) * blockBytes,
      ddrBytes: sized(28, 40) * blockBytes,
      nvme: { dir: directory(), bytes: 1200 * blockBytes },
      wrapStores: ({ hbm, ddr, nvme }) => ({
        hbm: new FaultDevice(hbm!, surroundings),
        ...(ddr === undefined ? {} : { ddr: new FaultHost(ddr, surroundings) }),
        ...(nvme === undefined ? {} : { nvme }),
      }),
    });
    const corrupt = (): number => engine.cache.kv.metrics().counters['loadsFailed.corrupt'];
    // which of the transfers that fail are loads follows from what was where, here and now
    for (let round = 0; round === 0 || (round < 8 && corrupt() === 0); round++) {
      for (const [turn, requests] of turns.entries()) {
        expectSame(await serve(requests), expected[turn], `turn ${turn}, round ${round}, seed ${seed}`);
      }
    }
    expect(fired).toBeGreaterThan(10);
    expect(corrupt()).toBeGreaterThan(0);
    // the faults go on while it saves: what could not be read is told
    await engine.close().catch((error) => expect(error).toMatchObject({ code: 'TKV_IO' }));
  });

  it('while prompts are computed from the front and loaded from the back, also where loads fail', async () => {
    const plan = new FaultPlan({ seed, rates: { flipped: 0.1 } });
    const surroundings = { plan, wait: async (): Promise<void> => {}, onFault: (): void => {} };
    const { engine, serve } = await openEngine(
      {
        hbmBytes: sized(40, 60) * blockBytes,
        ddrBytes: 1200 * blockBytes,
        wrapStores: ({ hbm, ddr }) => ({
          hbm: slowed(new FaultDevice(hbm!, surroundings), 2),
          ...(ddr === undefined ? {} : { ddr }),
        }),
      },
      { prefixLoads: 'overlapped' },
    );
    const toSee = ['reloads.ddr', 'recomputed', 'loadsFailed.corrupt'];
    const unseen = (): string[] => toSee.filter((name) => !(engine.cache.kv.metrics().counters[name] > 0));
    // how much is loaded and how much computed follows from how fast both are here and now
    for (let round = 0; round < 2 || (round < 8 && unseen().length > 0); round++) {
      for (const [turn, requests] of turns.entries()) {
        expectSame(await serve(requests), expected[turn], `turn ${turn}, round ${round}, seed ${seed}`);
      }
    }
    expect(unseen(), 'blocks from the back, blocks from the front, loads that fail').toEqual([]);
    engine.cache.scheduler.checkIntegrity();
    await engine.close();
  });

  it('when the device is lost in the middle', async () => {
    const { engine, serve } = await openEngine({
      hbmBytes: sized(28, 40) * blockBytes,
      ddrBytes: 400 * blockBytes,
    });
    const answers = serve(turns[0]);
    while (engine.counters.generationTokens < 20) await new Promise((resolve) => setTimeout(resolve, 2));
    engine.cache.kv.device.destroy();
    expectSame(await answers, expected[0], `turn 0, seed ${seed}`);
    expect(engine.cache.kv.devicesLost).toBe(1);
    await engine.close();
  });
});

describe('the decision log of a run', () => {
  it('replays to the same log, byte for byte, and not when an input is another one', async () => {
    const log = join(directory(), 'kv.log');
    const { engine, serve } = await openEngine(
      {
        hbmBytes: 26 * blockBytes,
        ddrBytes: 40 * blockBytes,
        nvme: { dir: directory(), bytes: 400 * blockBytes },
        log,
      },
      { prefixLoads: 'overlapped' },
    );
    await serve(turns[0].slice(0, 32));
    await engine.close();
    const text = readFileSync(log, 'utf8');
    expect(replayed(log, text.trimEnd().split('\n')) === text).toBe(true);
    const other = text.trimEnd().split('\n');
    const added = other.findIndex((line) => / add \d+ \d+ /.test(line));
    other[added] = other[added].replace(/ add (\d+) (\d+) /, ' add $1 $20 ');
    expect(() => replayed(log, other)).toThrow(/does not follow/);
  });
});

function replayed(log: string, lines: readonly string[]): string {
  const head = new LogReader(log);
  head.read(lines[0]);
  let again = '';
  const take = (text: string): void => {
    again += text;
  };
  const writer = new LogWriter(head.config, { log: take });
  replayLog(lines, log, writer);
  writer.end();
  return again;
}

describe('the comparison', () => {
  it('finds a run whose KV was changed behind the engine: one block of other bytes', async () => {
    const { engine, serve } = await openEngine({});
    await serve(turns[0]);
    const { device, stores } = engine.cache.kv;
    const ones = new Float32Array((200 * blockBytes) / 4).fill(1);
    device.queue.writeBuffer(stores.hbm.slabs[0], 0, ones);
    const found = await serve(turns[1]);
    expect(found).not.toEqual(expected[1]);
    await engine.close();
  });
});
