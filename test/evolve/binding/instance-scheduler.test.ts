/** The three functions of an instance scheduler: what they decide, in every language, and when they are asked. */

import fs from 'node:fs';
import path from 'node:path';
import { describe, expect, test } from 'vitest';
import { wasmFile } from '../../../examples/policies/compileWasm.ts';
import { bindBundle } from '../../../src/policy/evolve/binding/bind.ts';
import type { PolicyBundle } from '../../../src/policy/evolve/bundle/policyBundle.ts';
import { readBundle } from '../../../src/policy/evolve/bundle/readBundle.ts';
import { TraceRecorder } from '../../../src/policy/evolve/trace/recorder.ts';
import { newSimulation } from '../../../src/sim/description/deployment.ts';
import { SeededRandom } from '../../../src/testing/index.ts';
import { hasExtra } from '../../extras.ts';
import { randomSetup } from '../../sim/cluster/randomCluster.ts';
import { type SmallRequest, smallPool } from '../../sim/cluster/smallCluster.ts';
import { assemble, policyText } from '../../sim/sandbox/wasm/fromText.ts';
import { audited, named, orderOf, program, scheduledBy, smallSetup, tree } from './scheduledRun.ts';

const folder = path.join(import.meta.dirname, '../../../examples/policies');
const read = (file: string): string => fs.readFileSync(path.join(folder, file), 'utf8');

/** The earliest due first, the least progress gives way: one policy, four ways. */
const dueFirst: Readonly<Record<string, PolicyBundle>> = {
  parameters: readBundle(JSON.parse(read('bundles/dueFirst.json'))),
  starlark: program(read('starlark/dueFirst.star')),
  wasm: program(fs.readFileSync(wasmFile('dueFirst')).toString('base64'), 'wasm'),
  javascript: program(read('javascript/dueFirst.js'), 'javascript'),
};
const ways = Object.keys(dueFirst);

/**
 * One seat. While number 0 is computed, the others come: they are due at 1000, never, 800 and 1000 µs, so the
 * order is 3 (800), 1 and 4 (1000, by arrival), 2.
 */
const waiting: SmallRequest[] = [
  { atUs: 0, prompt: 64, output: 4 },
  { atUs: 100, prompt: 8, output: 1, ttftTargetUs: 900 },
  { atUs: 200, prompt: 4, output: 1 },
  { atUs: 300, prompt: 12, output: 1, ttftTargetUs: 500 },
  { atUs: 400, prompt: 4, output: 1, ttftTargetUs: 600 },
];

/**
 * Blocks of 4 tokens, 7 of them. The prompts fill 3, 1 and 2 blocks, so in the second step each of the three
 * needs one more and one is free. Computed are 12, 4 and 8 tokens: number 1 loses the least.
 */
const running: SmallRequest[] = [
  { atUs: 0, prompt: 12, output: 3 },
  { atUs: 0, prompt: 4, output: 3 },
  { atUs: 0, prompt: 8, output: 3 },
];

describe.each(ways)('dueFirst as %s', (way) => {
  test('lets those join first that are due first', async () => {
    expect((await orderOf(dueFirst[way], waiting, { maxSequences: 1 })).joined).toEqual([0, 3, 1, 4, 2]);
  });

  test('lets the one give way that has the fewest tokens', async () => {
    const { gaveWay } = await orderOf(dueFirst[way], running, { topBlocks: 7 });
    expect(gaveWay).toEqual([1]);
    expect((await orderOf(named('fcfs'), running, { topBlocks: 7 })).gaveWay, 'by itself').toEqual([2]);
  });
});

/** Bursts for few seats and blocks; two in three ask for a time. */
function pressing(random: SeededRandom): SmallRequest[] {
  let atUs = 0;
  return Array.from({ length: 50 }, () => {
    atUs += random.below(3) * random.below(2000);
    const prompt = 1 + random.below(40);
    const ttftTargetUs = random.below(3) * random.below(30_000);
    return { atUs, prompt, output: 1 + random.below(12), stream: random.below(6), ttftTargetUs };
  });
}

test('dueFirst decides alike in every way on random requests', async () => {
  const bound = await Promise.all(ways.map((way) => bindBundle(dueFirst[way])));
  const firstSeed = Number(process.env.TIERKV_SEED ?? 1);
  let preemptions = 0;
  for (let seed = firstSeed; seed < firstSeed + 6; seed++) {
    const requests = pressing(new SeededRandom(seed));
    const tiers = seed % 2 === 0 ? {} : { ddrBlocks: 20 };
    const [first, ...others] = bound.map((each) => {
      const recorder = new TraceRecorder('full');
      const pool = smallPool({ topBlocks: 20, maxSequences: 4, ...tiers });
      const simulation = newSimulation(scheduledBy(smallSetup(pool, requests, recorder), each));
      recorder.attach(simulation);
      audited(simulation);
      return recorder.records;
    });
    const due = first.flatMap((record) => (record.kind === 'batch' ? [record.rank] : []));
    expect(new Set(due).size, `seed ${seed}`).toBeGreaterThan(20);
    preemptions += first.filter(({ kind }) => kind === 'preemption').length;
    for (const other of others) expect(other, `seed ${seed}`).toEqual(first);
  }
  expect(preemptions).toBeGreaterThan(5);
});

