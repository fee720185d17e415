/** The example, in two processes. */

import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, expect, test } from 'vitest';
import { removeDirectories, temporary } from './decoders.ts';

afterAll(removeDirectories);

const example = join(import.meta.dirname, '..', '..', 'examples', 'transformers-chat.ts');

test('the second start restores its first prompt from disk, and says the same', async () => {
  const state = temporary('chat');
  const chat = async (): Promise<{ said: string[]; turns: string[] }> => {
    const env = { ...process.env, TIERKV_ADAPTER: 'software' };
    const { stdout } = await promisify(execFile)(process.execPath, [example, '--state', state], { env });
    const lines = stdout.split('\n');
    return {
      said: lines.filter((line) => line.startsWith('model: ')),
      turns: lines
        .filter((line) => line.includes('prompt tokens'))
        .map((line) => line.replace(/, first token.*/, '')),
    };
  };
  const first = await chat();
  const second = await chat();
  expect(first.said).toHaveLength(2);
  expect(second.said).toEqual(first.said);
  expect(first.turns[0]).toMatch(/^ {2}0 of \d+ prompt tokens computed$/);
  expect(second.turns[0]).toMatch(/^ {2}[1-9]\d* of \d+ prompt tokens restored$/);
});
