import { expect, it } from 'vitest';
import { remaining } from '../../../../src/backends/file/posixFolder.ts';

it('a vectored call goes on exactly where the system cut it short', () => {
  const whole = Uint8Array.from({ length: 24 }, (_, index) => index);
  const parts = [whole.subarray(0, 8), whole.subarray(8, 9), whole.subarray(9, 24)];
  for (let moved = 0; moved <= whole.length; moved++) {
    const left = remaining(parts, moved);
    expect(left.flatMap((part) => [...part])).toEqual([...whole.subarray(moved)]);
    expect(left.every((part) => part.byteLength > 0 && part.buffer === whole.buffer)).toBe(true);
  }
});
