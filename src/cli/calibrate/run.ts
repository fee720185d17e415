/**
 * `tierkv calibrate`: measures the links of this machine and writes them as the profile that the simulator
 * and `replay --links` read (schema tierkv.links/1, src/sim/latency/capacity.ts). Rows of scattered blocks with
 * the usual checks are what the runtime does, so only they count.
 */

import { fileLines, readText } from '../../io/files/inputs.ts';
import { requireWritableTargets, writeJsonFile, writeText } from '../../io/files/results.ts';
import { startProgressBar } from '../../io/printing/progress.ts';
import { formatBytes, formatSeconds, renderTable } from '../../io/printing/text.ts';
import { configError, TierKVError } from '../../runtime/errors.ts';
import { jsonText } from '../../sim/build/output.ts';
import { readYaml } from '../../sim/description/fields.ts';
import type { HandoffFit, MeasuredHandoff } from '../../sim/fitting/handoffFit.ts';
import { fitLink, type LinkSample, linkSchema } from '../../sim/latency/capacity.ts';
import { compareRecorded, type RequestTiming } from '../../sim/report/recordedComparison.ts';
import { readTraceHeader, traceRecords } from '../../sim/workload/traceV2.ts';
import type { LinkRow } from '../../studies/measure/links.ts';
import { median } from '../../studies/measure/manager.ts';
import { inFlags } from '../flags.ts';
import { printText } from '../output.ts';
import { interruptible } from '../process.ts';

interface LinkFigures {
  /** Each size, and what one transfer of it takes of the link in a batch. */
  readonly sizes: readonly LinkSample[];
  /** How much longer one takes that travels alone. */
  readonly delayUs: number;
  /** Share of its bandwidth that a direction keeps while the opposite one is busy. */
  readonly bothWaysShare: number;
}

interface MeasuredProfile {
  readonly schema: typeof linkSchema;
  /** The adapter of HBM. */
  readonly device: string;
  readonly driver: string;
  readonly date: string;
  readonly software: boolean;
  /** False for short bursts, which a disk under load does not keep up. */
  readonly sustained?: boolean;
  readonly links: Readonly<Record<string, LinkFigures>>;
}

interface CalibrateOptions extends Partial<RecordedFiles> {
  readonly handoffs?: string;
  readonly out?: string;
  readonly dir?: string;
  readonly adapter?: string;
  readonly remote?: string;
  readonly quick: boolean;
}

export async function calibrate(given: CalibrateOptions): Promise<void> {
  const recorded = recordedFiles(given);
  if (recorded !== undefined) {
    printText(reportRecorded(recorded));
    return;
  }
  const { out, dir, adapter: wanted, quick, handoffs } = given;
  requireWritableTargets({ '--out': out });
  if (handoffs !== undefined) {
    const { fitHandoffs } = await import('../../sim/fitting/handoffFit.ts');
    printText(writeHandoffs(fitHandoffs(await readHandoffs(handoffs)), out));
    return;
  }
  if (out === undefined) throw configError('--out', 'is missing', 'Say where to write the profile.');
  const { remote } = given;
  if (remote !== undefined)
    return await inFlags({ server: '--remote' }, () => calibrateRemote(given, remote, out));
  const { benchLinks, leastSeconds, profileSizes, quickSizes } = await import(
    '../../studies/measure/links.ts'
  );
  const sizes = quick ? ({ ...quickSizes, patterns: ['scattered'] } as const) : profileSizes;
  using bar = startProgressBar('samples');
  if (!quick) bar.notice(`takes ${formatSeconds(leastSeconds(sizes))} at the least`);
  const { adapter, rows } = await interruptible((signal) =>
    benchLinks(sizes, dir, wanted, {
      say: (line) => bar.notice(line),
      progress: (done, all) => bar.update({ share: done / all, done }),
      signal,
    }),
  );
  const { name: device, source, software } = adapter;
  const date = new Date().toISOString();
  const about = { device, driver: `webgpu (${source})`, date, software, sustained: !quick };
  const profile = profileOf(rows, about);
  writeJsonFile(out, profile);
  printText(renderProfile(profile));
}

async function calibrateRemote(
  { dir, adapter, quick }: CalibrateOptions,
  url: string,
  out: string,
): Promise<void> {
  for (const [option, value] of Object.entries({ '--dir': dir, '--adapter': adapter })) {
    if (value !== undefined) throw configError(option, 'excludes --remote', 'Keep one of them.');
  }
  const { measureSharedServer, renderSharedServer } = await import('../../studies/measure/sharedServer.ts');
  using bar = startProgressBar('rounds');
  const { figures, rows } = await measureSharedServer(url, quick, (done, all) => {
    bar.update({ share: done / all, done });
  });
  writeJsonFile(out, figures);
  printText(renderSharedServer(figures, rows));
}

