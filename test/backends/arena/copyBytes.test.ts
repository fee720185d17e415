import { describe, expect, it } from 'vitest';
import { copyBytes, sharedBytes } from '../../../src/backends/arena/index.ts';

const SIZES = [0, 1, 1023, 1024, 1025, 65_536, 65_537];

function bytesIn(kind: 'plain' | 'shared', bytes: number): Uint8Array {
  return kind === 'plain' ? new Uint8Array(bytes) : new Uint8Array(sharedBytes(Math.max(1, bytes)), 0, bytes);
}

describe('copying bytes', () => {
  for (const from of ['plain', 'shared'] as const) {
    for (const to of ['plain', 'shared'] as const) {
      it(`from ${from} to ${to} memory takes all bytes, those of whole buffers too, and touches no other`, () => {
        for (const bytes of SIZES) {
          for (const offset of [0, 3]) {
            const source = bytesIn(from, bytes + offset).subarray(offset);
            for (let i = 0; i < bytes; i++) source[i] = (i * 31 + 7) & 255;
            const target = bytesIn(to, bytes + 10).fill(250);
            copyBytes(source, target, 5);
            expect(Buffer.compare(target.subarray(5, 5 + bytes), source)).toBe(0);
            expect([...target.subarray(0, 5), ...target.subarray(5 + bytes)]).toEqual(Array(10).fill(250));
          }
        }
        const whole = from === 'plain' ? new Uint8Array(4096) : new Uint8Array(sharedBytes(65_536));
        whole.forEach((_, i) => void (whole[i] = i % 251));
        const target = bytesIn(to, whole.byteLength);
        copyBytes(whole, target);
        expect(Buffer.compare(target, whole)).toBe(0);
      });

      it(`from ${from} to ${to} memory that has no room for them throws and writes nothing`, () => {
        const source = bytesIn(from, 2048).fill(1);
        const target = bytesIn(to, 4096);
        expect(() => copyBytes(source, target, 2049)).toThrow(RangeError);
        expect(target.every((byte) => byte === 0)).toBe(true);
      });
    }
  }
});
