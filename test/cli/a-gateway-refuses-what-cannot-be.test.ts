import { spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { gatewayCommand } from '../../src/cli/gateway.ts';
import { endingOf, type ProcessEnding } from '../../src/cli/process.ts';

const folder = mkdtempSync(join(tmpdir(), 'tierkv-gateway-command-'));
afterAll(() => rmSync(folder, { recursive: true }));
const root = join(import.meta.dirname, '../..');

describe('tierkv gateway', () => {
  /** What the command says to these arguments, as `main.ts` would end with it. */
  const tierkv = async (...args: string[]): Promise<ProcessEnding> => {
    try {
      await gatewayCommand().parseAsync(args, { from: 'user' });
    } catch (error) {
      return endingOf(error, 'tierkv gateway');
    }
    throw new Error(`${args.join(' ')} is taken`);
  };

  it('refuses what cannot be, in a line that names the option', async () => {
    const bad = join(folder, 'tenants.txt');
    writeFileSync(bad, 'secret-key\n');
    const other = join(folder, 'other.txt');
    writeFileSync(other, 'no JSON\n');
    const url = 'http://127.0.0.1:9';
    const cases: readonly (readonly [readonly string[], RegExp])[] = [
      [[], /backends has no address/],
      [['--backend', 'nonsense'], /backend is "nonsense"/],
      [['--backend', url, '--port', '70000'], /port/],
      [['--backend', url, '--limit', 'retrys=3'], /Did you mean 'retries'/],
      [['--backend', url, '--limit', 'retries'], /--limit/],
      [['--backend', url, '--tenants', bad], /tenants.txt:1 must be key=tenant/],
      [['--backend', url, '--key-secret', bad], /hexadecimal/],
      [['--backend', url, '--tokenizer', other], /other.txt is not valid JSON/],
      [['--backend', url, '--log', join(folder, 'no', 'log')], /cannot be written/],
      [['--backend', url, '--log', join(folder, 'l'), '--part-bytes', '10'], /partBytes/],
      [['--backend', `a=${url}`, '--role', 'a=cook'], /role of a/],
      [['--backend', `a=${url}`, '--role', 'b=prefill'], /--role names b/],
      [['--backend', `a=${url}`, '--role', 'prefill'], /--role is "prefill"/],
      [['replay', other], /other.txt:1: is not valid JSON/],
      [['shadows', bad, '--workload', bad], /--deployment is missing/],
    ];
    for (const [args, problem] of cases) {
      const { exitCode, text } = await tierkv(...args);
      expect([args, exitCode, text]).toEqual([args, 2, expect.stringMatching(problem)]);
      expect(text.trim().split('\n')).toHaveLength(1);
      expect(text).not.toContain('secret-key');
    }
    const main = [join(root, 'src/cli/main.ts'), 'gateway', 'replay', other];
    const { status, stderr } = spawnSync(process.execPath, main, { encoding: 'utf8' });
    expect([status, stderr]).toEqual([2, `${(await tierkv('replay', other)).text}\n`]);
  });
});
