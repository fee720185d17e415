/**
 * Azure's LLM inference traces: CSV with TIMESTAMP (date and time with up to seven decimals), ContextTokens
 * and GeneratedTokens. Arrival times count from the first row, truncated to µs; prompts share nothing.
 */

import type { WorkloadRequest } from '../../request.ts';
import { shownPlain } from '../../shown.ts';
import { csvRows } from '../csv.ts';
import type { Lines } from '../lines.ts';
import { TakenColumns } from '../taken.ts';
import { importedRequest, ownTokens, traceOrigin } from './imported.ts';
import { DateTimes } from './times.ts';

const ORIGIN = traceOrigin('azure');

export const azureColumns = ['TIMESTAMP', 'ContextTokens', 'GeneratedTokens'] as const;

/** @throws {TierKVError} TKV_INPUT naming file, line and field. */
export function* azureRequests(
  lines: Lines,
  file: string,
  taken: TakenColumns = new TakenColumns(),
): Generator<WorkloadRequest> {
  let columns: readonly number[] = [];
  const times = new DateTimes('TIMESTAMP');
  let index = 0;
  for (const [header, cells, at] of csvRows(lines, file)) {
    if (cells === undefined) {
      columns = azureColumns.map((name) => header.find([name]));
      if (columns.includes(-1)) {
        const names = shownPlain(header.names.join(', '));
        throw at.error('', `the columns are ${names}`, `Use ${azureColumns.join(', ')}`);
      }
      taken.begin(azureColumns, 'dates, from the first row');
      header.names.forEach((name, i) => void (columns.includes(i) || taken.leave(name)));
      continue;
    }
    const [time, input, output] = columns.map((column) => cells[column]);
    const arrivalUs = times.us(time, at);
    const inputTokens = at.requirePrompt('ContextTokens', at.tokenCell(input, 'ContextTokens'));
    const outputTokens = at.tokenCell(output, 'GeneratedTokens');
    const prompt = ownTokens('azure', 'in', index, inputTokens);
    yield importedRequest({ index: index++, origin: ORIGIN, arrivalUs, inputTokens, outputTokens, prompt });
  }
}
