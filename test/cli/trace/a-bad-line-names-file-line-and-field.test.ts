import { describe, expect, it } from 'vitest';
import { inputErrorOf, mooncakeLine, mooncakeLines, readAll, traceFile } from './traceFiles.ts';

const good = { timestamp: 27000, input_length: 1000, output_length: 52, hash_ids: [0, 7] };
const without = (field: string): string => JSON.stringify({ ...good, [field]: undefined });
const having = (change: object): string => JSON.stringify({ ...good, ...change });

const badLines: [what: string, line: string, field: string | undefined, says: RegExp][] = [
  ['text that is not JSON', 'timestamp: 3', undefined, /is not valid JSON/],
  ['a line cut in the middle', mooncakeLine(1).slice(0, -5), undefined, /is not valid JSON/],
  ['a JSON list', '[1, 2]', undefined, /is \[1,2\], not a JSON object/],
  ['null', 'null', undefined, /is null, not a JSON object/],
  ['no timestamp', without('timestamp'), 'timestamp', /timestamp is missing/],
  ['no input_length', without('input_length'), 'input_length', /input_length is missing/],
  ['no output_length', without('output_length'), 'output_length', /output_length is missing/],
  ['no hash_ids', without('hash_ids'), 'hash_ids', /hash_ids is missing/],
  [
    'a length as text',
    having({ input_length: '1000' }),
    'input_length',
    /is "1000"\. Set it to a number of at least 0/,
  ],
  ['a length of null', having({ output_length: null }), 'output_length', /is null\. Set/],
  [
    'a negative input',
    having({ input_length: -1, hash_ids: [] }),
    'input_length',
    /is -1\. Set it to a number of at least 0/,
  ],
  ['a negative output', having({ output_length: -52 }), 'output_length', /is -52\. Set/],
  ['a negative time', having({ timestamp: -0.5 }), 'timestamp', /is -0\.5\. Set/],
  ['a fractional length', having({ input_length: 999.5 }), 'input_length', /999\.5\. Set it to an integer/],
  [
    'a length beyond 2^53',
    having({ output_length: 2 ** 53 }),
    'output_length',
    /is 9007199254740992\. Set it to an integer below 2\^53/,
  ],
  ['too few ids', having({ hash_ids: [0] }), 'hash_ids', /holds 1 ids for 1000 tokens, 2 blocks of 512/],
  ['too many ids', having({ hash_ids: [0, 7, 8] }), 'hash_ids', /holds 3 ids/],
  ['ids as text', having({ hash_ids: '0,7' }), 'hash_ids', /is "0,7", not a list/],
  [
    'one id as text',
    having({ hash_ids: [0, '7'] }),
    'hash_ids[1]',
    /hash_ids\[1\] is "7"\. Write integers from 0/,
  ],
  ['a negative id', having({ hash_ids: [-3, 7] }), 'hash_ids[0]', /hash_ids\[0\] is -3\. Write/],
  ['a fractional id', having({ hash_ids: [0, 7.25] }), 'hash_ids[1]', /is 7\.25\. Write/],
  ['an id of 2^53', having({ hash_ids: [0, 2 ** 53] }), 'hash_ids[1]', /is 9007199254740992\. Write/],
  ['a huge value', `{"timestamp": "${'x'.repeat(5000)}"}`, 'timestamp', /is "x{39}\.\.\.\. Set/],
];

describe('a line of a trace that cannot be right', () => {
  it.each(badLines)('%s ends the reading with file, line and field', async (_, line, field, says) => {
    const path = traceFile('bad.jsonl', `${mooncakeLines(2)}${line}\n${mooncakeLine(9)}\n`);
    const error = await inputErrorOf(readAll(path));
    expect(error.message).toMatch(says);
    expect(error.message.startsWith(`${path}:3: `)).toBe(true);
    expect(error.message).not.toContain('\n');
    expect(error).toMatchObject({ path, line: 3, field });
  });

  it.each(badLines)('%s is counted and left out with skipBad', async (_, line, field) => {
    const path = traceFile('bad.jsonl', `${line}\n${mooncakeLine(1)}\n${line}\n${mooncakeLine(2)}\n`);
    const left: (number | undefined)[] = [];
    const requests = await readAll(path, {
      skipBad: true,
      onSkip: (error) => {
        expect(error.field).toBe(field);
        left.push(error.line);
      },
    });
    expect(left).toEqual([1, 3]);
    expect(requests.map((request) => [request.line, request.arrivalUs])).toEqual([
      [2, 1_000_000],
      [4, 2_000_000],
    ]);
  });

  it('ids that agree with another block size pass once the block size is said', async () => {
    const path = traceFile('blocks.jsonl', having({ input_length: 130, hash_ids: [1, 2, 3] }));
    expect((await inputErrorOf(readAll(path))).field).toBe('hash_ids');
    const [request] = await readAll(path, { blockTokens: 64 });
    expect([...request.hashIds]).toEqual([1, 2, 3]);
  });
});
