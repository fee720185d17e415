/**
 * Elementary functions in plain IEEE arithmetic, so that a draw has the same bits in every JavaScript engine;
 * `Math.exp` and its like may differ between engines in the last bit. The operations come in the
 * order of Go's library where Go has a portable form (log, pow, gamma, cos: equal to the last bit). Go's `exp` on amd64
 * uses fused instructions; ours may differ from it by one unit in the last place.
 *
 * log and exp follow the methods and constants of FreeBSD's msun: Copyright (C) 1993, 2004 by Sun
 * Microsystems, Inc. "Permission to use, copy, modify, and distribute this software is freely granted,
 * provided that this notice is preserved." gamma and cos use the rational approximations of the Cephes
 * library by Stephen L. Moshier.
 */

const LN2_HIGH = 0.6931471803691238;
const LN2_LOW = 1.9082149292705877e-10;

const view: DataView = new DataView(new ArrayBuffer(8));

/** The binary exponent e of a positive normal or subnormal x = m · 2^e with m in [0.5, 1). */
function binaryExponent(x: number): number {
  view.setFloat64(0, x);
  const biased = (view.getUint16(0) >>> 4) & 0x7ff;
  if (biased !== 0) return biased - 1022;
  return binaryExponent(x * 2 ** 54) - 54;
}

/** m · 2^e in two exact steps and one rounding. */
function scale(mantissa: number, exponent: number): number {
  if (exponent > 2100) return mantissa * Infinity;
  if (exponent < -2200) return mantissa * 0;
  let value = mantissa;
  let left = exponent;
  while (left > 1000) {
    value *= 2 ** 1000;
    left -= 1000;
  }
  if (left < -1000) {
    const e = binaryExponent(Math.abs(value)) + left;
    if (e > -1020) return value * 2 ** -1000 * 2 ** (left + 1000);
    // into the subnormal range: bring the mantissa next to the edge exactly, then round once
    const edge = -1000 - binaryExponent(Math.abs(value));
    return value * 2 ** edge * 2 ** (left - edge);
  }
  return value * 2 ** left;
}

/** Natural logarithm. */
export function log(x: number): number {
  if (!(x > 0) || x === Infinity) return x === 0 ? -Infinity : x < 0 ? Number.NaN : x;
  let k = binaryExponent(x);
  let mantissa = scale(x, -k);
  if (mantissa < Math.SQRT1_2) {
    mantissa *= 2;
    k--;
  }
  const f = mantissa - 1;
  const s = f / (2 + f);
  const s2 = s * s;
  const s4 = s2 * s2;
  const odd =
    s2 *
    (0.6666666666666735 + s4 * (0.2857142874366239 + s4 * (0.1818357216161805 + s4 * 0.14798198605116586)));
  const even = s4 * (0.3999999999940942 + s4 * (0.22222198432149784 + s4 * 0.15313837699209373));
  const halfSquare = 0.5 * f * f;
  return k * LN2_HIGH - (halfSquare - (s * (halfSquare + (odd + even)) + k * LN2_LOW) - f);
}

/** e^x. */
export function exp(x: number): number {
  if (Number.isNaN(x)) return x;
  if (x > 709.782712893384) return Infinity;
  if (x < -745.1332191019411) return 0;
  if (Math.abs(x) < 2 ** -28) return 1 + x;
  const k = Math.trunc(Math.LOG2E * x + (x < 0 ? -0.5 : 0.5));
  const high = x - k * LN2_HIGH;
  const low = k * LN2_LOW;
  const r = high - low;
  const t = r * r;
  const c =
    r -
    t *
      (0.16666666666666666 +
        t *
          (-0.0027777777777015593 +
            t * (0.00006613756321437934 + t * (-0.0000016533902205465252 + t * 4.1381367970572385e-8))));
  return scale(1 - (low - (r * c) / (2 - c) - high), k);
}

