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
    import { temporaryDirectory } from '${source('files/temporaryDirectory.ts')}';
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

it('a second signal ends work that does not heed the first', async () => {
  const tmp = temporaryRoot();
  const { child, said } = startWork(tmp, '');
  expect(await said()).toBe('working');
  child.kill('SIGINT');
  expect(await said()).toBe('stopping');
  child.kill('SIGINT');
  expect((await once(child, 'close'))[0]).toBe(130);
  expect(fs.readdirSync(tmp)).toEqual([]);
});
