/**
 * Line coverage of `src/runtime`, by folder: `node test/lineCoverage/run.ts [--least 90] [--lines] [folders]`.
 * Runs the tests of the folders (default: test/runtime and test/goldens) and adds up what each process ran.
 * `--lines` names the lines that did not run. Exits with 1 when fewer than `--least` per cent ran, or a test
 * failed.
 */

import { spawnSync } from 'node:child_process';
import { globSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join, relative } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { parseArgs } from 'node:util';
import { addRuns, type LineCoverage, linesOf, type V8Function } from './lines.ts';

const root = fileURLToPath(new URL('../..', import.meta.url));
const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: { least: { type: 'string', default: '90' }, lines: { type: 'boolean', default: false } },
});
const least = Number(values.least);
if (!(least >= 0 && least <= 100)) {
  console.error(`--least is ${values.least}, not a percentage from 0 to 100.`);
  process.exit(2);
}

const folders = positionals.length > 0 ? positionals : ['test/runtime', 'test/goldens'];
const dir = mkdtempSync(join(tmpdir(), 'tierkv-coverage-'));
const vitest = join(root, 'node_modules', 'vitest', 'vitest.mjs');
const { status } = spawnSync(
  process.execPath,
  [vitest, 'run', '--config', join(root, 'test/lineCoverage/vitest.config.ts'), ...folders],
  {
    cwd: root,
    stdio: 'inherit',
    env: { ...process.env, NODE_V8_COVERAGE: dir },
  },
);

const coverage = coverageOf(globSync('src/runtime/**/*.ts', { cwd: root }).sort(), dir);
rmSync(dir, { recursive: true });
const total = print(coverage);
if (total < least) console.log(`\n${total.toFixed(1)} % is less than ${least} %.`);
process.exitCode = status === 0 && total >= least ? 0 : 1;

function coverageOf(files: readonly string[], from: string): Map<string, LineCoverage> {
  const sources = files.map((file) => readFileSync(join(root, file), 'utf8'));
  const ran = sources.map((source) => new Uint8Array(source.length));
  const at = new Map(files.map((file, i) => [pathToFileURL(join(root, file)).href, i]));
  for (const name of readdirSync(from)) {
    const { result } = JSON.parse(readFileSync(join(from, name), 'utf8')) as {
      result: { url: string; functions: V8Function[] }[];
    };
    for (const { url, functions } of result) {
      const i = at.get(url.split('?')[0]);
      if (i !== undefined) addRuns(ran[i], functions);
    }
  }
  return new Map(files.map((file, i) => [file, linesOf(sources[i], ran[i])]));
}

/** @returns per cent of all lines that ran */
function print(files: ReadonlyMap<string, LineCoverage>): number {
  const byFolder = new Map<string, { lines: number; ran: number }>();
  const all = { lines: 0, ran: 0 };
  for (const [file, { lines, ran }] of files) {
    const folder = relative('.', dirname(file));
    const sum = byFolder.get(folder) ?? { lines: 0, ran: 0 };
    byFolder.set(folder, { lines: sum.lines + lines.length, ran: sum.ran + ran.size });
    all.lines += lines.length;
    all.ran += ran.size;
    const missed = lines.filter((line) => !ran.has(line));
    if (values.lines && missed.length > 0) console.log(`${file}: ${missed.join(' ')}`);
  }
  console.log('\n   lines      ran    share');
  for (const [folder, sum] of [...byFolder, ['all of src/runtime', all] as const]) {
    const share = sum.lines === 0 ? '' : `${((100 * sum.ran) / sum.lines).toFixed(1)} %`;
    console.log(
      `${String(sum.lines).padStart(8)} ${String(sum.ran).padStart(8)} ${share.padStart(8)}  ${folder}`,
    );
  }
  return all.lines === 0 ? 100 : (100 * all.ran) / all.lines;
}
