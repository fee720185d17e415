/**
 * Runs a command line in a process of its own and says what is wrong with how it ended. Right is: exit code 0
 * without NaN or Infinity in what it prints, exit code 2 with one line on stderr, or exit code 1 of a
 * check that lists the faults that it found; memory within its limit; and an end at all.
 */

import { spawn } from 'node:child_process';
import { once } from 'node:events';
import fs from 'node:fs';
import { join } from 'node:path';
import { main } from '../command.ts';

const maxMemoryMib = 1024;

/** Writes the most memory that the process ever had to the file that the environment names. */
const probe = `data:text/javascript,${encodeURIComponent(`
  import fs from 'node:fs';
  process.on('exit', () => fs.writeFileSync(process.env.TIERKV_PEAK, String(process.resourceUsage().maxRSS)));`)}`;

export interface Ended {
  readonly status: number | null;
  readonly stdout: string;
  readonly stderr: string;
  readonly peakMib: number;
  readonly seconds: number;
}

/** @param folder for the file of the memory; @param limitS after which the process is killed. */
export async function runCommand(args: readonly string[], folder: string, limitS: number): Promise<Ended> {
  const peakFile = join(folder, 'peak');
  fs.rmSync(peakFile, { force: true });
  const started = performance.now();
  const child = spawn(process.execPath, ['--import', probe, main, ...args], {
    stdio: ['ignore', 'pipe', 'pipe'],
    env: { ...process.env, TIERKV_PEAK: peakFile },
    timeout: limitS * 1000,
    killSignal: 'SIGKILL',
  });
  const read = (stream: NodeJS.ReadableStream): (() => string) => {
    let text = '';
    stream.setEncoding('utf8').on('data', (chunk: string) => {
      if (text.length < 1e6) text += chunk;
    });
    return () => text;
  };
  const [stdout, stderr] = [read(child.stdout), read(child.stderr)];
  const [status] = (await once(child, 'close')) as [number | null];
  const peakMib = fs.existsSync(peakFile) ? Number(fs.readFileSync(peakFile, 'utf8')) / 1024 : 0;
  const seconds = (performance.now() - started) / 1000;
  return { status, stdout: stdout(), stderr: stderr(), peakMib, seconds };
}

/** What is wrong with the end, or undefined. */
export function wrongWith({ status, stdout, stderr, peakMib }: Ended): string | undefined {
  if (status === null) return 'it was killed: it did not end in time, or ran out of memory';
  if (peakMib > maxMemoryMib) return `it took ${Math.round(peakMib)} MiB`;
  if (status === 0) {
    const odd = /\b(NaN|Infinity|undefined)\b/.exec(stdout);
    return odd === null ? undefined : `it printed ${odd[0]}`;
  }
  if (status === 1 && stderr === '' && /^(faults|differences) [1-9]\d*$/m.test(stdout)) return undefined;
  if (status !== 2) return `exit code ${status}: ${stderr.slice(0, 300)}`;
  const mistakes = stderr
    .split('\n')
    .filter((line) => line !== '' && !/^(closed loop|wrote|read )/.test(line));
  if (mistakes.length !== 1) return `stderr has ${mistakes.length} lines: ${stderr.slice(0, 300)}`;
  if (!/^tierkv: \S.*( \[TKV_[A-Z_]+\]|--help\.)$/u.test(mistakes[0]))
    return `it said: ${mistakes[0].slice(0, 300)}`;
  if (mistakes[0].length > 2100) return `the message has ${mistakes[0].length} characters`;
  return /\p{Cc}/u.test(mistakes[0]) ? 'the message holds control characters' : undefined;
}
