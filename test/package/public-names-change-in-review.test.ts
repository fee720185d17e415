/** The public names are few, stand on a page with a sentence each, and change in review. */

import { readFileSync } from 'node:fs';
import { expect, it } from 'vitest';
import { apiPage, counts, doors, file, nameIn, overLimits, publicNames } from './doors.ts';

it('docs/reference/api.md has them all', () => {
  expect(
    apiPage().split('\n'),
    'a name or its docstring changed: run node test/package/doors.ts and look at the difference',
  ).toEqual(readFileSync(file, 'utf8').split('\n'));
});

it('they are at most 350, behind at most 10 doors, and each has a sentence', () => {
  const found = counts();
  expect(overLimits(found)).toEqual([]);
  expect(found.names).toBeGreaterThan(200);
});

it('control: one more door, names beyond the limit and a name without a sentence are found', () => {
  // a door inside, whose names have no page
  const said = overLimits(
    counts([...doors(), { file: 'src/runtime/index.ts' }, { file: 'test/package/doors.ts' }]),
  );
  expect(said).toContainEqual('12 doors, and 10 are the most');
  expect(said).toContainEqual(expect.stringMatching(/^\d+ names, and 350 are the most$/));
  expect(said).toContainEqual('file has no sentence');
});

it('they are what the modules export, in Node and in pages', async () => {
  for (const door of doors()) {
    const values = Object.keys((await import(`../../${door.file}`)) as object).sort();
    const names = publicNames(door);
    expect(values.length, door.name).toBeGreaterThan(2);
    expect(
      names.flatMap(({ name, kind }) => (kind === 'type' ? [] : [name])),
      door.name,
    ).toEqual(values);
    if (door.page === undefined) continue;
    const inPages = publicNames({ file: door.page }).map(({ name }) => name);
    expect(
      inPages.filter((name) => !names.some((each) => each.name === name)),
      door.page,
    ).toEqual([]);
  }
});

it('control: a name without a docstring, or with tags alone, has no sentence', () => {
  const read = (): string =>
    '/** Of another one. */\n\nexport function bare() {}\n/** @throws never */\nexport const tags = 1;\n' +
    '/**\n * Says `x.y` of 1.5 things. And more.\n * @param a of it\n */\nexport class Said {}\n';
  expect(nameIn('x.ts', 'bare', read).sentence).toBe('');
  expect(nameIn('x.ts', 'tags', read).sentence).toBe('');
  expect(nameIn('x.ts', 'Said', read)).toEqual({
    name: 'Said',
    kind: 'class',
    sentence: 'Says `x.y` of 1.5 things.',
  });
});
