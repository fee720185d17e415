/** Scales between the values of a number and the interval from 0 to 1. */

import type { NumberRule } from '../../../sim/control/registry/index.ts';
import { elementary } from '../../../sim/random/index.ts';

export type Scale =
  | { readonly kind: 'linear'; readonly min: number; readonly max: number; readonly isInteger: boolean }
  /** Equal steps are equal factors. `min` is above 0. */
  | {
      readonly kind: 'logarithmic';
      readonly min: number;
      readonly max: number;
      readonly isInteger: boolean;
      /** What the uppermost tenth stands for: "no limit", or "off". */
      readonly beyond?: number;
    }
  /** One of `count` numbers from 0 on. */
  | { readonly kind: 'choice'; readonly count: number };

/** From here on a default means "no limit". */
const UNLIMITED = 2 ** 40;
/** From this greatest value on, a default of 0 stands for "off". */
const WIDE = 2 ** 16;
/** Ratio of the ends of a scale of which the rule gives no upper end. */
const SPAN = 64;
const BELOW_BEYOND = 0.9;

/** Search goes no further than the rule; where the rule has no end, from the default on by some factors. */
export function scaleOfRule(rule: NumberRule): Scale {
  const isInteger = rule.integer === true;
  const least = rule.min ?? (rule.above === undefined ? -Infinity : rule.above);
  const { default: usual } = rule;
  if (usual >= UNLIMITED) {
    return { kind: 'logarithmic', min: 1, max: 4096, isInteger, beyond: usual };
  }
  if (usual === 0 && least === 0 && rule.max !== undefined && rule.max >= WIDE) {
    return { kind: 'logarithmic', min: 1, max: rule.max, isInteger, beyond: 0 };
  }
  // a bound that may not be reached itself
  const inside = (from: number, to: number): number =>
    rule.above !== undefined && from <= rule.above ? rule.above + (to - rule.above) / 1024 : from;
  if (usual > 0 && (rule.max === undefined || rule.max > usual * SPAN)) {
    const from = Math.max(usual / SPAN, least);
    const min = isInteger ? Math.max(1, Math.round(from)) : from;
    const max = Math.min(rule.max ?? Infinity, usual * SPAN);
    return { kind: 'logarithmic', min: inside(min, usual), max, isInteger };
  }
  const min = Number.isFinite(least) ? least : Math.min(-1, usual - 2 * Math.abs(usual));
  const max = rule.max ?? Math.max(SPAN, usual * 2);
  return { kind: 'linear', min: inside(min, max), max, isInteger };
}

/** The scale of a number in a program; undefined where it is left alone: 0, and stand-ins for infinity. */
export function scaleOfLiteral(value: number): Scale | undefined {
  if (!(value > 0) || value >= 1e8) return undefined;
  return { kind: 'logarithmic', min: value / 8, max: value * 8, isInteger: false };
}

export function toUnit(scale: Scale, value: number): number {
  const within = (unit: number): number => Math.min(1, Math.max(0, unit));
  switch (scale.kind) {
    case 'choice':
      return (value + 0.5) / scale.count;
    case 'linear':
      return within((value - scale.min) / (scale.max - scale.min));
    case 'logarithmic': {
      if (value === scale.beyond) return 1;
      const clipped = Math.min(scale.max, Math.max(scale.min, value));
      const unit = elementary.log(clipped / scale.min) / elementary.log(scale.max / scale.min);
      return within(scale.beyond === undefined ? unit : unit * BELOW_BEYOND);
    }
  }
}

/** @param unit from 0 to 1 */
export function toValue(scale: Scale, unit: number): number {
  if (scale.kind === 'choice') return Math.min(scale.count - 1, Math.floor(unit * scale.count));
  let value: number;
  if (scale.kind === 'linear') value = scale.min + (scale.max - scale.min) * unit;
  else {
    if (scale.beyond !== undefined && unit > BELOW_BEYOND) return scale.beyond;
    const share = scale.beyond === undefined ? unit : unit / BELOW_BEYOND;
    value = scale.min * elementary.exp(share * elementary.log(scale.max / scale.min));
  }
  if (scale.isInteger) value = Math.round(value);
  else value = Number(value.toPrecision(5));
  return Math.min(scale.max, Math.max(scale.min, value));
}

/** Width of one step of an integer or a choice on the unit interval; 0 for other numbers. */
export function stepOf(scale: Scale): number {
  if (scale.kind === 'choice') return 1 / scale.count;
  if (!scale.isInteger) return 0;
  if (scale.kind === 'linear') return 1 / Math.max(1, scale.max - scale.min);
  return 1 / (16 * Math.max(1, elementary.log(scale.max / scale.min)));
}