describe('a decision tree takes one decision', () => {
  const short = { feature: 'request.promptTokens', comparison: '<=', value: 8 } as const;
  const rank = (value: number) => ({ action: 'rank', value });

  test.each([
    // 8 and 4 tokens before 12
    ['make_batch', [0, 1, 2, 4, 3]],
    ['on_arrival', [0, 1, 2, 4, 3]],
    // waiting requests go by the rank of their class
    ['select_preemption_victim', [0, 1, 2, 3, 4]],
  ])('%s', async (entrypoint, joined) => {
    const bundle = tree(entrypoint, { condition: short, trueChild: rank(0), falseChild: rank(1) });
    expect((await orderOf(bundle, waiting, { maxSequences: 1 })).joined).toEqual(joined);
  });

  test('select_preemption_victim: the longest gives way', async () => {
    const long = { feature: 'request.computedTokens', comparison: '>', value: 8 } as const;
    const bundle = tree('select_preemption_victim', {
      condition: long,
      trueChild: rank(1),
      falseChild: rank(0),
    });
    expect((await orderOf(bundle, running, { topBlocks: 7 })).gaveWay[0]).toBe(0);
  });

  test('and reads the instance', async () => {
    const full = { feature: 'instance.running', comparison: '>=', value: 1 } as const;
    const byLength = { condition: short, trueChild: rank(0), falseChild: rank(1) };
    const never = tree('make_batch', { condition: full, trueChild: rank(0), falseChild: byLength });
    const { joined } = await orderOf(never, waiting, { maxSequences: 1 });
    // no request runs when a seat is free and the queue is asked about
    expect(joined).toEqual([0, 1, 2, 4, 3]);
  });

  test('an entrypoint that the slot does not have is refused', () => {
    const bundle = tree('makeBatch', { action: 'rank', value: 0 });
    expect(() => readBundle(bundle)).toThrow(/^instanceScheduler\.entrypoint is not known .*make_batch/);
    const routing = { type: 'decisionTree', entrypoint: 'score', root: { action: 'lor' } };
    expect(() => readBundle({ routing })).toThrow(/routing\.entrypoint/);
  });
});

describe('one function does not need the others', () => {
  test('make_batch alone: running requests go by priority', async () => {
    const { scheduler } = await bindBundle(
      program('def make_batch(requests, instance):\n  return [0 for r in requests]'),
    );
    expect(scheduler).toEqual({ queueOrder: 'ranked', victimRule: 'priority' });
  });

  test('select_preemption_victim alone: waiting requests go by priority', async () => {
    const { scheduler } = await bindBundle(
      program('def select_preemption_victim(requests, instance):\n  return [0 for r in requests]'),
    );
    expect(scheduler).toEqual({ queueOrder: 'priority-fcfs', victimRule: 'ranked' });
  });

  test('make_batch sees the rank of on_arrival, and they share their state', async () => {
    const source = [
      'def on_arrival(request, state):',
      '    state["n"] = state.get("n", 0) + 1',
      '    return -state["n"]',
      'def make_batch(requests, instance, state):',
      '    if state["n"] < len(requests):',
      '        fail("the state is not shared")',
      '    return [r.rank for r in requests]',
    ].join('\n');
    // who came last goes first
    expect((await orderOf(program(source), waiting, { maxSequences: 1 })).joined).toEqual([0, 4, 3, 2, 1]);
  });

  test('an entrypoint takes that decision alone', async () => {
    const source = [
      'def make_batch(requests, instance):',
      '    return [-r.promptTokens for r in requests]',
      'def on_arrival(request):',
      '    return request.promptTokens',
    ].join('\n');
    const { instanceScheduler } = program(source);
    const bundle = { instanceScheduler: { ...instanceScheduler, entrypoint: 'on_arrival' } } as PolicyBundle;
    expect((await orderOf(bundle, waiting, { maxSequences: 1 })).joined).toEqual([0, 2, 4, 1, 3]);
  });
});

