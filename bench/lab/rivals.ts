/**
 * The same deployment and traffic on AISimulate (NVIDIA's DynoSim, PyPI `aisimulate`) and on `tierkv simulate`,
 * whole processes, one after the other in turns. CPU time is what other programs on the machine disturb least.
 *
 *     python3.12 -m venv venv && venv/bin/pip install --only-binary :all: --pre aisimulate==VERSION
 *     node bench/lab/rivals.ts --aisimulate venv/bin/aisimulate [--trace conversation_trace.jsonl] [--rounds 3]
 *
 * Two cases: one instance and 50,000 requests of 256/256 tokens at 20 a second; with --trace, Mooncake's
 * conversation trace on 8 workers with three tiers, host memory and disk of each worker's own. The two have
 * models of step time of their own: what is compared is what a simulated request costs.
 */

import { spawnSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { gunzipSync } from 'node:zlib';

interface Cost {
  readonly wallS: number;
  readonly cpuS: number;
  readonly completed: number;
}

interface Case {
  readonly name: string;
  readonly rival: string;
  readonly ours: readonly string[];
}

const { values } = parseArgs({
  options: {
    aisimulate: { type: 'string' },
    trace: { type: 'string' },
    requests: { type: 'string', default: '50000' },
    rounds: { type: 'string', default: '3' },
    json: { type: 'boolean', default: false },
  },
});
if (values.aisimulate === undefined) throw new Error('name the command: --aisimulate venv/bin/aisimulate');
const rivalCommand = resolve(values.aisimulate);
const root = fileURLToPath(new URL('../..', import.meta.url));
const folder = mkdtempSync(join(tmpdir(), 'tierkv-rivals-'));

const engine = (tokens: number, replicas: number, more: string): string => `engine:
  model: ${join(folder, 'qwen3-14b')}
  hardware: h100_sxm
  backend: vllm
  workers:
    aggregated:
      parallelism: {replicas: ${replicas}, tensor: 1}
      scheduler: {max_batched_tokens: 8192, max_sequences: 256}
      kv_cache: {block_size: ${tokens}, capacity: {type: fixed, blocks: ${tokens === 16 ? 20_000 : 1000}}${more}}
      timing: {type: polynomial}
`;

const common = '--model qwen3-14b --latency-model blackbox --max-num-seqs 256 --max-num-batched-tokens 8192';
const lengths = ['prompt', 'output'].map((side) =>
  ['tokens 256', 'tokens-stdev 0', 'tokens-min 256', 'tokens-max 256']
    .map((part) => `--${side}-${part}`)
    .join(' '),
);

function cases(): Case[] {
  const plain: Case = {
    name: `${values.requests} requests of 256/256 at 20 a second, one instance`,
    rival: `traffic:
  source: {type: synthetic, input_tokens: 256, output_tokens: 256}
  load: {type: constant_rate, requests_per_second: 20.0}
  stop: {requests: ${values.requests}}
${engine(16, 1, '')}`,
    ours: [
      `${common} --workload distribution ${lengths.join(' ')} --rate 20 --num-requests ${values.requests}`,
      '--total-kv-blocks 20000 --timeout -1',
    ],
  };
  if (values.trace === undefined) return [plain];
  const trace = unpacked(resolve(values.trace));
  const blockBytes = 512 * 163_840;
  const tiers = join(folder, 'tiers.yaml');
  writeFileSync(
    tiers,
    `kv_offload:\n  cpu_bytes_to_use: ${4000 * blockBytes}\n  secondary_tiers:\n` +
      `    - {type: fs, device_class: nvme_gen4, capacity_bytes: ${20_000 * blockBytes}}\n`,
  );
  const offload =
    ', host_offload: {num_host_blocks: 4000}, g3_offload: {scope: worker_local, num_g3_blocks: 20000}';
  return [
    plain,
    {
      name: 'conversation trace, 8 workers, three tiers',
      rival: `traffic:
  source: {type: trace, paths: [${trace}], format: mooncake, block_size: 512}
  load: {type: trace_timestamps}
${engine(512, 8, offload)}`,
      ours: [
        `${trace} ${common} --num-instances 8 --total-kv-blocks 1000 --block-size-in-tokens 512`,
        `--kv-offload-config ${tiers} --preemption-mode recompute`,
      ],
    },
  ];
}

function unpacked(trace: string): string {
  if (!trace.endsWith('.gz')) return trace;
  const plain = join(folder, 'trace.jsonl');
  writeFileSync(plain, gunzipSync(readFileSync(trace)));
  return plain;
}

/** Wall and CPU time of a whole process, as the shell measures them. @param completed of its standard output */
function timed(command: string, completed: (output: string) => unknown): Cost {
  const { stdout, stderr, status } = spawnSync('bash', ['-c', `TIMEFORMAT='%R %U %S'; time ${command}`], {
    encoding: 'utf8',
    maxBuffer: 2 ** 28,
    cwd: root,
  });
  if (status !== 0) throw new Error(`${command}\n${stderr.slice(-2000)}`);
  const [wallS, userS, systemS] = stderr.trim().split('\n').at(-1)!.split(' ').map(Number);
  const count = completed(stdout);
  if (!Number.isInteger(count))
    throw new Error(`${command}\nsays ${count}, not how many requests it completed`);
  return { wallS, cpuS: userS + systemS, completed: count as number };
}

function runRival(config: string): Cost {
  const file = join(folder, 'config.yaml');
  writeFileSync(file, config);
  const out = join(folder, 'out');
  const call = `${rivalCommand} predict -c ${file} --format json --output-dir ${out} --overwrite`;
  return timed(call, (output) => (JSON.parse(output) as { completed_requests?: unknown }).completed_requests);
}

function runOurs(args: readonly string[]): Cost {
  const result = join(folder, 'result.json');
  const call = `${process.execPath} src/cli/main.ts simulate ${args.join(' ')} --json ${result}`;
  return timed(call, () => {
    const { result: found } = JSON.parse(readFileSync(result, 'utf8')) as {
      readonly result?: { readonly metrics?: { readonly completed_requests?: unknown } };
    };
    return found?.metrics?.completed_requests;
  });
}

const middle = (costs: readonly Cost[], of: (cost: Cost) => number): number =>
  costs.map(of).sort((a, b) => a - b)[(costs.length - 1) >> 1];

function version(): string {
  const python = join(rivalCommand, '..', 'python');
  const code = 'import importlib.metadata as m; print(m.version("aisimulate"))';
  return spawnSync(python, ['-c', code], { encoding: 'utf8' }).stdout?.trim() || 'of an unknown version';
}

try {
  mkdirSync(join(folder, 'qwen3-14b'));
  writeFileSync(
    join(folder, 'qwen3-14b', 'config.json'),
    readFileSync(join(root, 'data/models/qwen3-14b.json')),
  );
  const results = cases().map(({ name, rival, ours }) => {
    const costs: { rival: Cost[]; ours: Cost[] } = { rival: [], ours: [] };
    for (let round = 0; round < Number(values.rounds); round++) {
      const [theirs, own] = [runRival(rival), runOurs(ours)];
      if (theirs.completed !== own.completed) {
        // times of different work are not comparable
        throw new Error(
          `${name}: aisimulate completed ${theirs.completed} requests, tierkv ${own.completed}`,
        );
      }
      costs.rival.push(theirs);
      costs.ours.push(own);
    }
    const figures = (all: readonly Cost[]): Cost => ({
      wallS: middle(all, ({ wallS }) => wallS),
      cpuS: middle(all, ({ cpuS }) => cpuS),
      completed: all[0].completed,
    });
    const [theirs, own] = [figures(costs.rival), figures(costs.ours)];
    return { name, aisimulate: theirs, tierkv: own, cpuRatio: theirs.cpuS / own.cpuS };
  });
  if (values.json) console.log(JSON.stringify({ version: version(), results }, null, 2));
  else {
    console.log(`aisimulate ${version()}`);
    for (const { name, aisimulate, tierkv, cpuRatio } of results) {
      const shown = ({ wallS, cpuS, completed }: Cost): string =>
        `${completed} completed, wall ${wallS.toFixed(2)} s, CPU ${cpuS.toFixed(2)} s`;
      console.log(`${name}\n  aisimulate: ${shown(aisimulate)}\n  tierkv:     ${shown(tierkv)}`);
      console.log(`  CPU time: ${cpuRatio.toFixed(2)} to 1`);
    }
  }
} finally {
  rmSync(folder, { recursive: true });
}
