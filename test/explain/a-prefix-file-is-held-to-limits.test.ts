/** Files of `tierkv explain --prefix` that no tool writes end in one error with the file's name. */

import { expect, it } from 'vitest';
import { readPrefix } from '../../src/explain/prefix.ts';

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