/** Upstream's use of the command, which compares a recorded trace with a simulation of it. */
function recordedFiles({
  traceHeader,
  traceData,
  simResults,
  report,
  out,
}: CalibrateOptions): RecordedFiles | undefined {
  const given = { '--trace-data': traceData, '--sim-results': simResults, '--report': report };
  if (Object.values(given).every((file) => file === undefined)) return undefined;
  for (const [option, file] of Object.entries(given)) {
    if (file === undefined)
      throw configError(option, 'is missing', 'A report needs trace, results and itself.');
  }
  if (out !== undefined) throw configError('--out', 'excludes --report', 'Keep one of them.');
  if (traceData === undefined || simResults === undefined || report === undefined) return undefined;
  requireWritableTargets(
    { '--report': report },
    { '--trace-data': traceData, '--sim-results': simResults, '--trace-header': traceHeader },
  );
  return { traceData, simResults, report, ...(traceHeader === undefined ? {} : { traceHeader }) };
}

/** @param rows of all links and pairs, at two sizes or more */
export function profileOf(
  rows: readonly LinkRow[],
  about: Omit<MeasuredProfile, 'schema' | 'links'>,
): MeasuredProfile {
  const scattered = rows.filter((row) => row.pattern === 'scattered');
  const verifiedLinks = new Set(scattered.filter((row) => row.verified).map((row) => row.link));
  const usual = scattered.filter((row) => row.verified || !verifiedLinks.has(row.link));
  const oneWay = usual.filter((row) => !row.link.includes('+'));
  const links: Record<string, LinkFigures> = {};
  for (const link of new Set(oneWay.map((row) => row.link))) {
    const measured = oneWay.filter((row) => row.link === link);
    const sizes = measured.map(({ unitBytes, gbps }) => ({
      bytes: unitBytes,
      latencyUs: round(unitBytes / gbps / 1e3),
    }));
    const { baseLatencyUs, bandwidthBytesPerS } = fitLink(sizes);
    const delaysUs = measured.map(
      ({ unitBytes, aloneUs = 0 }) => aloneUs - baseLatencyUs - (unitBytes * 1e6) / bandwidthBytesPerS,
    );
    const shares = usual
      .filter((row) => row.link.includes('+') && row.link.split('+').includes(link))
      .map((row) => shareOf(row, oneWay));
    links[link] = {
      sizes,
      delayUs: round(Math.max(0, Math.min(...delaysUs))),
      bothWaysShare: round(shares.length === 0 ? 1 : median(shares)),
    };
  }
  return { schema: linkSchema, ...about, links };
}

/**
 * Throughput of a pair, as a share of what it would be if neither way minded the other. Half of the bytes go each way.
 */
function shareOf(pair: LinkRow, oneWay: readonly LinkRow[]): number {
  const ways = oneWay.filter(
    (row) => row.unitBytes === pair.unitBytes && pair.link.split('+').includes(row.link),
  );
  const idealGbps = 2 / Math.max(...ways.map(({ gbps }) => 1 / gbps));
  return Math.min(1, pair.gbps / idealGbps);
}

function round(value: number): number {
  return Number(value.toPrecision(4));
}

function renderProfile({ device, software, sustained, links }: MeasuredProfile): string {
  const [first] = Object.values(links);
  const right = (title: string) => ({ title, align: 'right' as const });
  const table = renderTable(
    [
      { title: 'link, GB/s at' },
      ...first.sizes.map(({ bytes }) => right(formatBytes(bytes))),
      right('alone: + µs'),
      right('both ways: share'),
    ],
    Object.entries(links).map(([link, { sizes, delayUs, bothWaysShare }]) => [
      link,
      ...sizes.map(({ bytes, latencyUs }) => (bytes / latencyUs / 1e3).toFixed(2)),
      delayUs.toFixed(0),
      bothWaysShare.toFixed(2),
    ]),
  );
  const bursts = 'of short bursts (--quick): a disk under load is slower than it says\n';
  return `${device}${software ? ', a SOFTWARE device' : ''}\n${table}${sustained === false ? bursts : ''}`;
}

// `tierkv calibrate --trace-data ... --sim-results ...`: upstream's `calibrate`. A recorded trace beside the
// results of a simulation of it (`--results-path`), as upstream's report.

interface RecordedFiles {
  readonly traceHeader?: string;
  readonly traceData: string;
  readonly simResults: string;
  readonly report: string;
}

