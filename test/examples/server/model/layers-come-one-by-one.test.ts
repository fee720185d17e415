/**
 * Bit-identical at the granularity of layers: 64 streams whose layers are units of their own, each of which is
 * loaded, damaged, lost and found by itself, give the tokens and the logits of the model alone.
 */

import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { GenerationRequest } from '../../../../examples/server/engine/index.ts';
import { FaultDevice, FaultHost, FaultPlan, SeededRandom, testSeed } from '../../../../src/testing/index.ts';
import { sized } from '../../../sized.ts';
import { slowed } from '../slowedDevice.ts';
import { answersOf, expectSame, randomTokens, requestOf } from '../streams.ts';
import { LayeredRun } from './layeredRun.ts';
import { PlainRun, type Traced } from './plainRun.ts';

const unitBytes = 2 * 2 * 16 * 32 * 4;
const layers = 3;
const blocks = (count: number): number => count * layers * unitBytes;
const streams = sized(18, 64);
const seed = testSeed(31);
const random = new SeededRandom(seed);
const secretKey = new Uint8Array(32).fill(9);

let requests: GenerationRequest[];
let expected: Traced[];
const directory = mkdtempSync(join(tmpdir(), 'tierkv-layers-'));

beforeAll(async () => {
  await using plain = await PlainRun.open();
  const prefixes = Array.from({ length: 8 }, (_, i) => randomTokens(random, 34 + 5 * i));
  requests = Array.from({ length: streams }, (_, i) =>
    requestOf([...prefixes[i % prefixes.length], ...randomTokens(random, 1 + random.below(16))], i),
  );
  expected = await answersOf(plain, requests);
}, 600_000);
afterAll(() => rmSync(directory, { recursive: true }));

/** All at once; every fifth goes on in a fork. */
function serve(run: LayeredRun): Promise<Traced[]> {
  return Promise.all(requests.map((request, i) => run.answer(request, i % 5 === 0 ? 2 : 0)));
}

describe('layers that come one by one: tokens and logits are bit-identical to the model alone', {
  timeout: 300_000,
}, () => {
  it('with most of them in DDR and in files, forks, and a restart', async () => {
    const small = {
      secretKey,
      hbmBytes: blocks(sized(20, 26)),
      ddrBytes: blocks(20),
      nvme: { dir: directory, bytes: blocks(1200) },
    };
    const before = await LayeredRun.open({
      ...small,
      wrapStores: ({ hbm, ...others }) => ({ ...others, hbm: slowed(hbm!, 5) }),
    });
    expectSame(await serve(before), expected, `the first time, seed ${seed}`);
    const isUnseen = (name: string): boolean => before.kv.metrics().counters[name] === 0;
    const unseen = (): string[] => ['reloads.ddr', 'reloads.nvme'].filter(isUnseen);
    // from which tier a layer comes follows from what was where, here and now
    for (let round = 1; round === 1 || (round < 8 && unseen().length > 0); round++) {
      expectSame(await serve(before), expected, `once more, round ${round}, seed ${seed}`);
    }
    expect(unseen()).toEqual([]);
    expect(before.counts.forks).toBeGreaterThan(0);
    expect(before.counts.overlapped, 'a layer computed while the next was on its way').toBeGreaterThan(0);
    before.kv.manager.checkIntegrity();
    expect(await before.close()).toBeGreaterThan(0);

    await using after = await LayeredRun.open(small);
    expectSame(await serve(after), expected, `after a restart, seed ${seed}`);
    expect(after.kv.metrics().counters['reloads.nvme']).toBeGreaterThan(0);
  });

  it('with single layers that fail to come or are damaged on their way', async () => {
    const plan = new FaultPlan({ seed, rates: { flipped: 0.1, short: 0.05, outOfMemory: 0.05 } });
    const surroundings = { plan, wait: async (): Promise<void> => {}, onFault: (): void => {} };
    await using run = await LayeredRun.open({
      secretKey,
      hbmBytes: blocks(sized(24, 40)),
      ddrBytes: blocks(400),
      wrapStores: ({ hbm, ddr }) => ({
        hbm: new FaultDevice(hbm!, surroundings),
        ...(ddr === undefined ? {} : { ddr: new FaultHost(ddr, surroundings) }),
      }),
    });
    expectSame(await serve(run), expected, `the first time, seed ${seed}`);
    expectSame(await serve(run), expected, `the second time, seed ${seed}`);
    const { counters } = run.kv.metrics();
    expect(counters['loadsFailed.corrupt']).toBeGreaterThan(0);
    expect(counters['reloads.ddr']).toBeGreaterThan(0);
    expect(run.counts.interrupted, 'a prefill whose layer failed to come').toBeGreaterThan(0);
  });
});
