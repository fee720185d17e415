/**
 * Fuzzes the sandboxes: `npm run campaign -- sandbox --programs 100000 --seed 1`. The programs run in a worker, so
 * that one that takes two minutes is killed, and one that ends its host leaves the others alone; either fails the
 * run. With `--nodes 22,24` the same programs run on the newest Node of each line, out of the registry, and their
 * figures must be the same.
 */

import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import fs from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { parseArgs } from 'node:util';
import { isMainThread, parentPort, Worker, workerData } from 'node:worker_threads';
import { policyLanguages } from '../../../../src/policy/sandbox/program.ts';
import { type CampaignReport, runCampaign } from './campaign.ts';
import { programOf } from './programs.ts';

const PART = 500;
const STUCK_MS = 120_000;

interface Part {
  readonly seed: number;
  readonly first: number;
  readonly programs: number;
}

/** The program at which a worker ended, by itself or because it took too long. */
class Lost extends Error {
  readonly number: number;
  readonly end: 'killed' | 'host_failure';

  constructor(number: number, end: Lost['end'], message: string) {
    super(message);
    this.number = number;
    this.end = end;
  }
}

/** Runs one part in a worker of its own. */
function runPart(part: Part): Promise<CampaignReport> {
  return new Promise((resolve, reject) => {
    const worker = new Worker(new URL(import.meta.url), { workerData: part });
    let current = part.first;
    const kill = (): void => {
      const reason = `was killed after ${STUCK_MS / 1000} s`;
      void worker.terminate().then(() => reject(new Lost(current, 'killed', reason)));
    };
    let timer = setTimeout(kill, STUCK_MS);
    worker.on('message', (message: number | CampaignReport) => {
      clearTimeout(timer);
      if (typeof message !== 'number') {
        resolve(message);
        return;
      }
      current = message;
      timer = setTimeout(kill, STUCK_MS);
    });
    worker.on('error', (error) => {
      clearTimeout(timer);
      reject(new Lost(current, 'host_failure', `ends its host: ${String(error)}`));
    });
  });
}

/** Runs a part; a program that ends its worker is left out, and those beside it run again. */
async function runAround(part: Part): Promise<CampaignReport[]> {
  const { seed, first, programs } = part;
  if (programs === 0) return [];
  try {
    return [await runPart(part)];
  } catch (error) {
    if (!(error instanceof Lost)) throw error;
    const { number, end, message } = error;
    const finding = `program ${number} of seed ${seed} ${message}`;
    const { language } = programOf(seed, number);
    return [
      ...(await runAround({ seed, first, programs: number - first })),
      { programs: 1, ends: { [`${language} ${end}`]: 1 }, digest: end, findings: [finding] },
      ...(await runAround({ seed, first: number + 1, programs: first + programs - number - 1 })),
    ];
  }
}

/** How many ended how: a row for each end, a column for each language. */
function printEnds(ends: Readonly<Record<string, number>>): void {
  const row = (name: string, cells: readonly (string | number)[]): void => {
    console.log(name.padEnd(18) + cells.map((cell) => String(cell).padStart(12)).join(''));
  };
  const sum = (counts: readonly number[]): number => counts.reduce((total, count) => total + count, 0);
  row('', [...policyLanguages, 'all']);
  const kinds = [...new Set(Object.keys(ends).map((end) => end.split(' ')[1]))].sort();
  for (const kind of kinds) {
    const counts = policyLanguages.map((language) => ends[`${language} ${kind}`] ?? 0);
    row(kind, [...counts, sum(counts)]);
  }
  const totals = policyLanguages.map((language) => {
    return sum(kinds.map((kind) => ends[`${language} ${kind}`] ?? 0));
  });
  row('all', [...totals, sum(totals)]);
}

/** Of all languages. */
function countOf(ends: Readonly<Record<string, number>>, kind: string): number {
  return policyLanguages.reduce((total, language) => total + (ends[`${language} ${kind}`] ?? 0), 0);
}

function binaryOf(line: string, folder: string): string {
  const name = `node-${process.platform}-${process.arch}`;
  fs.mkdirSync(path.join(folder, line));
  fs.writeFileSync(path.join(folder, line, 'package.json'), '{ "private": true }\n');
  const install = ['install', '--silent', '--no-audit', '--no-fund', `${name}@${line}`];
  execFileSync('npm', install, { cwd: path.join(folder, line), stdio: 'inherit' });
  return path.join(folder, line, 'node_modules', name, 'bin', 'node');
}

/** @returns whether all lines gave the same last lines */
function compareNodes(lines: readonly string[], programs: string, seed: string): boolean {
  const folder = fs.mkdtempSync(path.join(tmpdir(), 'tierkv-nodes-'));
  try {
    const told = lines.map((line) => {
      const options = [import.meta.filename, '--programs', programs, '--seed', seed];
      const output = execFileSync(binaryOf(line, folder), options, { encoding: 'utf8' });
      const last = output.trimEnd().split('\n').at(-1);
      console.log(`Node ${line}: ${last}`);
      return last;
    });
    return told.every((each) => each === told[0]);
  } finally {
    fs.rmSync(folder, { recursive: true });
  }
}

async function main(): Promise<void> {
  const { values } = parseArgs({
    options: {
      programs: { type: 'string', default: '10000' },
      seed: { type: 'string', default: '1' },
      first: { type: 'string', default: '0' },
      nodes: { type: 'string' },
    },
  });
  const { programs, seed, first, nodes } = values;
  if (nodes !== undefined) {
    process.exitCode = compareNodes(nodes.split(','), programs, seed) ? 0 : 1;
    return;
  }
  const ends: Record<string, number> = {};
  const digest = createHash('sha256');
  let findings = 0;
  for (let done = 0; done < Number(programs); done += PART) {
    const part = {
      seed: Number(seed),
      first: Number(first) + done,
      programs: Math.min(PART, Number(programs) - done),
    };
    for (const report of await runAround(part)) {
      for (const [end, count] of Object.entries(report.ends)) ends[end] = (ends[end] ?? 0) + count;
      for (const finding of report.findings) console.log(`FOUND ${finding}`);
      findings += report.findings.length;
      digest.update(report.digest);
    }
    process.stderr.write(`\r${done + part.programs} programs`);
  }
  process.stderr.write('\n');
  printEnds(ends);
  const lost = `${countOf(ends, 'host_failure')} host failures, ${countOf(ends, 'killed')} killed`;
  const figure = digest.digest('hex').slice(0, 16);
  console.log(`${programs} programs of seed ${seed}: ${lost}, ${findings} findings, digest ${figure}`);
  if (findings > 0) process.exitCode = 1;
}

if (isMainThread) await main();
else {
  const part = workerData as Part;
  parentPort?.postMessage(
    await runCampaign({
      ...part,
      onProgram: (number) => parentPort?.postMessage(number),
    }),
  );
}
