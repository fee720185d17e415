/** `tierkv doctor`: its text, its JSON, its page, and what it refuses. */

import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, expect, it } from 'vitest';
import { doctorCommand } from '../../src/cli/doctor.ts';
import { conversations, mixed } from '../doctor/conversations.ts';
import { endOf, printedBy } from './printed.ts';

const dir = mkdtempSync(join(tmpdir(), 'tierkv-doctor-command-'));
afterAll(() => rmSync(dir, { recursive: true }));
const file = join(dir, 'requests.jsonl');
writeFileSync(
  file,
  mixed(conversations)
    .map((record) => `${JSON.stringify(record)}\n`)
    .join(''),
);

it('tells each cause with its place, its lines, its price and the remedy', async () => {
  const [json, report] = [join(dir, 'd.json'), join(dir, 'd.html')];
  const machine = ['--model', 'qwen/qwen3-14b', '--gpu', 'H100', '--gpu-price', '2.5'];
  const text = await printedBy(doctorCommand(), file, ...machine, '--json', json, '--report', report);
  expect(text).toMatch(
    /^13 causes made [\d,]+ tokens be computed again, \d+\.\d % of all prompt tokens: 68 requests in 15 conversations\.\n/,
  );
  expect(text).toContain('a moving header line (x-billing-header) at messages[0].content, byte 35\n');
  expect(text).toContain(
    '  - x-billing-header: version=2.1; cch=1000;\n  + x-billing-header: version=2.1; cch=2eef;\n',
  );
  expect(text).toMatch(
    /computed again: [\d,]+ tokens, \d\.\d s, [\d.]+ USD\n {2}Take the line out of the prompt/,
  );
  const { result } = JSON.parse(readFileSync(json, 'utf8'));
  expect(result.findings).toHaveLength(13);
  expect(result.turns).toHaveLength(68);
  for (const { lostUsd, lostSeconds } of result.findings)
    expect(lostUsd).toBeCloseTo((lostSeconds / 3600) * 2.5, 12);
  const page = readFileSync(report, 'utf8');
  expect(page).toContain('x-billing-header');
  expect(page).toContain('Tokens computed again, by cause');
});

it('says so where nothing broke', async () => {
  const plain = join(dir, 'plain.jsonl');
  const { turns } = conversations.find(
    ({ name }) => name === 'a chat without a fault',
  ) as (typeof conversations)[0];
  writeFileSync(plain, turns.map(({ body }) => `${JSON.stringify(body)}\n`).join(''));
  expect(await printedBy(doctorCommand(), plain)).toBe(
    'Nothing broke a cache: 8 requests in 1 conversation.\n\n' +
      'Tokens are estimated at four bytes each where no answer has a count.\n',
  );
});

it('refuses what it cannot read or use, with the remedy', async () => {
  const other = join(dir, 'other.jsonl');
  writeFileSync(other, '{"a": 1}\n{"b": 2}\n');
  const said = async (...words: string[]): Promise<string> => (await endOf(['doctor', ...words])).stderr;
  expect(await said(other)).toContain(
    'has 2 entries, and no prompt in any. Give JSON lines of request bodies with messages',
  );
  expect(await said(join(dir, 'none.jsonl'))).toContain('does not exist. Name a file that is there.');
  expect(await said(file, '--gpu', 'H100')).toContain(
    '--gpu has no effect without a model. Name the model that was served.',
  );
  expect(await said(file, '--model', 'qwen/qwen3-14b', '--tp', 'x')).toMatch(/--tp is "x"/);
  expect(await said(file, '--json', file)).toContain('--json');
});
