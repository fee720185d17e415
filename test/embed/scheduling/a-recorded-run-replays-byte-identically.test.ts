/**
 * What the scheduler of a real run was given and decided is in the runtime's log. The inputs alone, given to
 * a fresh manager and scheduler, give the same log byte for byte.
 */

import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, expect, it } from 'vitest';
import { defaultEviction, LogReader, LogWriter, resolvePolicy } from '../../../src/runtime/index.ts';
import { replayLog } from '../../../src/runtime/log/replayer.ts';
import type { ReplayOptions } from '../../../src/studies/replay/options.ts';
import { runReplay } from '../../../src/studies/replay/run.ts';
import { SeededRandom } from '../../../src/testing/index.ts';
import { sized } from '../../sized.ts';
import { blocks, openRuntime } from '../liveRuntime.ts';
import { ReadingEngine } from './readingEngine.ts';
import { serveAll } from './serving.ts';

const dir = mkdtempSync(join(tmpdir(), 'tierkv-scheduled-'));
afterAll(() => rmSync(dir, { recursive: true }));
const seed = Number(process.env.TIERKV_SEED ?? 1);

/** Random requests on three tiers that all overflow, with calls to the runtime itself in between. */
async function record(log: string, preemption: string, rule = 'fcfs', hasDevice = true): Promise<void> {
  const random = new SeededRandom(seed);
  const disk = mkdtempSync(join(dir, 'disk-'));
  await using kv = await openRuntime({
    ...(hasDevice
      ? { hbmBytes: blocks(18), ddrBytes: blocks(12) }
      : { hbmBytes: undefined, ddrBytes: blocks(12) }),
    nvme: { dir: disk, bytes: blocks(64) },
    log,
  });
  const scheduler = kv.scheduler({
    preemption,
    queueOrder: rule,
    victimRule: rule,
    maxBatchedTokens: 64,
    maxSequences: 6,
    longPrefillTokens: 40,
  });
  let added = 0;
  const ids: string[] = [];
  const add = (): void => {
    const from = 100 * random.below(4);
    const tokens = Array.from({ length: 10 + random.below(90) }, (_, i) => from + i);
    const id = `request "${added++}" of ${random.below(9)}`;
    scheduler.add({ id, tokens, maxTokens: 1 + random.below(40), tenant: `t${random.below(2)}` });
    ids.push(id);
    // without the first one the run would be over
    if (random.chance(0.1) && added > 1) scheduler.abort(id);
  };
  const rank = (): void => {
    const some = ids.filter((id) => scheduler.progress(id) !== undefined && random.chance(0.6));
    scheduler.rerank(some.map((id) => ({ id, rank: random.below(99) / 7 - 7 })));
  };
  add();
  await serveAll(kv, scheduler, new ReadingEngine(kv), (step) => {
    // how many run at a time, and so whether one gives way, follows from how fast blocks move here and now
    const isWanted = added < sized(28, 40) || (scheduler.counters.preemptions === 0 && added < 1000);
    if (isWanted && (scheduler.size < 2 || random.chance(0.4))) add();
    if (rule === 'ranked') rank();
    if (step === 30)
      kv.prefetch(
        Array.from({ length: 60 }, (_, i) => 100 + i),
        { tenant: 't0' },
      );
    if (step === 60 && hasDevice) kv.device.destroy();
  });
}

function replay(log: string): string {
  const lines = readFileSync(log, 'utf8').trimEnd().split('\n');
  const head = new LogReader(log);
  head.read(lines[0]);
  let again = '';
  const writer = new LogWriter(head.config, {
    log: (text) => {
      again += text;
    },
  });
  replayLog(lines, log, writer);
  writer.end();
  return again;
}

it.each([
  ['recompute', 'fcfs', 'a device'],
  ['offload', 'fcfs', 'a device'],
  ['offload', 'ranked', 'a device'],
  ['offload', 'fcfs', 'host memory'],
])('with preemption by %s, %s, on %s', async (preemption, rule, top) => {
  const hasDevice = top === 'a device';
  const log = join(dir, `${preemption}-${rule}-${hasDevice}.log`);
  await record(log, preemption, rule, hasDevice);
  const text = readFileSync(log, 'utf8');
  for (const word of [
    '( ',
    '| admit',
    '| preempt',
    '| defer',
    '| finish',
    ' keys ',
    ...(hasDevice ? [' stepFailed ', ' lose '] : []),
    ...(rule === 'ranked' ? [' rerank '] : []),
  ]) {
    expect(text.includes(word), `the run had ${word} (seed ${seed})`).toBe(true);
  }
  expect(replay(log) === text, `the replayed log is the recorded one (seed ${seed})`).toBe(true);

  const signal = new AbortController().signal;
  const options: ReplayOptions = {
    tracePath: log,
    inputsPath: log,
    logPath: `${log}.again`,
    tiers: [{ name: 'hbm', blocks: 1000 }],
    blockBytes: 16_384,
    blockTokens: 512,
    driver: 'modeled',
    eviction: resolvePolicy(defaultEviction),
    offloadThreshold: 1,
    linkBandwidthBytesPerS: 10e9,
    linkBaseLatencyUs: 10,
    skipBad: false,
  };
  await runReplay(options, { signal, notice: () => {}, progress: () => {} });
  expect(readFileSync(`${log}.again`, 'utf8') === text, 'a replay of the inputs makes it too').toBe(true);
});

it('a log whose scheduler was given something else does not replay to the same', async () => {
  const log = join(dir, 'other.log');
  await record(log, 'recompute');
  const lines = readFileSync(log, 'utf8').split('\n');
  const added = lines.findIndex((line) => line.startsWith('( ') && line.includes(' add '));
  lines[added] = lines[added].replace(
    / add (\d+) (\d+) /,
    (_, number, tokens) => ` add ${number} ${tokens}0 `,
  );
  writeFileSync(log, lines.join('\n'));
  expect(() => replay(log)).toThrow(/other\.log:\d+ does not follow from the lines before it/);
});
