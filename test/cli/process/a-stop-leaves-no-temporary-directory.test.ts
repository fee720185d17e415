import { spawn } from 'node:child_process';
import { once } from 'node:events';
import fs from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { expect, it, onTestFinished } from 'vitest';

const source = (file: string): string =>
  pathToFileURL(join(import.meta.dirname, '..', '..', '..', 'src', file)).href;

/**
 * A command that takes a temporary directory and works until it is stopped; `heeds` is what it does on the
 * signal.
 */
function startWork(tmp: string, heeds: string) {
  const program = `
    import fs from 'node:fs';
    import { endingOf, interruptible } from '${source('cli/process.ts')}';
    import { temporaryDirectory } from '${source('io/files/temporaryDirectory.ts')}';
    try {
      using dir = temporaryDirectory('tierkv-test-');
      fs.writeFileSync(dir.path + '/slots', 'bytes');
      await interruptible((signal) => new Promise((resolve, reject) => {
        setTimeout(resolve, 60_000);
        signal.addEventListener('abort', () => { console.log('stopping'); ${heeds} });
        console.log('working');
      }));
    } catch (error) {
      process.exit(endingOf(error, 'tierkv').exitCode);
    }`;
  const child = spawn(process.execPath, ['--input-type=module', '-e', program], {
    env: { ...process.env, TMPDIR: tmp },
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const closed = once(child, 'close').then(() => {
    throw new Error('the program ended before it said anything');
  });
  closed.catch(() => {});
  const said = async (): Promise<string> =>
    String((await Promise.race([once(child.stdout, 'data'), closed]))[0]).trim();
  return { child, said };
}

function temporaryRoot(): string {
  const tmp = fs.mkdtempSync(join(tmpdir(), 'tierkv-stop-'));
  onTestFinished(() => fs.rmSync(tmp, { recursive: true }));
  return tmp;
}

it.each([
  ['SIGINT', 130],
  ['SIGTERM', 143],
] as const)('one %s lets the work end by itself, with exit code %i', async (signal, exitCode) => {
  const tmp = temporaryRoot();
  const { child, said } = startWork(tmp, 'reject(signal.reason)');
  expect(await said()).toBe('working');
  expect(fs.readdirSync(tmp)).toHaveLength(1);
  child.kill(signal);
  expect((await once(child, 'close'))[0]).toBe(exitCode);
  expect(fs.readdirSync(tmp)).toEqual([]);
});

it('a later signal ends work that does not heed the first; one at once is the same Ctrl+C, passed on by npm', async () => {
  const tmp = temporaryRoot();
  const { child, said } = startWork(tmp, '');
  expect(await said()).toBe('working');
  child.kill('SIGINT');
  expect(await said()).toBe('stopping');
  const ended = once(child, 'close');
  const again = setInterval(() => child.kill('SIGINT'), 50);
  onTestFinished(() => clearInterval(again));
  expect((await ended)[0]).toBe(130);
  expect(fs.readdirSync(tmp)).toEqual([]);
});

it('what a killed process left goes when the next one takes a directory, and of a running one nothing', async () => {
  const tmp = temporaryRoot();
  const running = startWork(tmp, 'reject(signal.reason)');
  expect(await running.said()).toBe('working');
  const [kept] = fs.readdirSync(tmp);
  const killed = startWork(tmp, '');
  expect(await killed.said()).toBe('working');
  killed.child.kill('SIGKILL');
  await once(killed.child, 'close');
  expect(fs.readdirSync(tmp)).toHaveLength(2);
  // neither the name of another kind, nor of a process of another machine, nor one without a process
  const others = [
    `tierkv-other-${kept.split('-')[2]}-1073741823-abcdef`,
    'tierkv-test-00000000-1073741823-abcdef',
  ];
  for (const name of [...others, 'tierkv-test-abcdef']) fs.mkdirSync(join(tmp, name));
  const next = startWork(tmp, 'reject(signal.reason)');
  expect(await next.said()).toBe('working');
  const left = fs.readdirSync(tmp);
  expect(left).toEqual(expect.arrayContaining([kept, ...others, 'tierkv-test-abcdef']));
  expect(left).toHaveLength(5);
  for (const { child } of [running, next]) {
    child.kill('SIGTERM');
    await once(child, 'close');
  }
});
