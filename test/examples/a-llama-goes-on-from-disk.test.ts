/**
 * The example on node-llama-cpp: the second process loads what the first one evaluated, and says the same. It needs the package,
 * which `npm run extras` installs; a directory with it in its `node_modules` may be named too.
 */

import { execFile } from 'node:child_process';
import { existsSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, describe, expect, it } from 'vitest';
import { makeGguf } from '../../examples/tinyDecoder/gguf.ts';

const packageFolder = process.env.TIERKV_LLAMA ?? '.';
const isThere = existsSync(join(packageFolder, 'node_modules', 'node-llama-cpp'));
if (!isThere) {
  process.stderr.write(
    'SKIPPED: node-llama-cpp: it is not installed; run: npm run extras, or set TIERKV_LLAMA=DIRECTORY\n',
  );
}

describe.skipIf(!isThere)('node-llama-cpp', () => {
  const state = mkdtempSync(join(tmpdir(), 'tierkv-llama-'));
  afterAll(() => rmSync(state, { recursive: true }));

  async function ask(...more: string[]): Promise<{ loaded: number; answer: string }> {
    const program = [
      'examples/node-llama-cpp.ts',
      '--state',
      state,
      '--package',
      packageFolder,
      '--threads',
      '1',
      ...more,
    ];
    const { stdout } = await promisify(execFile)(process.execPath, program);
    return {
      loaded: Number(/^(\d+) of \d+ tokens were loaded/m.exec(stdout)![1]),
      answer: /^answer: (.*)$/m.exec(stdout)![1],
    };
  }

  it('goes on from disk in the next process, with the same answer; another model finds nothing', async () => {
    const first = await ask();
    expect(first.loaded).toBe(0);
    const again = await ask();
    expect(again.loaded).toBeGreaterThan(500);
    expect(again.answer).toBe(first.answer);
    // control: other weights
    const other = join(state, 'other.gguf');
    makeGguf(other, 2);
    const foreign = await ask('--model', other);
    expect(foreign.loaded).toBe(0);
    expect(foreign.answer).not.toBe(first.answer);
  });
});
