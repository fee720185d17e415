/**
 * Every file of upstream's goldens has its account, and every account its files and its tests. The table is
 * printed; a file that no account knows, and a copy in the project that is another one, fail.
 */

import { existsSync, globSync, readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { gunzipSync } from 'node:zlib';
import { describe, expect, it } from 'vitest';
import { accountOf, accounts, type Result } from './accounts.ts';

const shared = new URL('../../../shared/goldens/blis/', import.meta.url);
const tests = new URL('../', import.meta.url);
const isShared = existsSync(shared);
if (!isShared)
  console.warn('SKIPPED: goldens/blis is not here; whether each of its files has an account is open');

const goldens = isShared ? globSync('**/*.*', { cwd: fileURLToPath(shared) }).sort() : [];
const files = isShared
  ? [...goldens, ...globSync('**/LICENSE', { cwd: fileURLToPath(shared) })].filter((file) =>
      /\.[a-z0-9]+$|LICENSE$/.test(file),
    )
  : [];

/** What a golden is called in the tests: its case's number and name, or its file without endings. */
function nameOf(file: string): string {
  const parts = file.split('/');
  return parts[0] === 'cases'
    ? parts[1]
    : (parts.at(-1) as string).replace(/\.(json|csv|yaml|txt)(\.gz)?$/, '');
}

const bytesOf = (file: URL): string => {
  const packed = readFileSync(file);
  return (file.pathname.endsWith('.gz') ? gunzipSync(packed) : packed).toString('latin1');
};

describe.skipIf(!isShared)('the goldens', () => {
  it('have an account each; here is the table', () => {
    expect(files.filter((file) => accountOf(file) === undefined)).toEqual([]);
    const lines = accounts.map((account) => {
      const own = files.filter((file) => accountOf(file) === account);
      expect(own.length, `files of ${account.files}`).toBeGreaterThan(0);
      const by = account.tests.length === 0 ? '' : ` [${account.tests.join(', ')}]`;
      const names = [...new Set(own.map(nameOf))];
      const shown =
        names.length > 6 ? `${names.slice(0, 5).join(', ')} and ${names.length - 5} more` : names.join(', ');
      return `${account.result.padEnd(9)} ${String(own.length).padStart(3)}  ${shown}: ${account.how}${by}`;
    });
    const count = (result: Result): number =>
      files.filter((file) => accountOf(file)?.result === result).length;
    const sums = (['equal', 'explained', 'input', 'measured'] as const).map((one) => `${count(one)} ${one}`);
    console.info([`${files.length} goldens: ${sums.join(', ')}`, ...lines].join('\n'));
  });

  it.each(accounts.filter((account) => account.tests.length > 0))('$how: its tests name them', (account) => {
    const texts = account.tests.map((test) => readFileSync(new URL(test, tests), 'utf8'));
    const text = texts.join('\n');
    for (const file of files.filter((each) => accountOf(each) === account)) {
      // tests that go through a folder name the folder
      const folder = /^cases\/.*stdout/.test(file) ? 'stdout.txt' : nameOf(file);
      const stem = folder.replace(/^(kvops|steps)-/, '').replace(/-seed\d$/, '');
      const isNamed = [folder, stem, `${file.slice('cases/'.length, 'cases/'.length + 2)}-`].some((name) => {
        return name.length > 2 && text.includes(name);
      });
      expect(isNamed, `${file} in ${account.tests.join(', ')}`).toBe(true);
    }
  });

  it('are what their copies in the project are', () => {
    const copies = globSync('{sim,goldens,runtime}/**/fixtures/**/*.{json,csv,yaml,txt,gz}', {
      cwd: fileURLToPath(tests),
    });
    let compared = 0;
    for (const copy of copies) {
      const own = copy.split('/fixtures/')[1];
      const twins = files.filter((file) => file === own || file.split('/').at(-1) === own.split('/').at(-1));
      const twin = twins.find((file) => file === own) ?? (twins.length === 1 ? twins[0] : undefined);
      if (twin === undefined) continue;
      compared++;
      expect(bytesOf(new URL(copy, tests)) === bytesOf(new URL(twin, shared)), `${copy} and ${twin}`).toBe(
        true,
      );
    }
    expect(compared).toBeGreaterThan(10);
  });
});
