/** Times in the cells of a table, as µs: dates count from the first row, numbers from 0 in a named unit. */

import { shown } from '../../shown.ts';
import type { TraceLine } from '../lines.ts';

const TICKS_PER_DAY = 864_000_000_000; // of 100 ns

/** Days from 1970-01-01 to a date of the Gregorian calendar. */
function dayNumber(year: number, month: number, day: number): number {
  const y = month <= 2 ? year - 1 : year;
  const era = Math.floor(y / 400);
  const yearOfEra = y - era * 400;
  const dayOfYear = Math.floor((153 * (month + (month > 2 ? -3 : 9)) + 2) / 5) + day - 1;
  const dayOfEra = yearOfEra * 365 + Math.floor(yearOfEra / 4) - Math.floor(yearOfEra / 100) + dayOfYear;
  return era * 146_097 + dayOfEra - 719_468;
}

const DATE = /^(\d{4})-(\d\d)-(\d\d)[ T](\d\d):(\d\d):(\d\d)(?:\.(\d{1,9}))?(?:Z|\+00:00)?$/;

export function isDate(text: string): boolean {
  return DATE.test(text.trim());
}

/** The times of a column, each at or behind the one before. */
export interface ColumnTimes {
  us(text: string, at: TraceLine): number;
}

export class DateTimes implements ColumnTimes {
  readonly #field: string;
  #first: { readonly day: number; readonly ticks: number } | undefined;
  #previousUs = 0;

  constructor(field: string) {
    this.#field = field;
  }

  us(text: string, at: TraceLine): number {
    const time = this.#parse(text, at);
    this.#first ??= time;
    const ticks = (time.day - this.#first.day) * TICKS_PER_DAY + time.ticks - this.#first.ticks;
    this.#previousUs = at.requireOrder(this.#field, Math.floor(ticks / 10), this.#previousUs);
    return this.#previousUs;
  }

  #parse(text: string, at: TraceLine): { day: number; ticks: number } {
    const parts = DATE.exec(text.trim());
    if (parts === null)
      throw at.error(this.#field, `is ${shown(text)}`, 'Write it as 2023-11-16 18:17:03.9799600, in UTC');
    const [year, month, day, hour, minute, second] = parts.slice(1, 7).map(Number);
    if (month < 1 || month > 12 || day < 1 || day > 31 || hour > 23 || minute > 59 || second > 60) {
      throw at.error(this.#field, `is ${shown(text)}, no date`, 'Mend the line');
    }
    const fraction = Math.trunc(Number((parts[7] ?? '').padEnd(7, '0').slice(0, 7)));
    return { day: dayNumber(year, month, day), ticks: ((hour * 60 + minute) * 60 + second) * 1e7 + fraction };
  }
}

/** µs of one unit. */
export const timeUnits: Readonly<Record<string, number>> = { s: 1e6, ms: 1e3, us: 1, ns: 1e-3 };

export class UnitTimes implements ColumnTimes {
  readonly #field: string;
  readonly #unit: string;
  #previousUs = 0;

  constructor(field: string, unit: string) {
    this.#field = field;
    this.#unit = unit;
  }

  us(text: string, at: TraceLine): number {
    const value = at.decimal(text);
    if (!(value >= 0)) {
      throw at.error(this.#field, `is ${shown(text)}`, `Write a time of at least 0, in ${this.#unit}`);
    }
    const us = Math.round(value * timeUnits[this.#unit]);
    this.#previousUs = at.requireOrder(this.#field, at.withinTrace(this.#field, us), this.#previousUs);
    return this.#previousUs;
  }
}
