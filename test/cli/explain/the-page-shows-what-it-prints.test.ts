import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { explainCommand } from '../../../src/cli/explain.ts';
import { replayCommand } from '../../../src/cli/replay/command.ts';
import { temporaryDirectory } from '../../../src/io/files/temporaryDirectory.ts';
import { printedBy } from '../printed.ts';

const root = join(import.meta.dirname, '..', '..', '..');
const page = readFileSync(join(root, 'docs', 'guide', 'why-was-it-evicted.md'), 'utf8');

it('the first two commands of docs/guide/why-was-it-evicted.md print what stands below them', async () => {
  using scratch = temporaryDirectory('tierkv-page-');
  const [replay, explain] = [...page.matchAll(/^npx tierkv (.*?)(?: {2,}#.*)?$/gm)].map(([, words]) =>
    words
      .split(' ')
      .map((word) =>
        word === 'kv.log' ? join(scratch.path, word) : word.replace(/^data\//, `${root}/data/`),
      ),
  );
  expect([replay[0], explain[0]]).toEqual(['replay', 'explain']);
  await printedBy(replayCommand(), ...replay.slice(1));
  const shown = /```text\n(sequence [\s\S]*?)```/.exec(page)?.[1];
  expect((await printedBy(explainCommand(), ...explain.slice(1))).trim()).toBe(shown?.trim());
});
