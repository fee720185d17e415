import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';

const root = join(import.meta.dirname, '..', '..');
const page = readFileSync(join(root, 'docs/reference/design-notes.md'), 'utf8');
const drawing = readFileSync(join(root, 'docs/internals/one-manager.md'), 'utf8');

/** Rows of the page: the note's name, the name that `src` has for it, and the file that exports it. */
const rows = [...page.matchAll(/^\| `(\w+)` \| (?:`(\w+)` of )?`(src\/[\w/]+\.ts)` \|/gm)].map(
  ([, name, other, file]) => ({ name, exported: other ?? name, file }),
);

const exportsOf = (file: string): string =>
  existsSync(join(root, file)) ? readFileSync(join(root, file), 'utf8') : '';
const isExported = ({ exported, file }: { exported: string; file: string }): boolean =>
  new RegExp(`^export (abstract )?(class|interface|type|const|function) ${exported}\\b`, 'm').test(
    exportsOf(file),
  );

/** The names of the four notes that stand for code. */
const namesOfTheNotes = [
  ...['KVStore', 'newKVStore', 'TieredKVCache'],
  ...[
    'MultiGranularKVPool',
    'KVPoolConfig',
    'KVBlockDescriptor',
    'KVGranularity',
    'StorageTier',
    'TierConfig',
  ],
  ...[
    'StorageBackend',
    'TieredKVStorage',
    'HotColdClassifier',
    'KVMigrator',
    'MigrationPlan',
    'MigrationResult',
  ],
  ...['CrossRequestKVCache', 'KVBudget', 'KVMetrics', 'IKVCacheManager', 'ContinuousBatchKVCacheManager'],
  ...['KVCacheConfiguration', 'CacheAllocation', 'CachePage', 'IPagedAttentionCache', 'CacheBlockData'],
];

it('each name of the design notes has a row, and its file exports it', () => {
  expect(namesOfTheNotes.filter((name) => !rows.some((row) => row.name === name))).toEqual([]);
  expect(rows.filter((row) => !isExported(row))).toEqual([]);
  expect(isExported({ exported: 'OffloadLoop', file: 'src/views/kvStore.ts' })).toBe(false);
});

it('and the picture of the manager names files that are there', () => {
  const files = [...drawing.matchAll(/\b(src\/[\w/.]+)/g)].map(([, file]) => file.replace(/\.$/, ''));
  expect(files.length).toBeGreaterThan(5);
  expect(files.filter((file) => !existsSync(join(root, file)))).toEqual([]);
});