test('make_batch is asked when something changed, select_preemption_victim when blocks may run out', async () => {
  const source = [
    'def make_batch(requests, instance, state):',
    '    state["n"] = state.get("n", 0) + 1',
    '    if state["n"] == 3:',
    '        fail("asked three times")',
    '    return [0 for r in requests]',
    'def select_preemption_victim(requests, instance):',
    '    fail("asked of victims")',
    '    return [0 for r in requests]',
  ].join('\n');
  // two run and two wait: asked as they come, when two have joined, and 60 steps later when these have ended
  const four: SmallRequest[] = [0, 1, 2, 3].map(() => ({ atUs: 0, prompt: 4, output: 60 }));
  const roomy = orderOf(program(source), four, { maxSequences: 2, topBlocks: 64 });
  await expect(roomy).rejects.toThrow(/, line 4, at 61\d{3} µs: .*asked three times/);
  const tight = orderOf(program(source), running, { topBlocks: 7 });
  await expect(tight).rejects.toThrow(/, line 7, at \d+ µs: .*asked of victims/);
});

describe('an invalid decision names slot, time and remedy', () => {
  const batch = (returns: string): PolicyBundle =>
    program(`def make_batch(requests, instance):\n  return ${returns}`);
  test.each([
    [
      'a rank is missing',
      '[0 for r in requests][1:]',
      /^invalid_decision: instanceScheduler, at \d+ µs: make_batch returns \d+ numbers\. Return \d+, one a record$/,
    ],
    [
      'a request that is not there',
      '[0 for r in requests] + [1]',
      /make_batch returns \d+ numbers\. Return \d+, one a record$/,
    ],
    ['NaN', '[float("nan") for r in requests]', /make_batch returns NaN\. Guard divisions by 0$/],
    [
      'ids in place of ranks',
      '["request_1" for r in requests]',
      /make_batch returns a list with string\. Return ints and floats$/,
    ],
    ['one number', '0', /make_batch returns int\. Return a list of \d+ numbers$/],
  ])('%s', async (_, returns, message) => {
    await expect(orderOf(batch(returns), waiting)).rejects.toThrow(message);
  });

  test('of the victim rule too', async () => {
    const source = 'def select_preemption_victim(requests, instance):\n  return [0]';
    await expect(orderOf(program(source), running, { topBlocks: 7 })).rejects.toThrow(
      /^invalid_decision: instanceScheduler, at \d+ µs: select_preemption_victim returns 1 numbers\. Return 3, one a record$/,
    );
  });

  test.skipIf(!hasExtra('binaryen', 'a module that leaves a rank out'))(
    'a module that leaves a rank out',
    async () => {
      const first = '(f64.store (local.get $results) (f64.const 1))';
      const params = '(param $requests i32) (param $count i32) (param $instance i32) (param $results i32)';
      const bytes = assemble(policyText(`(func (export "make_batch") ${params} ${first})`));
      const source = Buffer.from(bytes).toString('base64');
      await expect(orderOf(program(source, 'wasm'), running)).rejects.toThrow(
        /make_batch gives record 1 of 3 NaN or nothing\. Store a number for each, and guard divisions by 0$/,
      );
    },
  );

  test('a program without any of the functions', async () => {
    await expect(bindBundle(program('x = 1'))).rejects.toThrow(
      /^contract: instanceScheduler: the program has no function on_arrival\(request\) or make_batch\(requests, instance\) or select_preemption_victim\(requests, instance\)\. Define it$/,
    );
  });
});

test('the trace says by which rank a request joined and gave way', async () => {
  const recorder = new TraceRecorder('decisions');
  const setup = smallSetup(smallPool({ topBlocks: 7 }), running, recorder);
  const simulation = newSimulation(scheduledBy(setup, await bindBundle(dueFirst.starlark)));
  recorder.attach(simulation);
  audited(simulation);
  const of = (kind: string) => recorder.records.filter((record) => record.kind === kind);
  expect(of('batch').map((record) => 'rank' in record && record.rank)).toEqual([1e300, 1e300, 1e300, 1e300]);
  expect(of('preemption')).toMatchObject([{ requestId: 'request_1', rank: -4 }]);
  const plain = new TraceRecorder('decisions');
  const unranked = newSimulation(smallSetup(smallPool({ topBlocks: 7 }), running, plain));
  plain.attach(unranked);
  audited(unranked);
  expect(plain.records.find(({ kind }) => kind === 'preemption')).toMatchObject({ rank: null });
});

test('random programs of ranks keep every audit', async () => {
  const firstSeed = Number(process.env.TIERKV_SEED ?? 1);
  const source = [
    'def make_batch(requests, instance, state):',
    '    state["x"] = (state.get("x", 1) * 16807) % 2147483647',
    '    return [(state["x"] * (i + 1)) % 7 - 3 for i in range(len(requests))]',
    'def select_preemption_victim(requests, instance, state):',
    '    state["x"] = (state.get("x", 1) * 16807) % 2147483647',
    '    return [(state["x"] * (i + 1)) % 5 for i in range(len(requests))]',
  ].join('\n');
  const bound = await bindBundle(program(source));
  for (let seed = firstSeed; seed < firstSeed + 10; seed++) {
    const setup = randomSetup(new SeededRandom(seed).below(1000));
    audited(newSimulation(scheduledBy(setup, bound)));
  }
});
