/**
 * Azure's LLM inference traces: CSV with TIMESTAMP (date and time with up to seven decimals), ContextTokens
 * and GeneratedTokens. Arrival times count from the first row, truncated to µs; prompts share nothing.
 */

import type { WorkloadRequest } from '../../request.ts';
import { shown, shownPlain } from '../../shown.ts';
import { splitCsv } from '../csv.ts';
import { type Lines, numbered, type TraceLine } from '../lines.ts';
import { importedRequest, ownTokens, traceOrigin } from './imported.ts';

const ORIGIN = traceOrigin('azure');
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

const TIMESTAMP = /^(\d{4})-(\d\d)-(\d\d)[ T](\d\d):(\d\d):(\d\d)(?:\.(\d{1,9}))?(?:Z|\+00:00)?$/;

function parseTimestamp(text: string, at: TraceLine): { day: number; ticks: number } {
  const parts = TIMESTAMP.exec(text.trim());
  if (parts === null)
    throw at.error('TIMESTAMP', `is ${shown(text)}`, 'Write it as 2023-11-16 18:17:03.9799600');
  const [year, month, day, hour, minute, second] = parts.slice(1, 7).map(Number);
  if (month < 1 || month > 12 || day < 1 || day > 31 || hour > 23 || minute > 59 || second > 60) {
    throw at.error('TIMESTAMP', `is ${shown(text)}, no date`, 'Mend the line');
  }
  const fraction = Math.trunc(Number((parts[7] ?? '').padEnd(7, '0').slice(0, 7)));
  return { day: dayNumber(year, month, day), ticks: ((hour * 60 + minute) * 60 + second) * 1e7 + fraction };
}

/** @throws {TierKVError} TKV_INPUT naming file, line and field. */
export function* azureRequests(lines: Lines, file: string): Generator<WorkloadRequest> {
  let columns: readonly string[] | undefined;
  let first: { day: number; ticks: number } | undefined;
  let previousUs = 0;
  let index = 0;
  for (const [text, at] of numbered(lines, file)) {
    const cells = splitCsv(text);
    if (cells === undefined) throw at.error('', 'a quote is never closed', 'Mend the line');
    if (columns === undefined) {
      columns = ['TIMESTAMP', 'ContextTokens', 'GeneratedTokens'];
      const names = cells.map((cell) => cell.trim());
      if (columns.every((name, i) => names[i] === name)) continue;
      throw at.error('', `the columns are ${shownPlain(names.join(', '))}`, `Use ${columns.join(', ')}`);
    }
    const time = parseTimestamp(cells[0] ?? '', at);
    first ??= time;
    const arrivalUs = Math.floor(((time.day - first.day) * TICKS_PER_DAY + time.ticks - first.ticks) / 10);
    previousUs = at.requireOrder('TIMESTAMP', arrivalUs, previousUs);
    const inputTokens = at.tokenCell(cells[1], 'ContextTokens');
    const outputTokens = at.tokenCell(cells[2], 'GeneratedTokens');
    const prompt = ownTokens('azure', 'in', index, inputTokens);
    yield importedRequest({ index: index++, origin: ORIGIN, arrivalUs, inputTokens, outputTokens, prompt });
  }
}
