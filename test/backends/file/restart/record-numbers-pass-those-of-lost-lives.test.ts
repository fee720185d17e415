import { cpSync, readdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { FileStore } from '../../../../src/backends/file/fileStore.ts';
import type { FileStoreOptions } from '../../../../src/backends/file/opening.ts';
import { poolShape } from '../../../../src/runtime/tables/slotPool.ts';
import { outcomeNames } from '../../../../src/runtime/tier/tier.ts';
import { emptyItem, mismatchedWords, patternItem } from '../../../../src/testing/index.ts';
import { scratchDir } from '../scratch.ts';

const KiB = 1024;
/**
 * A page holds one block of 16 KiB, or sixteen of 1,000 bytes: of the last of these a large one leaves the
 * records whole.
 */
const shape = poolShape(4, 16 * KiB, [16 * KiB, 1000]);
const warm: FileStoreOptions = { restart: 'warm' };

/** The files as they are now, in another directory, without the claim of the store that writes them. */
function copied(from: string, ...names: string[]): string {
  const to = scratchDir();
  cpSync(from, to, {
    recursive: true,
    filter: (path) =>
      !path.includes('tierkv.lock.') &&
      (names.length === 0 || names.some((n) => path.endsWith(n)) || path === from),
  });
  return to;
}

describe('numbers of records', () => {
  for (const closed of [false, true]) {
    it(`exceed the numbers of records whose marks a loss of power took back (before it the store was ${closed ? 'closed' : 'killed'})`, async () => {
      const dir = scratchDir();
      if (closed) await (await FileStore.open(dir, shape, warm))[Symbol.asyncDispose]();
      const first = await FileStore.open(dir, shape, warm);
      const unmarked = copied(dir, 'tierkv.index');
      const small = Array.from({ length: 8 }, (_, i) => patternItem(shape, 8 + i, 1, 1));
      for (const one of small) await first.write([one]);
      const lost = copied(dir);
      await first[Symbol.asyncDispose]();
      for (const name of readdirSync(unmarked)) cpSync(join(unmarked, name), join(lost, name));

      // Nothing says that the small records are there; a large one takes their page.
      const second = await FileStore.open(lost, shape, warm);
      expect(second.records()).toEqual([]);
      const large = patternItem(shape, 0, 0, 2);
      expect((await second.write([large])).map(({ outcome }) => outcomeNames[outcome])).toEqual(['loaded']);
      await second.sync();
      const killed = copied(lost);
      await second[Symbol.asyncDispose]();
      rmSync(lost, { recursive: true });

      await using third = await FileStore.open(killed, shape, warm);
      expect(third.records().map(({ slot, generation }) => [slot, generation])).toEqual([[0, 2]]);
      const target = emptyItem(large);
      expect((await third.read([target])).map(({ outcome }) => outcomeNames[outcome])).toEqual(['loaded']);
      expect(mismatchedWords(target)).toBe(0);
      third.checkIntegrity();
    });
  }
});