const TTFT_THRESHOLD = 0.15;

/** @throws {TierKVError} TKV_INPUT naming file and place for anything but a trace or results */
function reportRecorded({ traceHeader, traceData, simResults, report }: RecordedFiles): string {
  const warmUp =
    traceHeader === undefined ? 0 : readTraceHeader(readText(traceHeader), traceHeader).warmUpRequests;
  const records = [...traceRecords(fileLines(traceData), traceData)];
  const counted = records.filter(({ requestId }) => requestId >= warmUp);
  // the times of an answer that was cut are those of a part of it
  const recorded = counted
    .filter(({ status }) => status !== 'error' && status !== 'timeout')
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
  if (matched === 0) {
    const problem = `no result is of a request of ${traceData} that was answered`;
    const remedy = 'Simulate that trace with --results-path, and name what it wrote.';
    throw new TierKVError('TKV_INPUT', `${simResults}: ${problem}. ${remedy}`, {
      path: simResults,
      field: '--sim-results',
    });
  }
  const { mape } = metrics.ttft.request_level;
  const text = {
    trace_info: {
      num_requests: records.length,
      warm_up_excluded: records.length - counted.length,
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
    throw new TierKVError(
      'TKV_INPUT',
      `${file}: must be a list of results. Name what --results-path wrote.`,
      {
        path: file,
      },
    );
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

// `tierkv calibrate --handoffs`: the link of a pair of prefill and decode servers, for the simulator's model of it.

/** @throws {TierKVError} TKV_INPUT naming the place for anything but what a decode server says */
async function readHandoffs(place: string): Promise<MeasuredHandoff[]> {
  const text = /^https?:/.test(place) ? await fetchText(place) : readText(place);
  const wrong = (what: string, cause?: unknown): TierKVError =>
    new TierKVError(
      'TKV_INPUT',
      `${place}: ${what}. Name http://HOST:PORT/handoffs of a decode server, or a file of it.`,
      {
        field: '--handoffs',
        ...(cause === undefined ? {} : { cause }),
      },
    );
  let recent: unknown;
  try {
    recent = (JSON.parse(text) as { readonly recent?: unknown } | null)?.recent;
  } catch (error) {
    throw wrong('must be JSON', error);
  }
  if (!Array.isArray(recent)) throw wrong('must have a list under recent');
  return recent.map((row: Readonly<Record<string, unknown>> | null, i) => {
    const number = (name: string): number => {
      const value = row?.[name];
      if (typeof value === 'number' && value >= 0 && Number.isFinite(value)) return value;
      throw wrong(`recent[${i}].${name} must be a number from 0 on`);
    };
    if (typeof row?.outcome !== 'string') throw wrong(`recent[${i}].outcome must be a text`);
    const outcome = row.outcome as MeasuredHandoff['outcome'];
    return {
      outcome,
      taken: number('taken'),
      bytes: number('bytes'),
      ms: number('ms'),
      flowMs: number('flowMs'),
    };
  });
}

async function fetchText(url: string): Promise<string> {
  try {
    const answer = await fetch(url);
    if (answer.ok) return await answer.text();
    throw new Error(`status ${answer.status}`);
  } catch (cause) {
    const why =
      cause instanceof Error ? ((cause.cause as Error | undefined)?.message ?? cause.message) : String(cause);
    throw new TierKVError('TKV_INPUT', `${url} does not answer (${why}). Start the decode server.`, {
      field: '--handoffs',
      cause,
    });
  }
}

/** @returns what is printed */
function writeHandoffs(fit: HandoffFit, out: string | undefined): string {
  const latencyUs = round(fit.baseLatencyUs);
  const gbps = round(fit.bandwidthBytesPerS / 1e9);
  if (out !== undefined) {
    const section = [
      'handoff:',
      `  base_latency_us: ${latencyUs}`,
      `  bandwidth_gb_per_s: ${gbps}`,
      `  granularity: ${fit.granularity}`,
      `  pipelined: ${fit.pipelined}`,
      `  missing_only: ${fit.missingOnly}`,
    ];
    writeText(out, `${section.join('\n')}\n`);
  }
  return (
    `${fit.handoffs} hand-offs: ${latencyUs} µs and ${gbps} GB/s, median error ${(100 * fit.error).toFixed(0)} %\n` +
    `tierkv simulate --pd-transfer-base-latency ${latencyUs / 1000} --pd-transfer-bandwidth ${gbps} ` +
    `--pd-transfer-granularity ${fit.granularity} --pd-transfer-pipelined --pd-transfer-missing\n`
  );
}
