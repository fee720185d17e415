/** The public names are those of doors.txt, so that a door changes in review, and names without a page get fewer. */

import { readFileSync } from 'node:fs';
import { expect, it } from 'vitest';
import { file, publicNames, snapshot } from './doors.ts';

/** Each may only fall: lower it with the names that go. */
const most = { doors: 23, names: 970, onNoPage: 839 };

it('doors.txt has them all', () => {
  const { text, counts } = snapshot();
  expect(
    text.split('\n'),
    'a name came or went: run node test/package/doors.ts and look at the difference',
  ).toEqual(readFileSync(file, 'utf8').split('\n'));
  for (const [what, count] of Object.entries(counts))
    expect(count, what).toBeLessThanOrEqual(most[what as keyof typeof most]);
});

it('they are what the modules export', async () => {
  const names = publicNames();
  expect(names.get('.')).toContain('KVRuntime');
  for (const [door, path] of [
    ['.', 'index'],
    ['./sim', 'sim/index'],
    ['./metrics', 'observe/metrics/index'],
    ['./browser/compute', 'adapters/browser/compute'],
  ] as const) {
    const values = Object.keys((await import(`../../src/${path}.ts`)) as object);
    expect(values.length).toBeGreaterThan(5);
    expect(values.filter((name) => !names.get(door)?.includes(name))).toEqual([]);
  }
});
