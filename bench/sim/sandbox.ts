/**
 * Decisions a second of one routing rule in each language, on 4 and 16 candidates, by the CPU time of this
 * thread: what the host writes, the call, and what it reads of the scores. The rule is `evolved` of
 * `examples/policies`. Beside them: the same rule in TypeScript, which nothing meters.
 *
 *   node bench/sim/sandbox.ts [--seconds 2] [--languages starlark,wasm,javascript]
 */

import fs from 'node:fs';
import path from 'node:path';
import { parseArgs } from 'node:util';
import { loadProgram } from '../../src/policy/sandbox/loadProgram.ts';
import type { PolicyFunction, PolicyLanguage, Signature } from '../../src/policy/sandbox/program.ts';

const { values } = parseArgs({
  options: {
    seconds: { type: 'string', default: '2' },
    languages: { type: 'string', default: 'starlark,wasm,javascript' },
  },
});
const folder = path.join(import.meta.dirname, '..', '..', 'examples', 'policies');
const files: Readonly<Record<PolicyLanguage, string>> = {
  starlark: path.join('starlark', 'evolved.star'),
  wasm: path.join('wasm', 'evolved.wasm'),
  javascript: path.join('javascript', 'evolved.js'),
};
const fields = {
  prefixAffinity: 'float',
  load: 'int',
  inFlight: 'int',
  kvUtilization: 'float',
} as const;
const score: Signature = {
  name: 'score',
  inputs: [
    { name: 'request', kind: 'record', fields: { promptTokens: 'int' } },
    { name: 'cluster', kind: 'record', fields: { minInFlight: 'int' } },
    { name: 'instances', kind: 'records', fields },
  ],
  decision: { kind: 'numbers', of: 'instances' },
};

type Decide = (turn: number, count: number) => number;

/** Writes candidates that change with each turn, and sums the scores so that no call can be left out. */
function deciding(policy: PolicyFunction): Decide {
  const [request, cluster, instances] = policy.inputs;
  return (turn, count) => {
    request.values[0] = turn & 1023;
    instances.resize(count);
    cluster.values[0] = fill(instances.values, turn, count);
    const scores = policy.call();
    let sum = 0;
    for (let i = 0; i < count; i++) sum += scores[i];
    return sum;
  };
}

/** @returns the fewest in flight */
function fill(into: Float64Array, turn: number, count: number): number {
  let least = Infinity;
  for (let i = 0; i < count; i++) {
    least = Math.min(least, (turn + i) & 7);
    into[4 * i] = ((turn + i) & 3) / 4;
    into[4 * i + 1] = (turn + 3 * i) & 15;
    into[4 * i + 2] = (turn + i) & 7;
    into[4 * i + 3] = ((turn + i) & 31) / 31;
  }
  return least;
}

const rows = new Float64Array(64);
const out = new Float64Array(16);

/** The rule without a sandbox. */
function native(turn: number, count: number): number {
  fill(rows, turn, count);
  let best = -1;
  let busy = 0;
  let least = Infinity;
  for (let i = 0; i < count; i++) {
    if (rows[4 * i] > best) {
      best = rows[4 * i];
      busy = rows[4 * i + 2];
    }
    least = Math.min(least, rows[4 * i + 2]);
  }
  let weight = 0.5;
  if (best > 0.1 && busy > least) weight = 0.5 * (1 / (1 + 0.6 * (busy - least)));
  for (let i = 0; i < count; i++) {
    let sum = rows[4 * i] * weight + (1 / (1 + rows[4 * i + 1])) * (1 - weight);
    const utilization = rows[4 * i + 3];
    if (utilization > 0.9) sum -= (0.5 * (utilization - 0.9)) / 0.1;
    out[i] = sum + 0.01 / (1 + rows[4 * i + 2]);
  }
  let sum = 0;
  for (let i = 0; i < count; i++) sum += out[i];
  return sum;
}

/** Millions of decisions a second of CPU time, the best of five parts of the time. */
function measure(decide: Decide, count: number): { rate: number; check: number } {
  let check = 0;
  for (let turn = 0; turn < 20_000; turn++) check += decide(turn, count);
  let rate = 0;
  for (let part = 0; part < 5; part++) {
    const begin = process.threadCpuUsage();
    let turns = 0;
    let spentUs = 0;
    while (spentUs < (Number(values.seconds) * 1e6) / 5) {
      for (let i = 0; i < 2_000; i++) decide(turns++, count);
      const { user, system } = process.threadCpuUsage(begin);
      spentUs = user + system;
    }
    rate = Math.max(rate, turns / spentUs);
  }
  return { rate, check };
}

console.log(`Node ${process.version}; millions of decisions a second of CPU time`);
const results = async (name: string, make: () => Promise<Decide>): Promise<void> => {
  const decide = await make();
  const four = measure(decide, 4);
  const sixteen = measure(decide, 16);
  console.log(
    `${name.padEnd(12)} 4: ${four.rate.toFixed(2)}  16: ${sixteen.rate.toFixed(2)}  (sum ${four.check.toFixed(6)})`,
  );
};
await results('no sandbox', async () => native);
for (const language of values.languages.split(',') as PolicyLanguage[]) {
  await results(language, async () => {
    const bytes = fs.readFileSync(path.join(folder, files[language]));
    const source = language === 'wasm' ? bytes.toString('base64') : bytes.toString('utf8');
    return deciding((await loadProgram(language, source)).instantiate().bind(score));
  });
}
