/**
 * Fuzzes the sandboxes: `npm run test:sandbox -- --programs 100000 --seed 1`. The programs run in a worker; one
 * that makes no progress for two minutes is a finding. With `--nodes 22,24` the same programs run on the newest
 * Node of each line, out of the registry, and their figures must be the same.
 */

import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import fs from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { parseArgs } from 'node:util';
import { isMainThread, parentPort, Worker, workerData } from 'node:worker_threads';
import { type CampaignReport, runCampaign } from './campaign.ts';

const PART = 500;
const STUCK_MS = 120_000;

interface Part {
  readonly seed: number;
  readonly first: number;
  readonly programs: number;
}

/** Runs one part in a worker of its own. */
function runPart(part: Part): Promise<CampaignReport> {
  return new Promise((resolve, reject) => {
    const worker = new Worker(new URL(import.meta.url), { workerData: part });
    let current = part.first;
    const stuck = (): void => {
      void worker.terminate();
      reject(new Error(`program ${current} of seed ${part.seed} takes more than ${STUCK_MS / 1000} s`));
    };
    let timer = setTimeout(stuck, STUCK_MS);
    worker.on('message', (message: number | CampaignReport) => {
      clearTimeout(timer);
      if (typeof message !== 'number') return resolve(message);
      current = message;
      timer = setTimeout(stuck, STUCK_MS);
      return undefined;
    });
    worker.on('error', (error) => {
      clearTimeout(timer);
      reject(new Error(`program ${current} of seed ${part.seed} ends its host: ${String(error)}`));
    });
  });
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
    const report = await runPart(part);
    for (const [end, count] of Object.entries(report.ends)) ends[end] = (ends[end] ?? 0) + count;
    for (const finding of report.findings) console.log(`FOUND ${finding}`);
    findings += report.findings.length;
    digest.update(report.digest);
    process.stderr.write(`\r${done + part.programs} programs`);
  }
  process.stderr.write('\n');
  for (const end of Object.keys(ends).sort()) console.log(`${end}: ${ends[end]}`);
  const figure = digest.digest('hex').slice(0, 16);
  console.log(`${programs} programs of seed ${seed}, ${findings} findings, digest ${figure}`);
  if (findings > 0) process.exitCode = 1;
}

if (isMainThread) await main();
else {
  const part = workerData as Part;
  parentPort?.postMessage(
    await runCampaign({
      ...part,
      onProgram: (number) => {
        if (number % 10 === 0) parentPort?.postMessage(number);
      },
    }),
  );
}
