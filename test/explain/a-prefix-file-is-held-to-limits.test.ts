/** Files of `tierkv explain --prefix` that no tool writes end in one error with the file's name. */

import { expect, it } from 'vitest';
import { readPrefix } from '../../src/observe/explain/prefix.ts';

const good = JSON.stringify({
  tokens: [1, 2],
  tenant: 'a',
  model: 'm',
  secretKey: '00'.repeat(16),
  layout: { layers: 1, kvHeads: 1, headDim: 8, dtype: 'f16', blockTokens: 2 },
});

it('a byte-order mark is skipped', () => {
  expect(readPrefix(`\ufeff${good}`, 'p.json').blocks).toBe(1);
});

it('extras of any name enter the keys', () => {
  const keysWith = (extras: string): string =>
    readPrefix(good.replace('"tenant"', `"extras":${extras},"tenant"`), 'p.json').keys.join();
  const plain = keysWith('{}');
  for (const name of ['adapter', 'constructor', '__proto__']) {
    expect(keysWith(`{"${name}":"math"}`), name).not.toBe(plain);
    expect(() => keysWith(`{"${name}":7}`), name).toThrow(
      new RegExp(`extras\\.${name} must be text, and it is 7`),
    );
  }
  expect(() => keysWith('[]')).toThrow(/extras must be an object, and it is an array/);
});

it.each([
  ['nests lists', `{"tokens":${'['.repeat(300_000)}${']'.repeat(300_000)}}`],
  ['not valid JSON', '{"tokens":['],
  ['tokens', good.replace('[1,2]', '[9007199254740993,1]')],
  ['tokens', good.replace('[1,2]', '[1]')],
  ['names no block', '\n\n'],
])('%s', (problem, content) => {
  expect(() => readPrefix(content, 'p.json')).toThrow(
    expect.objectContaining({
      isTierKVError: true,
      path: 'p.json',
      message: expect.stringContaining(problem),
    }),
  );
});
