/**
 * Measured runs in the forms in which their makers write them give the same requests; a fit finds the coefficients of a run
 * that a known engine made, with prefix cache, little KV memory and several ranks, and a run that was served in another way
 * than was said is refused.
 */

import fs from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { beforeEach, describe, expect, it, onTestFinished } from 'vitest';
import { loadCoefficients, loadHardware } from '../../../src/sim/build/dataFiles.ts';
import { fitToRequests, measuredRun, type ServedBy } from '../../../src/sim/fitting/fitRequests.ts';
import type { CalibratedCoefficients } from '../../../src/sim/latency/calibrated.ts';
import { type MeasuredRequest, readMeasuredRun } from '../../../src/sim/latency/fit/measuredRuns.ts';
import { replayRun } from '../../../src/sim/latency/fit/runFit.ts';

let folder: string;
beforeEach(() => {
  folder = fs.mkdtempSync(join(tmpdir(), 'tierkv-runs-'));
  onTestFinished(() => fs.rmSync(folder, { recursive: true }));
});
const write = (name: string, text: string): string => {
  const file = join(folder, name);
  fs.writeFileSync(file, text);
  return file;
};

const served: ServedBy = {
  gpu: 'H100',
  model: 'llama-3.1-8b-instruct',
  tp: 1,
  dp: 1,
  maxSequences: 64,
  maxBatchedTokens: 1024,
  memoryUtilization: 0.9,
  blockTokens: 16,
};
const shipped = loadCoefficients('calibrated', loadHardware('H100'), undefined)
  .values as CalibratedCoefficients;
const truth: CalibratedCoefficients = {
  ...shipped,
  gemm16: { ...shipped.gemm16, memory: 0.7, compute: 0.5 },
  attention: { ...shipped.attention, decode: 0.7 },
  engine: { ...shipped.engine, perStepUs: 1500 },
};

/** Requests of fixed lengths, and when an engine with the true coefficients answers them. */
function run(by: ServedBy, cachedShare = 0): MeasuredRequest[] {
  const asked = Array.from({ length: 60 }, (_, i): MeasuredRequest => {
    const promptTokens = 200 + ((i * 379) % 1500);
    const cachedTokens = 16 * Math.floor((promptTokens * (i % 3 === 0 ? 0 : cachedShare)) / 16);
    const lengths = { promptTokens, outputTokens: 20 + ((i * 53) % 90), cachedTokens };
    return { arrivalUs: i * 40_000, ...lengths, firstTokenUs: 0, lastTokenUs: 0 };
  });
  const times = replayRun(measuredRun(asked, by), truth);
  return asked.map((request, i) => ({ ...request, ...times[i] }));
}
const table = (requests: readonly MeasuredRequest[], withCache = true): string =>
  `arrival_us,prompt_tokens,output_tokens,first_token_us,last_token_us${withCache ? ',cached_tokens' : ''}\n${requests
    .map((r) =>
      [
        r.arrivalUs,
        r.promptTokens,
        r.outputTokens,
        r.firstTokenUs,
        r.lastTokenUs,
        ...(withCache ? [r.cachedTokens] : []),
      ].join(','),
    )
    .join('\n')}\n`;

