import fc from 'fast-check';
import { expect, it } from 'vitest';
import { TierKVError } from '../../../src/runtime/errors.ts';
import { type MooncakeRow, MooncakeRows } from '../../../src/sim/workload/importers.ts';
import { maxRequestTokens } from '../../../src/sim/workload/request.ts';
import { TraceLine } from '../../../src/sim/workload/traceLines.ts';

const place = { path: 'trace.jsonl', line: 17 };
/** What the one reader of such lines makes of a line that is the first of its trace. */
function read(text: string, blockTokens: number): MooncakeRow {
  const at = new TraceLine(place.path, place.line);
  return new MooncakeRows(blockTokens).read(at.json(text), at) ?? expect.fail('it is left out');
}
const fields = ['timestamp', 'input_length', 'output_length', 'hash_ids'] as const;

interface Line {
  timestamp: number;
  input_length: number;
  output_length: number;
  hash_ids: number[];
}

const lines: fc.Arbitrary<{ record: Line; blockTokens: number }> = fc
  .record({
    timestamp: fc.nat({ max: 1e12 }),
    output_length: fc.nat({ max: maxRequestTokens }),
    blockTokens: fc.integer({ min: 1, max: 1024 }),
    hash_ids: fc.uniqueArray(fc.nat({ max: 2 ** 31 - 1 }), { minLength: 1, maxLength: 40 }),
    partial: fc.nat(1023),
  })
  .map(({ blockTokens, hash_ids, partial, ...rest }) => ({
    record: {
      ...rest,
      input_length: Math.max(1, hash_ids.length * blockTokens - (partial % blockTokens)),
      hash_ids,
    },
    blockTokens,
  }));

function errorOf(text: string, blockTokens: number): TierKVError {
  try {
    const request = read(text, blockTokens);
    throw new Error(`passed as ${JSON.stringify(request)}`);
  } catch (error) {
    if (error instanceof TierKVError) return error;
    throw error;
  }
}

it('a good line keeps every value exactly', () => {
  fc.assert(
    fc.property(lines, ({ record, blockTokens }) => {
      const request = read(JSON.stringify(record), blockTokens);
      expect(request.arrivalUs).toBe(Math.round(record.timestamp * 1000));
      expect(request.inputTokens).toBe(record.input_length);
      expect(request.outputTokens).toBe(record.output_length);
      expect([...request.ids]).toEqual(record.hash_ids);
    }),
  );
});

it('a field that is gone or holds anything but a count is named', () => {
  const notACount = fc.oneof(
    fc.constant(undefined),
    fc.constant(null),
    fc.boolean(),
    fc.string(),
    fc.integer({ max: -1 }),
    fc.double({ noNaN: true, noDefaultInfinity: true, max: -5e-324 }),
    fc.integer({ min: 0, max: 1000 }).map((value) => 2 ** 53 + 2 * value),
    fc.dictionary(fc.string(), fc.nat()),
  );
  fc.assert(
    fc.property(lines, fc.constantFrom(...fields), notACount, ({ record, blockTokens }, field, value) => {
      const error = errorOf(JSON.stringify({ ...record, [field]: value }), blockTokens);
      expect(error).toMatchObject({ code: 'TKV_INPUT', field, ...place });
    }),
  );
});

it('a fraction is named where it counts something, and a time of a part of a millisecond is taken', () => {
  const fraction = fc
    .double({ min: 0.001, max: 1e6, noNaN: true })
    .filter((value) => !Number.isInteger(value));
  const counts = fields.filter((field) => field !== 'timestamp');
  fc.assert(
    fc.property(lines, fc.constantFrom(...counts), fraction, ({ record, blockTokens }, field, value) => {
      const error = errorOf(JSON.stringify({ ...record, [field]: value }), blockTokens);
      expect(error).toMatchObject({ code: 'TKV_INPUT', field, ...place });
      const request = read(JSON.stringify({ ...record, timestamp: value }), blockTokens);
      expect(request.arrivalUs).toBe(Math.round(value * 1000));
    }),
  );
});

it('an id list that is longer or shorter than the input is named', () => {
  fc.assert(
    fc.property(lines, fc.integer({ min: -40, max: 40 }), ({ record, blockTokens }, change) => {
      const length = record.hash_ids.length + change;
      fc.pre(change !== 0 && length >= 0);
      const hash_ids = Array.from({ length }, (_, i) => i);
      const error = errorOf(JSON.stringify({ ...record, hash_ids }), blockTokens);
      expect(error).toMatchObject({ code: 'TKV_INPUT', field: 'hash_ids', ...place });
    }),
  );
});

it('a line with characters lost, doubled or replaced is an error of one line, or reads as its JSON says', () => {
  const edits = fc.record({
    at: fc.nat(),
    remove: fc.nat(5),
    insert: fc.string({ maxLength: 3, unit: fc.constantFrom(...'0123456789-.eE,:[]{}" \\nulx\u{0}\u{1b}') }),
  });
  fc.assert(
    fc.property(lines, edits, ({ record, blockTokens }, { at, remove, insert }) => {
      const text = JSON.stringify(record);
      const cut = at % text.length;
      const changed = text.slice(0, cut) + insert + text.slice(cut + remove);
      try {
        const request = read(changed, blockTokens);
        const meant = JSON.parse(changed) as Line;
        expect([request.arrivalUs, request.inputTokens, request.outputTokens]).toEqual([
          Math.round((meant.timestamp + 0) * 1000),
          meant.input_length + 0,
          meant.output_length + 0,
        ]);
        expect(request.ids.map((id) => id + 0)).toEqual(meant.hash_ids.map((id) => id + 0));
      } catch (error) {
        if (!(error instanceof TierKVError)) throw error;
        expect(error).toMatchObject({ code: 'TKV_INPUT', ...place });
        expect(error.message).not.toContain('\n');
      }
    }),
    { numRuns: 2000 },
  );
});
