/**
 * Damage to a good input: numbers that no one means, texts that grow without end, structures nested beyond
 * measure, bytes lost, doubled and turned, compression that lies. Everything follows from the random numbers
 * given.
 */

import { gzipSync, zstdCompressSync } from 'node:zlib';
import type { Random } from '../fuzz/random.ts';

const numbers = [
  ...[
    '0',
    '-1',
    '-0',
    '0.5',
    '1e-300',
    '1e308',
    '1e999',
    '-1e308',
    '2147483648',
    '4294967296',
    '700',
    '16777217',
  ],
  ...[
    '9007199254740993',
    '99999999999999999999',
    '123456789012345678901234567890',
    '1000000000',
    '100000000',
  ],
  ...[
    'NaN',
    '.nan',
    '.inf',
    'Infinity',
    '0x10',
    '1_000',
    'null',
    'true',
    '""',
    '[]',
    '{}',
    '[1]',
    '"x"',
    '*a',
    '&a 1',
  ],
];
const words = [
  ...[
    '',
    '\0',
    '\u{1b}[31m',
    '\r',
    '\u{2028}',
    '"',
    "'",
    '{',
    '}',
    '[',
    ']',
    ':',
    ',',
    '#',
    '|',
    '>',
    '%',
    '@',
    '!!x',
  ],
  ...['constructor', '__proto__', 'toString', 'all', '-1', '..', '/etc/passwd', '<<: *x'],
];

/** Structures that cost more than they look. */
const burdens: readonly ((random: Random) => string)[] = [
  () => '['.repeat(100_000),
  () => `${'['.repeat(100_000)}${']'.repeat(100_000)}`,
  () => '{"a":'.repeat(50_000),
  () => '- '.repeat(50_000),
  () => `[${'1,'.repeat(1_000_000)}1]`,
  () => 'x'.repeat(3_000_000),
  () => `"${'\\n'.repeat(500_000)}"`,
  () => '9'.repeat(300_000),
  () => `,${'a'.repeat(20)}`.repeat(100_000),
  () => '\n'.repeat(300_000),
  () => 'a: b\n'.repeat(100_000),
  () =>
    Array.from(
      { length: 30 },
      (_, i) => `k${i}: &b${i} [${i === 0 ? '1' : Array(9).fill(`*b${i - 1}`)}]\n`,
    ).join(''),
];

type Mutation = (text: string, random: Random) => string;

/** Replaces one of the places that `pattern` finds. */
function replaceOne(text: string, pattern: RegExp, random: Random, by: string): string {
  const places = [...text.matchAll(pattern)];
  if (places.length === 0) return text + by;
  const { index, 0: found } = random.pick(places);
  return text.slice(0, index) + by + text.slice(index + found.length);
}

const number = /-?\d+(\.\d+)?/g;
const value = /(?<=: )[^\n,{}[\]]+/g;
const word = /[A-Za-z_]{3,}/g;

const mutations: readonly Mutation[] = [
  (text, random) => replaceOne(text, number, random, random.pick(numbers)),
  (text, random) => replaceOne(text, number, random, random.pick(numbers)),
  (text, random) => replaceOne(text, number, random, String(random.below(2 ** 31))),
  (text, random) => replaceOne(text, value, random, random.pick(numbers)),
  (text, random) => replaceOne(text, word, random, random.pick(words)),
  (text, random) =>
    replaceOne(text, random.pick([number, value, word]), random, random.pick(burdens)(random)),
  (text, random) => text.slice(0, random.below(text.length + 1)),
  (text, random) => {
    const at = random.below(text.length + 1);
    return text.slice(0, at) + random.pick(words) + text.slice(at + random.below(6));
  },
  (text, random) => {
    const rows = text.split('\n');
    const at = random.below(rows.length);
    const row = rows[at];
    rows.splice(at, random.below(3), ...Array.from({ length: random.pick([0, 1, 2, 3000]) }, () => row));
    return rows.join('\n');
  },
  (text, random) => {
    const rows = text.split('\n');
    const [a, b] = [random.below(rows.length), random.below(rows.length)];
    [rows[a], rows[b]] = [rows[b], rows[a]];
    return rows.join('\n');
  },
];

export interface Damaged {
  readonly bytes: Buffer;
  /** What is to be added to the file's name: '', `.gz` or `.zst`. */
  readonly suffix: string;
}

/**
 * One to four mutations of a text, now and then compressed. @param mend what half of the damaged texts go
 * through, so that their checks are right
 */
export function damage(text: string, random: Random, mend?: (text: string) => string): Damaged {
  let changed = text;
  for (let left = random.between(1, 4); left > 0 && changed.length < 8_000_000; left--) {
    changed = random.pick(mutations)(changed, random);
  }
  if (mend !== undefined && random.chance(0.5)) changed = mend(changed);
  const bytes = Buffer.from(changed);
  if (random.chance(0.1) && bytes.length > 0) bytes[random.below(bytes.length)] = random.below(256);
  if (random.chance(0.85)) return { bytes, suffix: '' };
  const suffix = random.pick(['.gz', '.zst']);
  const packed = suffix === '.gz' ? gzipSync(bytes) : zstdCompressSync(bytes);
  if (random.chance(0.5)) return { bytes: packed, suffix };
  if (random.chance(0.5)) return { bytes: packed.subarray(0, random.below(packed.length)), suffix };
  packed[random.below(packed.length)] ^= 1 << random.below(8);
  return { bytes: packed, suffix };
}
