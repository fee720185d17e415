/** A report that is made by hand: whatever is missing, misspelt or of another kind in it is an error with its place, never a raw one. */

import { describe, expect, it } from 'vitest';
import { requireReport } from '../../src/observe/report/checkReport.ts';
import type { Report } from '../../src/observe/report/model.ts';
import { reportPage } from '../../src/observe/report/page.ts';
import { TierKVError } from '../../src/runtime/errors.ts';
import {
  benched,
  compared,
  evaluated,
  planned,
  replayed,
  searched,
  simulated,
  studied,
  swept,
} from './results.ts';

const makers = { simulated, swept, planned, evaluated, searched, compared, benched, replayed, studied };

type Place = readonly (string | number)[];

/** Places of all values, of a list those in its first element. */
function placesOf(value: unknown, at: Place = []): Place[] {
  if (typeof value !== 'object' || value === null) return [at];
  const entries = Array.isArray(value) ? value.slice(0, 1).entries() : Object.entries(value);
  return [at, ...[...entries].flatMap(([name, each]) => placesOf(each, [...at, name]))];
}

function changed(report: Report, place: Place, change: (holder: never, name: never) => void): Report {
  const copy = structuredClone(report);
  const holder = place
    .slice(0, -1)
    .reduce((inner, name) => (inner as Record<string, unknown>)[name] as object, copy as object);
  change(holder as never, place.at(-1) as never);
  return copy;
}

/** What the check says; undefined where it says nothing. @throws any error that tierkv did not make */
function faultOf(report: Report): TierKVError | undefined {
  try {
    requireReport(report);
    return undefined;
  } catch (error) {
    if (error instanceof TierKVError) return error;
    throw error;
  }
}

describe.each(Object.entries(makers))('%s', (_name, make) => {
  const report = make();
  const places = placesOf(report).filter((place) => place.length > 0);

  it('passes as it is made', () => {
    expect(faultOf(report)).toBe(undefined);
  });

  it('each value of another kind is named', () => {
    for (const place of places) {
      const wrong = changed(report, place, (holder: Record<string, unknown>, name: string) => {
        holder[name] = Symbol('wrong');
      });
      const fault = faultOf(wrong);
      const path = place.map((name) => (typeof name === 'number' ? `[${name}]` : `.${name}`)).join('');
      // a pair of numbers is one value
      expect(`report${path}`, path).toContain(fault?.field ?? 'no fault was found');
    }
  });

  it('each unknown name is refused, with the nearest', () => {
    for (const place of places) {
      const value = place.reduce((inner, name) => (inner as never)[name], report as unknown);
      const isOpen = ['versions', 'facts'].includes(String(place.at(-1)));
      if (typeof value !== 'object' || value === null || Array.isArray(value) || isOpen) continue;
      const wrong = changed(report, [...place, 'titel'], (holder: Record<string, unknown>, name: string) => {
        holder[name] = 'a';
      });
      expect(faultOf(wrong)?.message, place.join('.')).toMatch(/titel is unknown here/);
    }
  });
});

it('a page of it is refused with the place', async () => {
  const report = swept();
  const sections = [{ kind: 'bars', title: 'a', unit: 'ms' }] as unknown as Report['sections'];
  await expect(reportPage({ ...report, sections })).rejects.toMatchObject({
    code: 'TKV_INPUT',
    field: 'report.sections[0].bars',
  });
  const rows = [{ kind: 'table', title: 'a', columns: [{ title: 'b' }], rows: [[1, 2]] } as const];
  await expect(reportPage({ ...report, sections: rows })).rejects.toThrow(/rows\[0\] has 2 cells/);
});