describe('forms', () => {
  const requests = run(served).map((request) => ({ ...request, cachedTokens: 0 }));
  const shift = (us: number): number => us + 5e6;
  const forms: Readonly<Record<string, string>> = {
    table: table(requests),
    observed: requests
      .map(({ arrivalUs, promptTokens, outputTokens, firstTokenUs, lastTokenUs }) =>
        JSON.stringify({
          arrival_us: shift(arrivalUs),
          prompt_tokens: promptTokens,
          output_tokens: outputTokens,
          outcome: 'completed',
          ttft_us: firstTokenUs - arrivalUs,
          e2e_us: lastTokenUs - arrivalUs,
          cached_tokens: -1,
        }),
      )
      .join('\n'),
    llmservingsim: requests
      .map((r, i) =>
        JSON.stringify({
          request_id: `bench-${i}`,
          input_toks: r.promptTokens,
          output_toks: r.outputTokens,
          arrival_time: 1.7e9,
          queued_ts: shift(r.arrivalUs) / 1e6,
          scheduled_ts: 0,
          first_token_ts: shift(r.firstTokenUs) / 1e6,
          last_token_ts: shift(r.lastTokenUs) / 1e6,
        }),
      )
      .join('\n'),
    'vllm-bench': JSON.stringify({
      input_lens: requests.map((r) => r.promptTokens),
      output_lens: requests.map((r) => r.outputTokens),
      start_times: requests.map((r) => shift(r.arrivalUs) / 1e6),
      ttfts: requests.map((r) => (r.firstTokenUs - r.arrivalUs) / 1e6),
      itls: requests.map((r) => [(r.lastTokenUs - r.firstTokenUs) / 1e6]),
    }),
  };
  it.each([
    ['backend', 2],
    ['prefill_backend', 1],
  ])('requests of several servers are refused: %s', (field, line) => {
    const rows = forms.observed.split('\n').map((text) => ({ ...JSON.parse(text), backend: 'a' }));
    const text = (all: readonly object[]): string => all.map((row) => JSON.stringify(row)).join('\n');
    expect(readMeasuredRun(text(rows), 'run').requests).toHaveLength(rows.length);
    rows[line - 1][field] = 'b';
    expect(() => readMeasuredRun(text(rows), 'run')).toThrow(
      `run:${line}: ${field} is "b", and a line above was served by "a". A run is of one server: keep the lines of one`,
    );
  });

  it('requests whose first token was not seen are told and left out', () => {
    const [first, second, ...rest] = forms.observed.split('\n');
    const whole = JSON.stringify({ ...JSON.parse(second), streaming: false, ttft_us: 1e6, e2e_us: 1e6 });
    const cut = JSON.stringify({ ...JSON.parse(first), ttft_us: -1 });
    const streamed = rest.map((line) => JSON.stringify({ ...JSON.parse(line), streaming: true }));
    const read = readMeasuredRun([cut, whole, ...streamed].join('\n'), 'run');
    expect(read.requests).toHaveLength(requests.length - 2);
    expect(read.taken.notes).toEqual([
      '1 requests without all their tokens left out',
      '1 requests that did not stream left out',
    ]);
  });

  it.each(Object.entries(forms))('%s', (format, text) => {
    const read = readMeasuredRun(text, 'run');
    expect(read.format).toBe(format);
    expect(read.requests).toHaveLength(requests.length);
    read.requests.forEach((request, i) => {
      for (const key of Object.keys(request) as (keyof MeasuredRequest)[]) {
        expect(Math.abs(request[key] - requests[i][key])).toBeLessThan(2);
      }
    });
  });

  it('counts what did not end, and refuses another file', () => {
    const failed = `${forms.observed}\n${JSON.stringify({ arrival_us: 1, prompt_tokens: 3, output_tokens: 1, ttft_us: -1, e2e_us: 9, outcome: 'failed' })}`;
    expect(readMeasuredRun(failed, 'run').taken.notes).toEqual([
      '1 requests without all their tokens left out',
    ]);
    expect(() => readMeasuredRun('{"a": 1}', 'run')).toThrow(
      /^run:1: has the fields of no known measured run\. Known are observed/,
    );
    expect(() => readMeasuredRun('{"a": 1', 'run')).toThrow(/is not valid JSON/);
    const back = table([{ ...requests[0], firstTokenUs: -0, lastTokenUs: 0 }]);
    expect(() => readMeasuredRun(back, 'run')).toThrow(
      /^run:2: arrival_us, first_token_us and last_token_us/,
    );
  });
});

describe('a fit', () => {
  const fitTo = (
    requests: readonly MeasuredRequest[],
    by: ServedBy,
    withCache = true,
  ): ReturnType<typeof fitToRequests> =>
    fitToRequests({ ...by, requests: write('run.csv', table(requests, withCache)), fitShare: 0.5 });

  it.each<[string, Partial<ServedBy>, number]>([
    ['alone', {}, 0],
    ['with a prefix cache', {}, 0.8],
    ['with little KV memory', { kvBlocks: 400 }, 0],
    ['with two engines of a dense model', { dp: 2 }, 0],
    ['with two ranks of a mixture', { dp: 2, model: 'qwen3-30b-a3b' }, 0],
  ])('finds the run %s', (_, more, cached) => {
    const by = { ...served, ...more };
    const { judged } = fitTo(run(by, cached), by);
    for (const { what, meanErrorPercent } of judged) {
      expect([what, Math.abs(meanErrorPercent) < 2]).toEqual([what, true]);
    }
  });

  it('is refused where the run was served in another way', () => {
    const tight = { ...served, maxSequences: 2 };
    expect(() => fitTo(run(tight), { ...served, maxSequences: 64 })).toThrow(
      /run\.csv: the fit does not fit: it is off by \d+% on the very requests it was fitted to, more than 25%/,
    );
    expect(() => fitTo(run(served), { ...served, kvBlocks: 50 })).toThrow(
      /^kvBlocks is 50 of 16 tokens, and a request of/,
    );
  });
});
