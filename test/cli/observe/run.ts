/**
 * From a running server to a calibrated model, end to end: `npm run campaign -- observed --rate 0.5 --requests 60`. The
 * example server is started, driven by `tierkv observe`, its first half fitted to by `tierkv latency fit`, the second half
 * judged by `tierkv compare`. It fails where the means that were held out are off by more than 10 % (TPOT) or 20 % (TTFT).
 *
 * Run it on a quiet machine, at a rate that leaves the server idle at times: a machine that does other work beside it is not
 * one server but many, and a fit to it is refused, or judged badly, with reason.
 */

import { spawn } from 'node:child_process';
import { once } from 'node:events';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { parseArgs } from 'node:util';

const { values } = parseArgs({
  options: {
    rate: { type: 'string', default: '0.5' },
    requests: { type: 'string', default: '60' },
    seed: { type: 'string', default: '1' },
    out: { type: 'string' },
  },
});
const [rate, count] = [Number(values.rate), Number(values.requests)];
if (!(rate > 0) || !(count >= 20)) throw new RangeError('--rate must be above 0, and --requests 20 or more');
/** By how much held-out means may be off, in percent. */
const most: Readonly<Record<string, number>> = { TPOT: 10, TTFT: 20 };
const sequences = 16;
/** Tokens of a step of the example server. */
const batchedTokens = 256;
/** Its KV: more than these requests ever need. */
const hbmMib = 64;

const root = path.join(import.meta.dirname, '../../..');
const folder = values.out ?? fs.mkdtempSync(path.join(os.tmpdir(), 'tierkv-observed-'));
fs.mkdirSync(folder, { recursive: true });
const at = (name: string): string => path.join(folder, name);
const config = path.join(root, 'examples/server/tinyModel/files/config.json');
const vocabulary = (JSON.parse(fs.readFileSync(config, 'utf8')) as { vocab_size: number }).vocab_size;

fs.writeFileSync(
  at('workload.yaml'),
  `version: "2"
seed: ${values.seed}
category: language
aggregate_rate: ${rate}
num_requests: ${count}
clients:
  - id: caller
    rate_fraction: 1
    arrival: {process: poisson}
    input_distribution: {type: gaussian, params: {mean: 96, std_dev: 48, min: 16, max: 256}}
    output_distribution: {type: gaussian, params: {mean: 32, std_dev: 12, min: 8, max: 64}}
`,
);
// a machine without a GPU, by rough figures: the fit moves the shares of them, and the time of a step
fs.writeFileSync(
  at('machine.json'),
  JSON.stringify({
    name: 'this-machine',
    peakTflops: 0.01,
    memoryTbPerS: 0.01,
    memoryGib: 4,
    mfuPrefill: 0.5,
    mfuDecode: 0.5,
    source: 'assumed: the fit replaces what matters',
  }),
);

async function tierkv(...args: string[]): Promise<void> {
  console.log(`\n$ tierkv ${args.join(' ')}`);
  const child = spawn(process.execPath, [path.join(root, 'src/cli/main.ts'), ...args], { stdio: 'inherit' });
  const [code] = (await once(child, 'close')) as [number | null];
  if (code !== 0) throw new Error(`tierkv ${args[0]} ended with exit code ${code}`);
}

const server = spawn(
  process.execPath,
  [
    path.join(root, 'examples/server/main.ts'),
    ...['--port', '0', '--hbm-mib', String(hbmMib), '--ddr-mib', '0', '--max-sequences', String(sequences)],
  ],
  { stdio: ['ignore', 'pipe', 'inherit'] },
);
try {
  let said = '';
  let target = '';
  for await (const chunk of server.stdout) {
    said += String(chunk);
    target = /Listening on (\S+)/.exec(said)?.[1] ?? '';
    if (target !== '') break;
  }
  if (target === '') throw new Error(`the server did not start: ${said}`);
  const served = ['--gpu', at('machine.json'), '--model', config, '--hbm', '4096'];
  const limits = ['--max-num-seqs', String(sequences), '--max-num-batched-tokens', String(batchedTokens)];
  const observing = ['--target', target, '--vocabulary', String(vocabulary), '--warm-up', '10'];
  await tierkv('observe', at('workload.yaml'), ...observing, '--out', at('run.jsonl'));
  await tierkv(
    'latency',
    'fit',
    '--requests',
    at('run.jsonl'),
    ...served,
    ...limits,
    '--out',
    at('fit.json'),
  );
  await tierkv(
    ...['compare', at('run.jsonl'), ...served, ...limits],
    ...['--coefficients', at('fit.json'), '--json', at('compared.json')],
  );
  interface Value {
    readonly what: string;
    readonly point: string;
    readonly errorPercent: number;
  }
  const written = JSON.parse(fs.readFileSync(at('compared.json'), 'utf8')) as {
    readonly values?: readonly Value[];
    readonly result?: { readonly values: readonly Value[] };
  };
  const compared = written.values ?? written.result?.values ?? [];
  const verdicts = Object.entries(most).map(([what, limit]) => {
    const error = compared.find((value) => value.what === what && value.point === 'mean')?.errorPercent;
    const holds = error !== undefined && Math.abs(error) <= limit;
    console.log(
      `held-out mean ${what}: ${error?.toFixed(1)} %, ${holds ? 'within' : 'NOT within'} ${limit} %`,
    );
    return holds;
  });
  if (verdicts.includes(false)) process.exitCode = 1;
} catch (error) {
  console.error(error instanceof Error ? error.message : error);
  process.exitCode = 1;
} finally {
  server.kill('SIGTERM');
  await (server.exitCode ?? once(server, 'close'));
  if (values.out === undefined) fs.rmSync(folder, { recursive: true });
}
