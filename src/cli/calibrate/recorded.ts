/**
 * `tierkv calibrate --trace-data ... --sim-results ...`: upstream's `calibrate`. A recorded trace beside the
 * results of a simulation of it (`--results-path`), as upstream's report.
 */

import { TierKVError } from '../../runtime/errors.ts';
import { compareRecorded, type RequestTiming } from '../../sim/report/index.ts';
import { readTraceHeader, traceRecords } from '../../sim/workload/index.ts';
import { readYaml } from '../../sim/workload/spec/reader.ts';
import { fileLines, readText } from '../input/index.ts';
import { writeText } from '../output/index.ts';
import { jsonText } from '../simulate/output/metricsFile.ts';

export interface RecordedFiles {
  readonly traceHeader?: string;
  readonly traceData: string;
  readonly simResults: string;
  readonly report: string;
}

const TTFT_THRESHOLD = 0.15;

/** @throws {TierKVError} TKV_INPUT naming file and place for what is no trace or no results */
export function reportRecorded({ traceHeader, traceData, simResults, report }: RecordedFiles): string {
  const warmUp =
    traceHeader === undefined ? 0 : readTraceHeader(readText(traceHeader), traceHeader).warmUpRequests;
  const records = [...traceRecords(fileLines(traceData), traceData)];
  const recorded = records
    .filter(({ requestId }) => requestId >= warmUp)
    .map(
      (record): RequestTiming => ({
        id: record.requestId,
        ttftUs: record.firstChunkUs - record.sendUs,
        e2eUs: record.lastChunkUs - record.sendUs,
        inputTokens: record.inputTokens,
        outputTokens: record.outputTokens,
      }),
    );
  const { matched, tokenMismatches, metrics } = compareRecorded(recorded, readResults(simResults));
  const { mape } = metrics.ttft.request_level;
  const text = {
    trace_info: {
      num_requests: records.length,
      warm_up_excluded: records.length - recorded.length,
      matched_pairs: matched,
      token_mismatches: tokenMismatches,
    },
    metrics,
    config_match: {},
    known_limitations: [],
    ttft_tolerance: { mape, threshold: TTFT_THRESHOLD, within: mape <= TTFT_THRESHOLD },
  };
  writeText(report, `${jsonText(text)}\n`);
  const share = (value: number): string => `${(100 * value).toFixed(2)} %`;
  const line = (
    name: string,
    { mape: off, pearson_r: r, quality }: (typeof metrics)['e2e']['request_level'],
  ) => `${name} mean absolute error ${share(off)}, correlation ${r.toFixed(3)}: ${quality}\n`;
  return (
    `${matched} of ${records.length} requests matched\n` +
    line('TTFT', metrics.ttft.request_level) +
    line('E2E ', metrics.e2e.request_level)
  );
}

/** A list of results under `results`, as a mapping is what the strict reader takes. */
function readResults(file: string): RequestTiming[] {
  const text = readText(file);
  if (!text.trimStart().startsWith('[')) {
    throw new TierKVError('TKV_INPUT', `${file}: is no list of results. Name what --results-path wrote.`, {
      path: file,
    });
  }
  const root = readYaml(`{"results": ${text}}`, file);
  const time = { min: 0, max: 2 ** 53 };
  return root.list('results').map((node) => {
    for (const key of ['slo_class', 'model', 'itl_mean_us']) node.has(key);
    for (const key of ['request_id', 'ttft_us', 'e2e_us']) {
      if (!node.has(key)) throw node.error(key, 'is missing', 'Write the results again');
    }
    const timing = {
      id: node.integer('request_id', time, 0),
      ttftUs: node.number('ttft_us', time, 0),
      e2eUs: node.number('e2e_us', time, 0),
      inputTokens: node.integer('input_tokens', time, 0),
      outputTokens: node.integer('output_tokens', time, 0),
    };
    node.close();
    return timing;
  });
}
