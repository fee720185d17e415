/**
 * Powers of two and their inverse by + - * / and comparisons alone, which every engine rounds alike;
 * Math.pow and Math.log2 do not promise that.
 */

const LN2 = 0.6931471805599453;

/** 2 to the power of -x for x >= 0, within 1e-9 of the true value; 0 from x = 60 on. Falls as x grows. */
export function halved(x: number): number {
  if (!(x > 0)) return 1;
  if (x >= 60) return 0;
  const whole = Math.floor(x);
  const y = (x - whole) * LN2;
  // Taylor series of e^-y for 0 <= y < ln 2; the first term left out is below y^11 / 11!
  let value = 1;
  for (let k = 10; k > 0; k--) value = 1 - (y / k) * value;
  for (let i = 0; i < whole; i++) value *= 0.5;
  return value;
}

/** Logarithm to base 2 for x >= 1, within 1e-6 of the true value; 0 below. */
export function log2(x: number): number {
  if (!(x > 1)) return 0;
  let whole = 0;
  let rest = x;
  while (rest >= 2 && whole < 1024) {
    rest /= 2;
    whole++;
  }
  // ln m = 2 artanh((m - 1) / (m + 1)), 1 <= m < 2
  const t = (rest - 1) / (rest + 1);
  const tt = t * t;
  const series = t * (1 + tt * (1 / 3 + tt * (1 / 5 + tt * (1 / 7 + tt * (1 / 9 + tt / 11)))));
  return whole + (2 * series) / LN2;
}
