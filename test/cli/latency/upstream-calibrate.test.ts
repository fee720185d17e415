/** Upstream's `calibrate` (case 38): the report on a recorded trace and a simulation of it, byte for byte. */

import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { calibrateCommand } from '../../../src/cli/calibrate/command.ts';
import { compareRecorded } from '../../../src/sim/report/recordedComparison.ts';
import { printedBy } from '../printed.ts';

const cases = new URL('../../../../shared/goldens/blis/cases/', import.meta.url);
const isHere = existsSync(cases);
if (!isHere) console.warn('SKIPPED: goldens/blis/cases are not here to compare with');
const golden = (name: string): string => fileURLToPath(new URL(name, cases));

let folder: string;
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'tierkv-calibrate-'));
});
afterAll(() => {
  rmSync(folder, { recursive: true });
});

const calibrate = (...args: string[]): Promise<string> => printedBy(calibrateCommand(), ...args);

it.runIf(isHere)('the report is upstream’s', async () => {
  const report = join(folder, 'report.json');
  await calibrate(
    ...['--trace-header', golden('36-traceout/trace.yaml'), '--trace-data', golden('36-traceout/trace.csv')],
    ...['--sim-results', golden('37-replay/results.json'), '--report', report],
  );
  expect(readFileSync(report, 'utf8').trimEnd()).toBe(
    readFileSync(golden('38-calibrate/report.json'), 'utf8').trimEnd(),
  );
});

describe('requests side by side', () => {
  const timing = (id: number, ttftUs: number, e2eUs: number) => ({
    id,
    ttftUs,
    e2eUs,
    inputTokens: 10,
    outputTokens: 5,
  });

  it('match by id, and leave out what never ended', () => {
    const recorded = [timing(1, 100, 1000), timing(2, -5, -5), timing(3, 300, 3000), timing(5, 50, 800)];
    const simulated = [timing(1, 110, 900), timing(2, 7, 7), timing(3, 330, 2700), timing(4, 1, 1)];
    const { matched, tokenMismatches, metrics } = compareRecorded(recorded, simulated);
    expect([matched, tokenMismatches]).toEqual([2, 0]);
    expect(metrics.ttft.request_level).toMatchObject({ bias_direction: 'over-predict', quality: 'poor' });
    expect(metrics.ttft.request_level.mape).toBeCloseTo(0.1, 12);
    expect(metrics.e2e.request_level.bias_direction).toBe('under-predict');
    expect(metrics.e2e.workload_level.mean_percent_error).toBeCloseTo(-0.1, 12);
  });

  it('are good when they keep their order and are some percent off', () => {
    const recorded = [1, 2, 3, 4].map((id) => timing(id, 1000 * id, 9000 * id));
    const simulated = recorded.map(({ id, ttftUs, e2eUs }) => timing(id, 1.15 * ttftUs, e2eUs));
    const { metrics } = compareRecorded(recorded, simulated);
    expect(metrics.ttft.request_level.quality).toBe('good');
    expect(metrics.e2e.request_level.quality).toBe('excellent');
  });
});

it('answers that were cut are left out, and a report needs a pair', async () => {
  const trace = join(folder, 'cut.csv');
  const columns =
    'request_id,client_id,tenant_id,slo_class,session_id,round_index,prefix_group,streaming,input_tokens,output_tokens,arrival_time_us,send_time_us,first_chunk_time_us,last_chunk_time_us,status';
  const row = (id: number, lastUs: number, status: string): string =>
    `${id},c,t,,,0,,true,10,5,0,0,1000,${lastUs},${status}`;
  const rows = [row(0, 5000, 'ok'), row(1, 1000, 'error'), row(2, 1000, 'timeout')];
  writeFileSync(trace, [columns, ...rows, ''].join('\n'));
  const run = async (...ids: number[]): Promise<string> => {
    const results = join(folder, 'of-cut.json');
    const result = { ttft_us: 1000, e2e_us: 5000, input_tokens: 10, output_tokens: 5 };
    writeFileSync(results, JSON.stringify(ids.map((request_id) => ({ request_id, ...result }))));
    const report = join(folder, 'of-cut-report.json');
    return calibrate('--trace-data', trace, '--sim-results', results, '--report', report);
  };
  expect(await run(0, 1, 2)).toMatch(/^1 of 3 requests matched\n.*\nE2E {2}mean absolute error 0.00 %/);
  await expect(run(1, 2)).rejects.toThrow(/of-cut\.json: no result is of a request of .*cut\.csv/);
  await expect(run(7)).rejects.toThrow(/no result is of a request/);
});

describe('a mistake is one line', () => {
  const results = (text: string): string => {
    const file = join(folder, 'results.json');
    writeFileSync(file, text);
    return file;
  };
  const trace = (): string => {
    const file = join(folder, 'trace.csv');
    const columns =
      'request_id,client_id,tenant_id,slo_class,session_id,round_index,prefix_group,streaming,input_tokens,output_tokens,arrival_time_us,status';
    writeFileSync(file, `${columns}\n0,c,t,,,0,,true,10,5,100,ok\n`);
    return file;
  };
  const report = (): string => join(folder, 'none.json');
  it.each([
    [() => ['--trace-data', trace(), '--report', report()], /--sim-results is missing/],
    [() => ['--sim-results', results('[]'), '--report', report()], /--trace-data is missing/],
    [() => [], /--out is missing/],
    [
      () => ['--trace-data', trace(), '--sim-results', results('{}'), '--report', report()],
      /results.json: .*list/,
    ],
    [
      () => ['--trace-data', trace(), '--sim-results', results('[{"request_id": 1}]'), '--report', report()],
      /results.json:1: results\[0\].ttft_us is missing/,
    ],
    [
      () => ['--trace-data', trace(), '--sim-results', results('[{"request_ids": 1}]'), '--report', report()],
      /request_id/,
    ],
  ])('%#', async (args, says) => {
    await expect(calibrate(...args())).rejects.toThrow(says);
  });
});
