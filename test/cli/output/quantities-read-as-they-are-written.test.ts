import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  formatBytes,
  formatBytesPerS,
  formatCount,
  formatCounted,
  formatSeconds,
  formatShare,
} from '../../../src/io/printing/text.ts';
import { parseBytes } from '../../../src/runtime/sizes.ts';

describe('sizes', () => {
  it.each([
    ['0', 0],
    ['65536', 65_536],
    ['64KiB', 65_536],
    [' 64 KiB ', 65_536],
    ['3B', 3],
    ['2MiB', 2_097_152],
    ['1GiB', 2 ** 30],
    ['4TiB', 2 ** 42],
  ])('"%s" is %i bytes', (text, bytes) => {
    expect(parseBytes('--block-bytes', text)).toBe(bytes);
  });

  it.each([
    '',
    'KiB',
    '-1',
    '1.3B',
    '64KB',
    '64kib',
    '1e3',
    'NaN',
    'Infinity',
    '0x10',
    '9007199254740993',
    '9000TiB',
  ])('"%s" is refused with the name of the option', (text) => {
    expect(() => parseBytes('--block-bytes', text)).toThrow(
      expect.objectContaining({ code: 'TKV_CONFIG', field: '--block-bytes' }),
    );
  });

  it('a fraction of a unit is read where it makes whole bytes', () => {
    expect(parseBytes('--block-bytes', '1.5MiB')).toBe(1.5 * 1024 ** 2);
    expect(() => parseBytes('--block-bytes', '0.3KiB')).toThrow(/--block-bytes/);
  });

  it('a whole number of any unit reads back as written', () => {
    fc.assert(
      fc.property(fc.integer({ min: 1, max: 99 }), fc.nat(4), (count, unit) => {
        expect(parseBytes('size', formatBytes(count * 1024 ** unit).replace('bytes', 'B'))).toBe(
          count * 1024 ** unit,
        );
      }),
    );
  });

  it('a size keeps three significant digits', () => {
    expect([999, 1024, 1536, 123_456, 5_000_000, 2 ** 40 * 1.25].map(formatBytes)).toEqual([
      '999 bytes',
      '1 KiB',
      '1.5 KiB',
      '121 KiB',
      '4.77 MiB',
      '1.25 TiB',
    ]);
  });
});

describe('other quantities', () => {
  it('rates are decimal, in the unit that fits', () => {
    expect([2_340_000_000, 125_000_000, 42_000_000, 900].map(formatBytesPerS)).toEqual([
      '2.34 GB/s',
      '125 MB/s',
      '42 MB/s',
      '0.9 kB/s',
    ]);
  });

  it('counts are exact', () => {
    fc.assert(
      fc.property(fc.maxSafeNat(), (count) => {
        const text = formatCount(count);
        expect(text).toMatch(/^\d{1,3}(,\d{3})*$/);
        expect(Number(text.replaceAll(',', ''))).toBe(count);
      }),
    );
  });

  it('a share of nothing is a dash, not a number', () => {
    expect(formatShare(0, 0)).toBe('-');
    expect(formatShare(12_847, 288_500)).toBe('4.45 %');
  });

  it('times change unit without ever showing sixty of the smaller one', () => {
    expect([0, 0.04, 59.94, 59.96, 119.6, 3599.7, 7260, Number.POSITIVE_INFINITY].map(formatSeconds)).toEqual(
      ['0.0 s', '0.0 s', '59.9 s', '1 min 0 s', '2 min 0 s', '1 h 0 min', '2 h 1 min', '-'],
    );
  });
});

it.each([
  [0, 'requests', '0 requests'],
  [1, 'requests', '1 request'],
  [1, 'policies', '1 policy'],
  [2000, 'policies', '2,000 policies'],
  [1, 'blocks of 16 tokens', '1 block of 16 tokens'],
])('%d %s are %s', (count, plural, text) => {
  expect(formatCounted(count, plural)).toBe(text);
});
