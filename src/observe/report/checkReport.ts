/**
 * Checks a report before a page is made of it, down to the last cell: what is missing, unknown or of another kind is named
 * with its place, such as `report.sections[2].bars[0].value`.
 */

import { TierKVError } from '../../runtime/errors.ts';
import type { ValueKind } from '../../runtime/kinds.ts';
import * as is from '../../runtime/kinds.ts';
import { optionTable } from '../../runtime/options.ts';
import { type Report, type ReportSection, unitNames } from './model.ts';

/** Any number, also one that is not finite: a page says so. */
const number = is.that<number>('a number', (value) => typeof value === 'number');
const numberOrNull = is.orNull(number);
const cell = {
  takesNull: true,
  ...is.that(
    'text, a number or null',
    (value) => value === null || ['string', 'number'].includes(typeof value),
  ),
};
const point = is.that(
  'a pair of numbers',
  (value) => Array.isArray(value) && value.length === 2 && value.every((each) => typeof each === 'number'),
);

const texts = is.byName(is.text());

const unit = is.oneOf(unitNames);
const titled = { kind: is.text(), title: is.text(), note: is.optional(is.text()) };
const axis = optionTable({ title: is.text(), unit, isLog: is.optional(is.flag()) });

const tableKind = optionTable({
  ...titled,
  columns: is.list(optionTable({ title: is.text(), unit: is.optional(unit) })),
  rows: is.list(is.list(cell)),
  chosen: is.optional(number),
});

function requireTable(value: object, field: string): object {
  const { columns, rows } = tableKind.read(value, field);
  const odd = rows.findIndex((row) => row.length !== columns.length);
  if (odd === -1) return value;
  const problem = `${field}.rows[${odd}] has ${rows[odd].length} cells, and the table has ${columns.length} columns`;
  throw new TierKVError('TKV_INPUT', `${problem}. Give a cell a column; null for what is not known.`, {
    field: `${field}.rows[${odd}]`,
  });
}

const sectionKinds: { readonly [Kind in ReportSection['kind']]: ValueKind<unknown> } = {
  text: optionTable({ kind: is.text(), title: is.text(), paragraphs: is.list(is.text()) }),
  table: is.by(requireTable),
  lines: optionTable({
    ...titled,
    x: axis,
    y: axis,
    series: is.list(optionTable({ name: is.text(), points: is.list(point) })),
  }),
  points: optionTable({
    ...titled,
    x: axis,
    y: axis,
    points: is.list(
      optionTable({
        x: number,
        y: number,
        name: is.text(),
        group: is.optional(is.text()),
        isChosen: is.optional(is.flag()),
      }),
    ),
  }),
  bars: optionTable({
    ...titled,
    unit,
    bars: is.list(
      optionTable({
        name: is.text(),
        value: number,
        low: is.optional(number),
        high: is.optional(number),
        group: is.optional(is.text()),
        isChosen: is.optional(is.flag()),
      }),
    ),
  }),
  distributions: optionTable({
    ...titled,
    unit,
    series: is.list(
      optionTable({
        name: is.text(),
        quantiles: is.list(number),
        count: number,
        target: is.optional(optionTable({ most: number, share: number })),
      }),
    ),
  }),
  timeline: optionTable({
    ...titled,
    lanes: is.list(
      optionTable({
        name: is.text(),
        unit,
        isStacked: is.optional(is.flag()),
        series: is.list(optionTable({ name: is.text(), points: is.list(point) })),
      }),
    ),
    events: is.list(
      optionTable({ s: number, what: is.text(), kind: is.oneOf(['scaling', 'anomaly', 'transfer']) }),
    ),
    requests: is.list(
      optionTable({
        id: is.text(),
        arrivalS: number,
        joinedS: numberOrNull,
        firstTokenS: numberOrNull,
        endS: numberOrNull,
        where: is.text(),
        promptTokens: number,
        outputTokens: number,
        status: is.text(),
        note: is.optional(is.text()),
      }),
    ),
    requestsInAll: number,
    parts: is.optional(is.list(is.text())),
    place: is.optional(is.text()),
    of: is.optional(is.text()),
  }),
};

const sectionNames = Object.keys(sectionKinds) as ReportSection['kind'][];
const section = is.by((value: ReportSection, field: string): ReportSection => {
  is.object().read(value, field);
  sectionKinds[is.oneOf(sectionNames).read(value.kind, `${field}.kind`)].read(value, field);
  return value;
});

const reportTable = optionTable({
  title: is.text(),
  question: is.text(),
  answer: is.text(),
  verdict: is.oneOf(['yes', 'no', 'open']),
  figures: is.list(
    optionTable({
      name: is.text(),
      value: numberOrNull,
      unit,
      spread: is.optional(optionTable({ low: number, high: number, over: is.text() })),
      target: is.optional(optionTable({ most: is.optional(number), least: is.optional(number) })),
      note: is.optional(is.text()),
    }),
  ),
  sections: is.by(requireSections),
  next: is.list(is.text()),
  limits: is.list(is.text()),
  origin: optionTable({ command: is.text(), versions: texts, facts: texts }),
});

function requireSections(sections: Report['sections'], field: string): Report['sections'] {
  is.list(section).read(sections, field);
  const timelines = sections.filter(({ kind }) => kind === 'timeline').length;
  if (timelines < 2) return sections;
  throw new TierKVError('TKV_INPUT', `${field} has ${timelines} timelines. Keep one of them.`, { field });
}

/** @throws TKV_INPUT, or TKV_CONFIG for a name of a list, with the place of the first fault */
export function requireReport(report: Report): void {
  reportTable.read(report, 'report');
}
