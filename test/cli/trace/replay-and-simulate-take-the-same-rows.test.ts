/** One format has one set of rules: what a replay takes of a trace a simulation takes, and the other way round. */

import fc from 'fast-check';
import { expect, it } from 'vitest';
import { mooncakeRequests } from '../../../src/sim/workload/importers.ts';
import { inputErrorOf, readAll, traceFile } from './traceFiles.ts';

function simulated(text: string): number | string {
  try {
    return [...mooncakeRequests(text.split('\n'), 'trace.jsonl')].length;
  } catch (error) {
    return (error as { field?: string }).field?.replace(/\[.*/, '') ?? 'line';
  }
}

async function replayed(text: string): Promise<number | string> {
  try {
    return (await readAll(traceFile('trace.jsonl', text))).length;
  } catch (error) {
    return (error as { field?: string }).field?.replace(/\[.*/, '') ?? 'line';
  }
}

const line = (row: object): string =>
  JSON.stringify({ timestamp: 0, input_length: 1100, output_length: 10, ...row });

it.each<readonly [string, readonly object[], RegExp]>([
  ['a block inside its own prefix', [{ hash_ids: [1, 1, 1] }], /names block 1 twice/],
  ['a block behind two others', [{ hash_ids: [1, 2, 3] }, { hash_ids: [4, 2, 3] }], /block 2 behind block 4/],
  ['a time that goes back', [{ timestamp: 9, hash_ids: [1, 2, 3] }, { hash_ids: [1, 2, 3] }], /timestamp/],
  ['a prompt without a token', [{ input_length: 0, hash_ids: [] }], /0 tokens/],
  ['an id above 2^31', [{ hash_ids: [1, 2, 2 ** 31] }], /hash_ids/],
  ['a time of a thousand years', [{ timestamp: 4e13, hash_ids: [1, 2, 3] }], /timestamp/],
])('%s is refused by both', async (_, rows, message) => {
  const text = rows.map(line).join('\n');
  const error = await inputErrorOf(readAll(traceFile('trace.jsonl', text)));
  expect(error.message).toMatch(message);
  expect(error.line).toBe(rows.length);
  expect(simulated(text)).toBe(await replayed(text));
});

it('a bad row that is left out changes nothing of what follows', async () => {
  const rows = [
    { hash_ids: [1, 2, 3] },
    { timestamp: 5, hash_ids: [1, 7, 1] },
    { timestamp: 2, hash_ids: [7, 8, 9] },
  ];
  const path = traceFile('trace.jsonl', rows.map(line).join('\n'));
  expect((await readAll(path, { skipBad: true })).map(({ line: at }) => at)).toEqual([1, 3]);
});

it('times with fractions are the same microseconds to both', async () => {
  const times = [0, 0.0004, 0.5, 1.0005, 1234.5678, 2 ** 31 + 0.25];
  const text = times.map((timestamp) => line({ timestamp, hash_ids: [1, 2, 3] })).join('\n');
  const taken = await readAll(traceFile('trace.jsonl', text));
  const arrivals = [...mooncakeRequests(text.split('\n'), 'trace.jsonl')].map(({ arrivalUs }) => arrivalUs);
  expect(taken.map(({ arrivalUs }) => arrivalUs)).toEqual(arrivals);
  expect(arrivals).toEqual([0, 0, 500, 1001, 1_234_568, 2_147_483_648_250]);
});

it('any rows are taken by both, or by neither', async () => {
  const row = fc.record({
    timestamp: fc.oneof(fc.integer({ min: -1, max: 20 }), fc.double({ min: -1, max: 20, noNaN: true })),
    input_length: fc.oneof(fc.constant(1100), fc.integer({ min: -1, max: 2000 })),
    output_length: fc.integer({ min: -1, max: 9 }),
    hash_ids: fc.oneof(fc.constant([1, 2, 3]), fc.array(fc.integer({ min: -1, max: 5 }), { maxLength: 4 })),
  });
  await fc.assert(
    fc.asyncProperty(fc.array(row, { minLength: 1, maxLength: 4 }), async (rows) => {
      const text = rows.map((each) => JSON.stringify(each)).join('\n');
      expect(typeof (await replayed(text))).toBe(typeof simulated(text));
    }),
    { numRuns: 300 },
  );
});
