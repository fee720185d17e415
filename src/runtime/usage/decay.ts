/**
 * Powers of one half by + - * / and comparisons alone, which every engine rounds alike; Math.pow does not
 * promise that.
 */

/** 2 to the power of -x for x >= 0, within 1e-9 of the true value; 0 from x = 60 on. Falls as x grows. */
export function halved(x: number): number {
  if (!(x > 0)) return 1;
  if (x >= 60) return 0;
  const whole = Math.floor(x);
  const y = (x - whole) * Math.LN2;
  // Taylor series of e^-y for 0 <= y < ln 2; the first term left out is below y^11 / 11!
  let value = 1;
  for (let k = 10; k > 0; k--) value = 1 - (y / k) * value;
  for (let i = 0; i < whole; i++) value *= 0.5;
  return value;
}