/** x^y for x >= 0 and finite arguments, by squarings for the integer part and exp·log for the rest. */
export function pow(x: number, y: number): number {
  if (y === 0 || x === 1) return 1;
  if (y === 1) return x;
  if (x === 0) return y < 0 ? Infinity : 0;
  if (x === Infinity) return y < 0 ? 0 : Infinity;
  if (!(x > 0) || !Number.isFinite(y)) return Number.NaN;
  if (y === 0.5) return Math.sqrt(x);
  if (y === -0.5) return 1 / Math.sqrt(x);
  const magnitude = Math.abs(y);
  let whole = Math.trunc(magnitude);
  let fraction = magnitude - whole;
  if (whole >= 2 ** 63) return x < 1 === y > 0 ? 0 : Infinity;
  let result = 1;
  let resultExponent = 0;
  if (fraction !== 0) {
    if (fraction > 0.5) {
      fraction--;
      whole++;
    }
    result = exp(fraction * log(x));
  }
  let exponent = binaryExponent(x);
  let mantissa = scale(x, -exponent);
  for (; whole !== 0; whole = Math.floor(whole / 2)) {
    if (Math.abs(exponent) > 4096) {
      resultExponent += exponent;
      break;
    }
    if (whole % 2 === 1) {
      result *= mantissa;
      resultExponent += exponent;
    }
    mantissa *= mantissa;
    exponent *= 2;
    if (mantissa < 0.5) {
      mantissa += mantissa;
      exponent--;
    }
  }
  return y < 0 ? scale(1 / result, -resultExponent) : scale(result, resultExponent);
}

/** Γ(x) for x in (0, 33]. */
export function gamma(x: number): number {
  let z = 1;
  let u = x;
  while (u >= 3) {
    u -= 1;
    z *= u;
  }
  while (u < 2) {
    z /= u;
    u += 1;
  }
  if (u === 2) return z;
  u -= 2;
  const p =
    (((((u * 0.00016011952247675185 + 0.0011913514700658638) * u + 0.010421379756176158) * u +
      0.04763678004571372) *
      u +
      0.20744822764843598) *
      u +
      0.4942148268014971) *
      u +
    1;
  const q =
    ((((((u * -0.000023158187332412014 + 0.0005396055804933034) * u + -0.004456419138517973) * u +
      0.011813978522206043) *
      u +
      0.035823639860549865) *
      u +
      -0.23459179571824335) *
      u +
      0.0714304917030273) *
      u +
    1;
  return (z * p) / q;
}

/** cos x for |x| up to a few turns. */
export function cos(x: number): number {
  const magnitude = Math.abs(x);
  let octant = Math.trunc(magnitude * (4 / Math.PI));
  if (octant % 2 === 1) octant++;
  const z =
    magnitude - octant * 0.7853981256484985 - octant * 3.774894707930798e-8 - octant * 2.6951514290790595e-15;
  const phase = octant % 8;
  const zz = z * z;
  const folded = phase > 3 ? phase - 4 : phase;
  const negative = phase > 3 !== folded > 1;
  let value: number;
  if (folded === 2) {
    value =
      z +
      z *
        zz *
        (((((1.5896230157654656e-10 * zz + -2.5050747762857807e-8) * zz + 0.0000027557313621385722) * zz +
          -0.0001984126982958954) *
          zz +
          0.008333333333322118) *
          zz +
          -0.1666666666666663);
  } else {
    value =
      1 -
      0.5 * zz +
      zz *
        zz *
        (((((-1.1358536521387682e-11 * zz + 2.087570084197473e-9) * zz + -2.755731417929674e-7) * zz +
          0.000024801587288851704) *
          zz +
          -0.0013888888888873056) *
          zz +
          0.041666666666666595);
  }
  return negative ? -value : value;
}

/** Rounds half away from zero, as Go's `math.Round`. */
export function roundHalfAway(x: number): number {
  const whole = Math.trunc(x);
  return Math.abs(x - whole) >= 0.5 ? whole + Math.sign(x) : whole;
}
