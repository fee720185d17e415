import { execFileSync, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import fs from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { gzipSync, zstdCompressSync } from 'node:zlib';
import { beforeEach, describe, expect, it, onTestFinished } from 'vitest';
import { main } from '../../command.ts';
import { mooncakeLines } from '../trace/traceFiles.ts';

const args = (trace: string, ...more: string[]): string[] => [
  main,
  'replay',
  trace,
  '--driver',
  'modeled',
  ...more,
];
const text = mooncakeLines(40);

let dir: string;
beforeEach(() => {
  dir = fs.mkdtempSync(join(tmpdir(), 'tierkv-pipe-test-'));
  onTestFinished(() => fs.rmSync(dir, { recursive: true }));
});

/** The part of a report that does not depend on the clock. */
const figures = (out: string): string => out.replace(/^time .*$/m, '');
/** Temporary files go to the test's own directory, which shows what is left of them. */
const env = (): NodeJS.ProcessEnv => ({ ...process.env, TMPDIR: dir });

function fromFile(): string {
  const file = join(dir, 'trace.jsonl');
  fs.writeFileSync(file, text);
  const { stdout } = spawnSync(process.execPath, args(file), { encoding: 'utf8' });
  fs.rmSync(file);
  return figures(stdout);
}

function fifo(): string {
  const pipe = join(dir, 'fifo');
  execFileSync('mkfifo', [pipe]);
  return pipe;
}

describe('a replay of a pipe', () => {
  it.each([
    ['plain', Buffer.from(text)],
    ['gzip', gzipSync(text)],
    ['zstd', zstdCompressSync(text)],
  ])('on standard input with %s data reports what the file does', (_, input) => {
    const run = spawnSync(process.execPath, args('/dev/stdin'), { input, encoding: 'utf8', env: env() });
    expect(run.stderr).toBe('');
    expect(figures(run.stdout)).toBe(fromFile());
    expect(fs.readdirSync(dir)).toEqual([]);
  });

  it('from a FIFO whose writer comes late reports what the file does', async () => {
    const pipe = fifo();
    const child = spawn(process.execPath, args(pipe), { stdio: ['ignore', 'pipe', 'inherit'], env: env() });
    let out = '';
    child.stdout.on('data', (chunk: Buffer) => (out += chunk.toString()));
    await fs.promises.writeFile(pipe, text); // waits for the reader
    expect((await once(child, 'close'))[0]).toBe(0);
    expect(figures(out)).toBe(fromFile());
  });

  it('names the pipe and the line of a mistake, and leaves no file behind', () => {
    const input = `${mooncakeLines(2)}{}\n`;
    const run = spawnSync(process.execPath, args('/dev/stdin'), { input, encoding: 'utf8', env: env() });
    expect(run.stderr).toMatch(/^tierkv: \/dev\/stdin:3: timestamp is missing\. [^\n]*\n$/);
    expect(run.status).toBe(2);
    expect(fs.readdirSync(dir)).toEqual([]);
  });

  it('that holds nothing is empty', () => {
    const run = spawnSync(process.execPath, args('/dev/stdin'), { input: '', encoding: 'utf8', env: env() });
    expect(run.stderr).toMatch(/^tierkv: \/dev\/stdin is empty: it has no request to replay/);
    expect(run.status).toBe(2);
  });
});

describe('a stop ends a replay', () => {
  /** Starts it, sends SIGTERM once `ready` has come true, and waits for the end. */
  async function stopped(trace: string, more: string[], ready: (pid: number) => boolean): Promise<unknown> {
    const child = spawn(process.execPath, args(trace, ...more), { stdio: 'ignore', env: env() });
    const closed = once(child, 'close');
    while (!ready(child.pid!)) await new Promise((resolve) => setTimeout(resolve, 20));
    child.kill('SIGTERM');
    return (await closed)[0];
  }
  const opened =
    (file: string) =>
    (pid: number): boolean =>
      fs.readdirSync(`/proc/${pid}/fd`).some((fd) => {
        try {
          return fs.readlinkSync(`/proc/${pid}/fd/${fd}`) === file;
        } catch {
          return false; // closed meanwhile
        }
      });

  it.skipIf(!fs.existsSync('/proc/self/fd'))('that waits for the writer of a FIFO', async () => {
    const pipe = fifo();
    expect(await stopped(pipe, [], opened(pipe))).toBe(143);
    expect(fs.readdirSync(dir)).toEqual(['fifo']);
  });

  it.skipIf(!fs.existsSync('/proc/self/fd'))('of a trace in which no line holds a request', async () => {
    const file = join(dir, 'bad.jsonl');
    const megabyte = Buffer.from('no\n'.repeat(350_000));
    for (let i = 0; i < 200; i++) fs.appendFileSync(file, megabyte);
    expect(await stopped(file, ['--skip-bad'], opened(file))).toBe(143);
  });
});
