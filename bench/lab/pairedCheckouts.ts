/**
 * Two checkouts side by side: was a change of the house a change of speed? Rounds alternate between the two, and every other
 * round begins with the other one, so what the machine does meanwhile falls on both. Prints the new one over the old one: the
 * median of the rounds' ratios and their range. Above 1 is slower for times, faster for rates.
 *
 *     node bench/lab/pairedCheckouts.ts OLD NEW [--rounds 5] [--only simulate,replay,manager,links] [--trace FILE] [--json FILE]
 *
 * Each is a folder with `src` and `node_modules`. `--trace` is Mooncake's conversation trace; without it the excerpt of the
 * package stands in.
 */

import { spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { parseArgs } from 'node:util';

const { values: options, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    rounds: { type: 'string', default: '5' },
    only: { type: 'string', default: 'simulate,replay,manager,links' },
    trace: { type: 'string' },
    json: { type: 'string' },
  },
});
if (positionals.length !== 2) throw new Error('name two checkouts: the old one and the new one');
const checkouts = positionals.map((folder) => resolve(folder));
const rounds = Number(options.rounds);
const dir = mkdtempSync(join(tmpdir(), 'tierkv-paired-'));
const trace = resolve(options.trace ?? join(checkouts[1], 'data/mooncake-conversation-excerpt.jsonl.gz'));

/** A row of `tierkv bench links`, as far as it is compared. */
interface LinkFigures {
  readonly link: string;
  readonly unitBytes: number;
  readonly pattern: string;
  readonly verified: boolean;
  readonly gbps: number;
}

/** Figures of one run, by name. */
type Figures = ReadonlyMap<string, number>;

/** Runs `tierkv` of the checkout. @returns its wall and processor seconds */
function run(checkout: string, args: readonly string[]): { wall: number; processor: number } {
  const usage = join(dir, 'usage');
  // what a process used is known to itself alone; threads have the same hook, and the last line is the process's
  const hook =
    `import fs from "node:fs"; process.on("exit", () => { const { user, system } = process.cpuUsage(); ` +
    `fs.writeFileSync(${JSON.stringify(usage)}, String((user + system) / 1e6)); })`;
  const started = performance.now();
  const { status, stderr } = spawnSync(
    process.execPath,
    ['--import', `data:text/javascript,${encodeURIComponent(hook)}`, 'src/cli/main.ts', ...args],
    { cwd: checkout, encoding: 'utf8', maxBuffer: 2 ** 28 },
  );
  const wall = (performance.now() - started) / 1000;
  if (status !== 0) throw new Error(`${checkout}: tierkv ${args.join(' ')} ended with ${status}: ${stderr}`);
  return { wall, processor: Number(readFileSync(usage, 'utf8')) };
}

function timed(name: string, checkout: string, args: readonly string[]): Figures {
  const { wall, processor } = run(checkout, args);
  return new Map([
    [`${name}, wall (s)`, wall],
    [`${name}, processor (s)`, processor],
  ]);
}

/** Older checkouts write the result without the envelope that names its schema. */
function resultOf(file: string): Record<string, unknown> {
  const read = JSON.parse(readFileSync(file, 'utf8')) as Record<string, unknown>;
  return (read.result ?? read) as Record<string, unknown>;
}

function measured(checkout: string, what: 'manager' | 'links'): Figures {
  const file = join(dir, `${what}.json`);
  run(checkout, ['bench', what, '--quick', '--json', file]);
  const found = resultOf(file);
  if (what === 'manager') {
    const rows = found.manager as { what: string; value: number; unit: string }[];
    return new Map(rows.map(({ what, value, unit }) => [`${what} (${unit})`, value]));
  }
  const rows = found.links as LinkFigures[];
  return new Map(
    rows.map(({ link, unitBytes, pattern, verified, gbps }) => {
      return [`${link} ${unitBytes} ${pattern}${verified ? ' verified' : ''} (GB/s)`, gbps];
    }),
  );
}

const simulation = [
  '--model',
  'qwen/qwen3-14b',
  '--latency-model',
  'trained-physics',
  '--workload',
  'chatbot',
];
const tiers = ['--hbm-blocks', '1000', '--ddr-blocks', '10000', '--nvme-blocks', '100000'];
const benches: Readonly<Record<string, (checkout: string) => Figures>> = {
  simulate: (checkout) =>
    timed('simulate chatbot 50,000', checkout, ['simulate', ...simulation, '--num-requests', '50000']),
  replay: (checkout) =>
    timed('trace, three tiers', checkout, [
      'replay',
      trace,
      ...tiers,
      '--driver',
      'modeled',
      '--block-bytes',
      '64',
    ]),
  manager: (checkout) => measured(checkout, 'manager'),
  links: (checkout) => measured(checkout, 'links'),
};

function median(values: readonly number[]): number {
  const sorted = [...values].sort((a, b) => a - b);
  const half = sorted.length >> 1;
  return sorted.length % 2 === 1 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
}

const report: Record<string, { ratio: number; least: number; most: number; old: number; new: number }> = {};
try {
  for (const name of options.only.split(',')) {
    const bench = benches[name];
    if (bench === undefined)
      throw new Error(`bench ${name} is unknown; name ${Object.keys(benches).join(', ')}`);
    const pairs: (readonly [old: Figures, new_: Figures])[] = [];
    for (let round = 0; round < rounds; round++) {
      const order = round % 2 === 0 ? [0, 1] : [1, 0];
      const found: Figures[] = [];
      for (const which of order) found[which] = bench(checkouts[which]);
      pairs.push([found[0], found[1]]);
    }
    for (const figure of pairs[0][1].keys()) {
      const both = pairs.flatMap(([before, after]) => {
        const [a, b] = [before.get(figure), after.get(figure)];
        return a === undefined || b === undefined || !(a > 0) ? [] : [{ a, b }];
      });
      if (both.length === 0) continue;
      const ratios = both.map(({ a, b }) => b / a);
      const [old, now] = [median(both.map(({ a }) => a)), median(both.map(({ b }) => b))];
      const [ratio, least, most] = [median(ratios), Math.min(...ratios), Math.max(...ratios)];
      report[figure] = { ratio, least, most, old, new: now };
      console.log(
        `${figure}: ${ratio.toFixed(3)} (${least.toFixed(3)} to ${most.toFixed(3)}), ` +
          `${old.toPrecision(4)} before, ${now.toPrecision(4)} after`,
      );
    }
  }
  if (options.json !== undefined) writeFileSync(options.json, `${JSON.stringify(report, null, 2)}\n`);
} finally {
  rmSync(dir, { recursive: true });
}
