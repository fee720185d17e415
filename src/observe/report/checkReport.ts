/**
 * Checks a report before a page is made of it, down to the last cell: what is missing, unknown or of another kind is named
 * with its place, such as `report.sections[2].bars[0].value`.
 */

import { described, TierKVError } from '../../runtime/errors.ts';
import { oneOf, requireArray, requireObject, requireOptions } from '../../runtime/options.ts';
import { type Report, type ReportSection, unitNames } from './model.ts';

/** Checks a value at a place. @throws TierKVError with the place */
type Check = (value: unknown, field: string) => void;

function kind(words: string, holds: (value: unknown) => boolean): Check {
  return (value, field) => {
    if (holds(value)) return;
    const problem = `${field} must be ${words}, and it is ${described(value)}`;
    throw new TierKVError('TKV_INPUT', `${problem}. Pass ${words}.`, { field });
  };
}

const isNumber = (value: unknown): boolean => typeof value === 'number';
const isText = (value: unknown): boolean => typeof value === 'string';
const text = kind('text', isText);
const number = kind('a number', isNumber);
const flag = kind('true or false', (value) => typeof value === 'boolean');
const numberOrNull = kind('a number, or null', (value) => value === null || isNumber(value));
const cell = kind('text, a number or null', (value) => value === null || isText(value) || isNumber(value));
const point = kind(
  'a pair of numbers',
  (value) => Array.isArray(value) && value.length === 2 && value.every(isNumber),
);

const optional =
  (check: Check): Check =>
  (value, field) => {
    if (value !== undefined) check(value, field);
  };

const list =
  (check: Check): Check =>
  (value, field) => {
    requireArray(value as readonly unknown[], field, 'Pass an array.');
    for (const [i, each] of (value as readonly unknown[]).entries()) check(each, `${field}[${i}]`);
  };

/** An object of these fields and no others. */
const fields =
  (checks: Readonly<Record<string, Check>>): Check =>
  (value, field) => {
    const names = Object.keys(checks);
    requireOptions(value as object, names, field, 'TKV_INPUT', names);
    for (const [name, check] of Object.entries(checks)) {
      check((value as Readonly<Record<string, unknown>>)[name], `${field}.${name}`);
    }
  };

const named =
  (names: readonly string[]): Check =>
  (value, field) => {
    oneOf(field, value as string, names);
  };

const texts: Check = (value, field) => {
  const names = Object.keys(value ?? {});
  requireOptions(value as object, names, field, 'TKV_INPUT', names);
  for (const [name, each] of Object.entries(value as object)) text(each, `${field}.${name}`);
};

const unit: Check = named(unitNames);
const titled = { kind: text, title: text, note: optional(text) };
const axis = fields({ title: text, unit, isLog: optional(flag) });

const sectionChecks: { readonly [Kind in ReportSection['kind']]: Check } = {
  text: fields({ kind: text, title: text, paragraphs: list(text) }),
  table: (value, field) => {
    fields({
      ...titled,
      columns: list(fields({ title: text, unit: optional(unit) })),
      rows: list(list(cell)),
      chosen: optional(number),
    })(value, field);
    const { columns, rows } = value as { columns: readonly unknown[]; rows: readonly (readonly unknown[])[] };
    const odd = rows.findIndex((row) => row.length !== columns.length);
    if (odd === -1) return;
    const problem = `${field}.rows[${odd}] has ${rows[odd].length} cells, and the table has ${columns.length} columns`;
    throw new TierKVError('TKV_INPUT', `${problem}. Give a cell a column; null for what is not known.`, {
      field: `${field}.rows[${odd}]`,
    });
  },
  lines: fields({ ...titled, x: axis, y: axis, series: list(fields({ name: text, points: list(point) })) }),
  points: fields({
    ...titled,
    x: axis,
    y: axis,
    points: list(
      fields({ x: number, y: number, name: text, group: optional(text), isChosen: optional(flag) }),
    ),
  }),
  bars: fields({
    ...titled,
    unit,
    bars: list(
      fields({
        name: text,
        value: number,
        low: optional(number),
        high: optional(number),
        group: optional(text),
        isChosen: optional(flag),
      }),
    ),
  }),
  distributions: fields({
    ...titled,
    unit,
    series: list(
      fields({
        name: text,
        quantiles: list(number),
        count: number,
        target: optional(fields({ most: number, share: number })),
      }),
    ),
  }),
  timeline: fields({
    ...titled,
    lanes: list(
      fields({
        name: text,
        unit,
        isStacked: optional(flag),
        series: list(fields({ name: text, points: list(point) })),
      }),
    ),
    events: list(fields({ s: number, what: text, kind: named(['scaling', 'anomaly', 'transfer']) })),
    requests: list(
      fields({
        id: text,
        arrivalS: number,
        joinedS: numberOrNull,
        firstTokenS: numberOrNull,
        endS: numberOrNull,
        where: text,
        promptTokens: number,
        outputTokens: number,
        status: text,
        note: optional(text),
      }),
    ),
    requestsInAll: number,
    parts: optional(list(text)),
    place: optional(text),
    of: optional(text),
  }),
};

const section: Check = (value, field) => {
  requireObject(value as object, field);
  const { kind: name } = value as { readonly kind?: ReportSection['kind'] };
  const kinds = Object.keys(sectionChecks) as ReportSection['kind'][];
  sectionChecks[oneOf(`${field}.kind`, name as ReportSection['kind'], kinds)](value, field);
};

const reportCheck = fields({
  title: text,
  question: text,
  answer: text,
  verdict: named(['yes', 'no', 'open']),
  figures: list(
    fields({
      name: text,
      value: numberOrNull,
      unit,
      spread: optional(fields({ low: number, high: number, over: text })),
      target: optional(fields({ most: optional(number), least: optional(number) })),
      note: optional(text),
    }),
  ),
  sections: (value, field) => {
    list(section)(value, field);
    const timelines = (value as readonly ReportSection[]).filter(({ kind: of }) => of === 'timeline').length;
    if (timelines < 2) return;
    throw new TierKVError('TKV_INPUT', `${field} has ${timelines} timelines. Keep one of them.`, { field });
  },
  next: list(text),
  limits: list(text),
  origin: fields({ command: text, versions: texts, facts: texts }),
} satisfies { readonly [Name in keyof Report]: Check });

/** @throws TKV_INPUT, or TKV_CONFIG for a name of a list, with the place of the first fault */
export function requireReport(report: Report): void {
  reportCheck(report, 'report');
}
