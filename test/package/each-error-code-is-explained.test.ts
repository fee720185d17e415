import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';

const text = (...path: string[]): string =>
  readFileSync(join(import.meta.dirname, '..', '..', ...path), 'utf8');

it('docs/reference/errors.md explains the codes that the source has, and no others', () => {
  const union = /export type ErrorCode =([^;]+);/.exec(text('src', 'runtime', 'errors.ts'))![1];
  const codes = [...union.matchAll(/'(TKV_\w+)'/g)].map(([, code]) => code);
  const explained = [
    ...text('docs', 'reference', 'errors.md').matchAll(/^\| `(TKV_\w+)` \| .+ \| .+ \|$/gm),
  ].map(([, code]) => code);
  expect(codes.length).toBeGreaterThan(5);
  expect(explained.sort()).toEqual(codes.sort());
});
