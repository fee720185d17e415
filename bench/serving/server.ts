/**
 * The example server's engine with the tiny model. Prints a table, and JSON with --json; the device is named,
 * and figures of a software device say nothing about a GPU's.
 *
 * - `decode`: sequences that decode at once, and the tokens a second that each of them gets.
 * - `first token`: the time from a prompt's arrival to its first token, when nothing of the prompt is cached,
 *   and when all whole blocks of it are found in HBM, in DDR or in files. Each case is run `--rounds` times
 *   (default 3), the median is shown, and what was found is checked.
 *
 *     node bench/serving/server.ts [--json] [--rounds N] [--longest TOKENS]
 */

import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { type Answer, Engine } from '../../examples/server/engine/index.ts';
import { tinyModelDirectory } from '../../examples/server/tinyModel/make.ts';
import { SeededRandom } from '../../src/testing/index.ts';
import { pushDown } from './pushDown.ts';

const { values } = parseArgs({
  options: {
    json: { type: 'boolean', default: false },
    rounds: { type: 'string', default: '3' },
    longest: { type: 'string', default: '2048' },
  },
});
const rounds = Number(values.rounds);
const longest = Number(values.longest);
if (!(rounds >= 1) || !(longest >= 64 && longest <= 8000)) {
  throw new RangeError('--rounds is 1 or more, --longest from 64 to 8000');
}

const random = new SeededRandom(1);
const randomTokens = (count: number): number[] => Array.from({ length: count }, () => 3 + random.below(509));
const greedy = { temperature: 0, topK: 0, topP: 1, seed: 0 };

const directory = mkdtempSync(join(tmpdir(), 'tierkv-bench-'));
const mib = 2 ** 20;
const engine = await Engine.open({
  directory: tinyModelDirectory,
  model: 'tiny@1',
  cache: {
    secretKey: new Uint8Array(32).fill(1),
    hbmBytes: 32 * mib,
    ddrBytes: 32 * mib,
    nvme: { dir: directory, bytes: 256 * mib },
    offloadThreshold: 1,
  },
});
const { kv } = engine.cache;

function ask(prompt: readonly number[], maxTokens: number): Answer {
  return engine.submit({ prompt, tenant: 'bench', maxTokens, sampling: greedy, stop: [], ignoreEnd: true });
}

const median = (times: readonly number[]): number => [...times].sort((a, b) => a - b)[times.length >> 1];

interface DecodeRow {
  readonly sequences: number;
  readonly tokensPerSecondEach: number;
}

async function decode(sequences: number): Promise<DecodeRow> {
  const tokens = 64;
  const rates: number[] = [];
  for (let round = 0; round < rounds; round++) {
    const answers = Array.from({ length: sequences }, () => ask(randomTokens(32), tokens));
    await Promise.all(answers.map((answer) => answer.text()));
    const slowest = Math.max(...answers.map(({ times }) => times.lastTokenMs - times.firstTokenMs));
    rates.push((tokens - 1) / (slowest / 1000));
  }
  return { sequences, tokensPerSecondEach: Math.round(median(rates)) };
}

interface FirstTokenRow {
  readonly promptTokens: number;
  readonly computedMs: number;
  readonly hbmMs: number;
  readonly ddrMs: number;
  readonly nvmeMs: number;
}

async function firstToken(promptTokens: number): Promise<FirstTokenRow> {
  const times: number[][] = [[], [], [], []];
  for (let round = 0; round < rounds; round++) {
    const prompt = randomTokens(promptTokens + 1);
    for (const [place, expected] of [0, promptTokens, promptTokens, promptTokens].entries()) {
      await pushDown(kv, Math.max(0, place - 1));
      const answer = ask(prompt, 1);
      await answer.text();
      if (answer.cachedTokens !== expected) {
        throw new Error(`${answer.cachedTokens} of ${expected} tokens were found (place ${place})`);
      }
      times[place].push(answer.times.firstTokenMs - answer.times.arrivedMs);
    }
  }
  const [computedMs, hbmMs, ddrMs, nvmeMs] = times.map((each) => Math.round(10 * median(each)) / 10);
  return { promptTokens, computedMs, hbmMs, ddrMs, nvmeMs };
}

await decode(2); // the first step of a kernel is slower
const decodes: DecodeRow[] = [];
for (const sequences of [1, 8, 32]) decodes.push(await decode(sequences));
const firstTokens: FirstTokenRow[] = [];
for (let length = 64; length <= longest; length *= 2) firstTokens.push(await firstToken(length));
const { adapter, software } = kv.describe().hbm;
await engine.close();
rmSync(directory, { recursive: true });

if (values.json) console.log(JSON.stringify({ adapter, software, decode: decodes, firstToken: firstTokens }));
else {
  console.log(`${adapter}${software ? ' (SOFTWARE device)' : ''}, tiny model, f32\n`);
  console.table(decodes);
  console.table(firstTokens);
}
