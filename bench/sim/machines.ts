/**
 * Workers of a server against each other: the time of a sweep with one worker process and with two, each with one
 * thread, in turns. Prints the shortest of each, which other processes disturbed least, and their ratio: 0.5 where nothing
 * but the cases takes time and the machine has two cores to spare.
 *
 *     node bench/sim/machines.ts redis://127.0.0.1:6379 [--rounds 3] [--points 60] [--json]
 */

import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { openRunner } from '../../src/policy/workers/openRunner.ts';
import { hasRun } from '../../src/sim/build/point.ts';
import { pointsOf, runPoints } from '../../src/sim/build/sweep.ts';
import { readWords } from '../../src/sim/description/readers.ts';

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    rounds: { type: 'string', default: '3' },
    points: { type: 'string', default: '60' },
    json: { type: 'boolean', default: false },
  },
});
const [url] = positionals;
if (url === undefined) throw new Error('name the server, as redis://127.0.0.1:6379');
const points = Number(values.points);
const main = fileURLToPath(new URL('../../src/cli/main.ts', import.meta.url));

/** A worker that has said that it serves. */
async function worker(): Promise<ChildProcess> {
  const child = spawn(process.execPath, [main, 'worker', url, '--threads', '1'], {
    stdio: ['ignore', 'ignore', 'pipe'],
  });
  await once(child.stderr as NodeJS.ReadableStream, 'data');
  return child;
}

let nextSeed = Date.now();

/** Seconds of a sweep of new points, after one point a worker that loads what it needs. */
async function sweepS(workers: number): Promise<number> {
  const children = await Promise.all(Array.from({ length: workers }, worker));
  const runner = await openRunner(url, { workers: 1, wallMs: Infinity }, () => {});
  const run = async (count: number): Promise<void> => {
    const seeds = Array.from({ length: count }, () => nextSeed++).join(',');
    const words = '--model qwen3-14b --workload chatbot --rate 20 --num-requests 1000'.split(' ');
    const swept = await runPoints(pointsOf([`seed=${seeds}`], readWords(words)), runner);
    if (!swept.every(hasRun)) throw new Error('a point did not run');
  };
  try {
    await run(4 * workers);
    const beganMs = performance.now();
    await run(points);
    return (performance.now() - beganMs) / 1000;
  } finally {
    await runner.close();
    for (const child of children) child.kill('SIGINT');
    await Promise.all(children.map((child) => child.exitCode ?? once(child, 'exit')));
  }
}

const [one, two]: [number[], number[]] = [[], []];
for (let round = 0; round < Number(values.rounds); round++) {
  one.push(await sweepS(1));
  two.push(await sweepS(2));
}
const row = {
  points,
  oneS: Math.min(...one),
  twoS: Math.min(...two),
  ratio: Math.min(...two) / Math.min(...one),
};
if (values.json) console.log(JSON.stringify(row));
else {
  console.log(
    `${points} points: ${row.oneS.toFixed(2)} s with one worker, ${row.twoS.toFixed(2)} s with two, ratio ${row.ratio.toFixed(2)}`,
  );
}
