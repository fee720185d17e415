/**
 * Opens anything that holds a workload: finds out its format, or takes the one that was named, and hands out
 * its requests. Only this file knows which reader belongs to which format.
 */

import path from 'node:path';
import { inputError } from '../../io/files/inputErrors.ts';
import { exists, fileLines, firstLine, folderFiles, isFolder, readText } from '../../io/files/inputs.ts';
import { configError, namedError, nearestName, TierKVError } from '../../runtime/errors.ts';
import { parseWorkloadSpec } from '../description/readWorkload.ts';
import type { WorkloadSpec } from '../description/workloadSpec.ts';
import {
  wekaFields,
  wekaRequests,
  wekaSessionFields,
  wekaSessionRequests,
} from '../workload/agentSessions.ts';
import { benchmarkFields, benchmarkRequests } from '../workload/benchmarkOutput.ts';
import { gatewayFields, gatewayRequests } from '../workload/gatewayTrace.ts';
import {
  bailianFields,
  bailianRequests,
  mooncakeFields,
  mooncakeRequests,
  textTraceFields,
  textTraceRequests,
  tokenIdFields,
  tokenIdRequests,
} from '../workload/importers.ts';
import type { Limits } from '../workload/plan.ts';
import { requestsOf, type WorkloadRequest } from '../workload/request.ts';
import {
  type ServeGenChunk,
  servegenCohorts,
  servegenLengths,
  servegenWindows,
} from '../workload/servegen.ts';
import {
  azureColumns,
  azureRequests,
  burstColumns,
  burstRequests,
  type ColumnMapping,
  lengthFileRequests,
  mappedRequests,
} from '../workload/tables.ts';
import { CsvHeader, numbered, splitCsv, TakenColumns, TraceLine } from '../workload/traceLines.ts';
import { readTraceHeader, recordedRequests, traceRecords, traceV2Columns } from '../workload/traceV2.ts';
import { generateWorkload, type Workload } from '../workload/workload.ts';

export const FORMATS = [
  'spec',
  'tracev2',
  'mooncake',
  'gateway',
  'weka',
  'miniswe',
  'token-ids',
  'bailian',
  'azure',
  'burstgpt',
  'lengths',
  'columns',
  'vllm-bench',
  'servegen',
] as const;
export type Format = (typeof FORMATS)[number];

/** Formats whose rows are times and lengths: whether prompts share beginnings does not stand in them. */
const ofLengths: ReadonlySet<Format> = new Set(['azure', 'burstgpt', 'lengths', 'columns', 'vllm-bench']);

/**
 * A notice of what a trace of this format cannot show; undefined where the format says which prompts share their
 * beginnings.
 */
export function prefixNotice(format: Format): string | undefined {
  if (!ofLengths.has(format)) return undefined;
  return (
    `rows of ${format} say nothing of shared prefixes, so that every prompt counts as new: what tiers and routing by prefix ` +
    'bring cannot be seen from this trace. Use one with hash_ids or token ids, or a specification with prefixes.'
  );
}

export interface OpenOptions {
  readonly format?: Format;
  readonly seed?: bigint;
  readonly limits?: Partial<Limits>;
  /** Requests per second, for files of lengths. */
  readonly rate?: number;
  readonly blockTokens?: number;
  readonly sessionGapS?: number;
  /** Which columns of a CSV are what; the file is then read by them and by nothing else. */
  readonly columns?: ColumnMapping;
  /** Whether rows without prompt or output tokens are left out and counted, in place of an error. */
  readonly dropEmpty?: boolean;
  /** Whether rows are sorted by time, in place of an error for rows that go back in time. */
  readonly sort?: boolean;
  /** Changes a spec before it is generated from. */
  readonly adjust?: (spec: WorkloadSpec) => WorkloadSpec;
}

export interface OpenedWorkload {
  readonly format: Format;
  /** Requests in order of arrival; every call starts at the first. */
  readonly requests: () => Iterable<WorkloadRequest>;
  /** Present for what is generated, not recorded. */
  readonly spec?: WorkloadSpec;
  readonly workload?: Workload;
  /** Columns and rows that the last pass over a recorded trace used; absent for generated workloads. */
  readonly taken?: TakenTrace;
}

/** The part of a recorded trace that was used, as far as it was read. */
interface TakenTrace {
  readonly columns: TakenColumns;
  rows: number;
  firstUs: number;
  lastUs: number;
}

export function requireFormat(name: string): Format {
  if ((FORMATS as readonly string[]).includes(name)) return name as Format;
  const near = nearestName(name, FORMATS);
  throw configError(
    'format',
    `is "${name}"`,
    `${near === undefined ? '' : `Did you mean "${near}"? `}Valid: ${FORMATS.join(', ')}.`,
  );
}

const plainName = (file: string): string => file.replace(/\.(gz|zst)$/, '');

/** The format of a file or folder: of a file by all columns or fields that its first line names. */
export function formatOf(file: string): Format {
  if (isFolder(file)) {
    if (folderFiles(file, /^chunk-.*-trace\.csv(\.gz|\.zst)?$/).length > 0) return 'servegen';
    return folderFiles(file, sessionFile).length > 0 ? 'weka' : 'miniswe';
  }
  if (/\.ya?ml(\.gz|\.zst)?$/.test(file)) return isTraceHeader(file) ? 'tracev2' : 'spec';
  const line = firstLine(file);
  if (line === '') throw inputError(file, 'is empty: it has no request', 'Name another file.');
  if (isObjectFile(file)) {
    const object = wholeObject(file);
    // a trace of one line is an object too
    if (!jsonFields.some(([, fields]) => fields.every((field) => field in object)))
      return objectFormat(object, file);
  }
  if (line.trimStart().startsWith('{')) return jsonFormat(line, file);
  if (line.includes(',')) return csvFormat(line, file);
  throw namedError(
    'TKV_INPUT',
    { field: 'format', path: file },
    (name) =>
      `${name(file)}: no known workload format. Name it with ${name('format')}: ${FORMATS.join(', ')}`,
  );
}

/** A header of TraceV2 says its version; a spec beside a CSV of its name is a spec all the same. */
function isTraceHeader(file: string): boolean {
  // no line end among the spaces: each of many empty lines would be looked at from each
  return /^[ \t]*["']?trace_version["']?[ \t]*:/m.test(readText(file));
}

/** Fields that every line of a format has. */
const jsonFields: readonly (readonly [Format, readonly string[]])[] = [
  ['mooncake', mooncakeFields],
  ['gateway', gatewayFields],
  ['weka', wekaFields],
  ['miniswe', textTraceFields],
  ['token-ids', tokenIdFields],
  ['bailian', bailianFields],
];

/** Whether a file is one JSON object, perhaps over many lines, and not an object a line. */
function isObjectFile(file: string): boolean {
  if (!/\.json$/.test(plainName(file))) return false;
  let first: string | undefined;
  for (const line of fileLines(file)) {
    if (line.trim() === '') continue;
    if (first !== undefined) return !isWhole(first);
    first = line;
  }
  return first?.trimStart().startsWith('{') === true;
}

function isWhole(line: string): boolean {
  try {
    JSON.parse(line);
    return true;
  } catch {
    return false;
  }
}

/** A session of WEKA's, as its publisher has it. */
const sessionFile = /\.json(\.gz|\.zst)?$/;

function wholeObject(file: string): Record<string, unknown> {
  return new TraceLine(file, 1).json(readText(file));
}

/** Objects that hold all of a run or of a session. */
const objectFields: readonly (readonly [Format, readonly string[]])[] = [
  ['vllm-bench', benchmarkFields],
  ['weka', wekaSessionFields],
];

function objectFormat(object: Readonly<Record<string, unknown>>, file: string): Format {
  const found = objectFields.find(([, fields]) => fields.every((field) => field in object));
  if (found !== undefined) return found[0];
  const known = objectFields.map(([format, fields]) => `${format} (${fields.join(', ')})`).join(', ');
  throw new TraceLine(file, 1).error('', 'has the fields of no known workload format', `Known are ${known}`);
}

function jsonFormat(line: string, file: string): Format {
  const at = new TraceLine(file, 1);
  const row = at.json(line);
  const object = objectFields.find(([, fields]) => fields.every((field) => field in row));
  if (object !== undefined) return object[0];
  const named = jsonFields.filter(([, fields]) => fields.every((field) => field in row));
  // a line of Bailian's has all fields of Mooncake's, in other units
  const isBailian = named.some(([format]) => format === 'bailian');
  const whole = named.filter(([format]) => !isBailian || format !== 'mooncake');
  if (whole.length === 1) return whole[0][0];
  const names = whole.map(([format]) => format).join(' and ');
  if (whole.length > 1) {
    throw at.error('', `has the fields of ${names}`, (name) => `Name the format with ${name('format')}`);
  }
  const share = ([, fields]: (typeof jsonFields)[number]): number =>
    fields.filter((field) => field in row).length / fields.length;
  const nearest = jsonFields.reduce((best, one) => (share(one) > share(best) ? one : best));
  if (share(nearest) === 0) {
    const known = jsonFields.map(([format, fields]) => `${format} (${fields.join(', ')})`).join(', ');
    throw at.error('', 'has the fields of no known workload format', `Known are ${known}`);
  }
  const missing = nearest[1].find((field) => !(field in row))!;
  throw at.error(missing, 'is missing', `The line is nearest to ${nearest[0]}: ${nearest[1].join(', ')}`);
}

/** Columns that only TraceV2 has. */
const ownColumns = ['request_id', 'client_id', 'tenant_id', 'slo_class', 'round_index', 'prefix_group'];

function csvFormat(line: string, file: string): Format {
  const at = new TraceLine(file, 1);
  const cells = splitCsv(line);
  if (cells === undefined) throw at.error('', 'a quote is never closed', 'Mend the line');
  const header = new CsvHeader(cells, at);
  if (traceV2Columns.every((name) => header.names.includes(name))) return 'tracev2';
  if (ownColumns.filter((name) => header.names.includes(name)).length >= 3) return 'tracev2';
  if (azureColumns.every((name) => header.find([name]) >= 0)) return 'azure';
  return burstColumns.every((name) => header.find([name]) >= 0) ? 'burstgpt' : 'lengths';
}

/** The CSV beside the header of a TraceV2 pair. */
function traceData(header: string): string | undefined {
  const stem = plainName(header).replace(/\.ya?ml$/, '');
  return [`${stem}.csv`, `${stem}.csv.gz`, `${stem}.csv.zst`].find((name) => exists(name));
}

const isYaml = (file: string): boolean => /\.ya?ml$/.test(plainName(file));

function traceHeaderOf(data: string): string | undefined {
  const stem = plainName(data).replace(/\.csv$/, '');
  return [`${stem}.yaml`, `${stem}.yml`].find((name) => exists(name) && isTraceHeader(name));
}

export function openWorkload(file: string, options: OpenOptions = {}): OpenedWorkload {
  const format = options.format ?? (options.columns === undefined ? formatOf(file) : 'columns');
  if ((format === 'columns') !== (options.columns !== undefined)) {
    if (format === 'columns') {
      throw configError(
        'columns',
        (called) => `is missing, and ${called('format')} is columns`,
        'Say which columns are arrival, input, output.',
      );
    }
    throw configError(
      'columns',
      (called) => `is given, and ${called('format')} is ${format}`,
      'Leave one of them out.',
    );
  }
  if (format === 'spec') return openSpec(readSpec(file), options, format);
  if (format === 'servegen') return openSpec(servegenSpec(file, options.seed ?? 42n), options, format);
  const { dropEmpty = false, sort = false } = options;
  const columns = new TakenColumns({ dropsEmpty: dropEmpty, anyOrder: sort });
  const taken: TakenTrace = { columns, rows: 0, firstUs: 0, lastUs: 0 };
  const read = readerOf(format, file, options, columns);
  const requests = sort ? () => sorted(file, read()) : read;
  return { format, taken, requests: () => counted(file, requests(), taken) };
}

/** Most requests that are held to be sorted. */
const maxSorted = 4_000_000;

/** Requests by arrival, those of one time in the order of the file. */
function* sorted(file: string, requests: Iterable<WorkloadRequest>): Generator<WorkloadRequest> {
  const all: WorkloadRequest[] = [];
  for (const request of requests) {
    if (all.length === maxSorted) {
      throw inputError(file, `holds more than ${maxSorted} requests to sort`, 'Sort the file by time.');
    }
    all.push(request);
  }
  const order = all.map((_, i) => i).sort((x, y) => all[x].arrivalUs - all[y].arrivalUs || x - y);
  // dates count from the first row, which may not be the earliest
  const beforeUs = Math.min(0, all[order[0]]?.arrivalUs ?? 0);
  for (const [index, i] of order.entries()) {
    yield { ...all[i], id: `request_${index}`, arrivalUs: all[i].arrivalUs - beforeUs };
  }
}

/** Counts what is read; a trace without a request is an error. */
function* counted(
  file: string,
  requests: Iterable<WorkloadRequest>,
  taken: TakenTrace,
): Generator<WorkloadRequest> {
  taken.rows = 0;
  for (const request of requests) {
    if (taken.rows++ === 0) taken.firstUs = request.arrivalUs;
    taken.lastUs = request.arrivalUs;
    yield request;
  }
  if (taken.rows === 0) throw inputError(file, 'holds no request', 'Name another file.');
}

/** Begins a pass over a recorded trace. */
function readerOf(
  format: Exclude<Format, 'spec' | 'servegen'>,
  file: string,
  options: OpenOptions,
  taken: TakenColumns,
): () => Iterable<WorkloadRequest> {
  const { rate, blockTokens, sessionGapS, seed = 42n } = options;
  const blocks = blockTokens === undefined ? {} : { blockTokens };
  switch (format) {
    case 'tracev2': {
      const data = isYaml(file) ? traceData(file) : file;
      if (data === undefined) {
        const problem = 'is the header of a trace, and no CSV of its name is there';
        throw inputError(file, problem, 'Put the CSV beside it.');
      }
      const header = isYaml(file) ? file : traceHeaderOf(data);
      if (header !== undefined) {
        const { accumulate, warmUpRequests } = readTraceHeader(readText(header), header);
        // rows have lengths alone: rounds share nothing, and requests of a warm-up count as all others
        if (accumulate) taken.leave('session_context_growth');
        if (warmUpRequests > 0) taken.leave('warm_up_requests');
      }
      return () => recordedRequests(() => traceRecords(fileLines(data), data, taken), seed);
    }
    case 'mooncake':
      return () => mooncakeRequests(fileLines(file), file, { ...blocks, taken });
    case 'gateway':
      return () => gatewayRequests(fileLines(file), file, taken);
    case 'bailian':
      return () => bailianRequests(fileLines(file), file, { ...blocks, taken });
    case 'weka': {
      const gap = sessionGapS === undefined ? {} : { sessionGapS };
      const sessions = wekaSessions(file);
      if (sessions !== undefined) return () => wekaSessionRequests(sessions(), { ...gap, taken });
      return () => wekaRequests(fileLines(file), file, { ...blocks, ...gap, taken });
    }
    case 'vllm-bench':
      return () => benchmarkRequests(wholeObject(file), new TraceLine(file, 1), taken);
    case 'miniswe': {
      const files = isFolder(file) ? folderFiles(file, /\.jsonl(\.gz|\.zst)?$/) : [file];
      if (files.length === 0) {
        const holds = 'holds neither sessions (*.jsonl) nor profiles of ServeGen (chunk-*-trace.csv)';
        throw inputError(file, holds, 'Name a file, or a folder with one of them.');
      }
      return () =>
        textTraceRequests(
          files.map((name) => ({ file: name, lines: fileLines(name) })),
          { taken },
        );
    }
    case 'token-ids':
      return () => tokenIdRequests(fileLines(file), file, taken);
    case 'azure':
      return () => azureRequests(fileLines(file), file, taken);
    case 'burstgpt':
      return () => burstRequests(fileLines(file), file, taken);
    case 'columns': {
      const drawn = rate === undefined ? {} : { rate };
      return () => mappedRequests(fileLines(file), file, options.columns!, { ...drawn, seed, taken });
    }
    case 'lengths': {
      const drawn = rate === undefined ? {} : { rate };
      return () => lengthFileRequests(fileLines(file), file, { ...drawn, seed, taken });
    }
  }
}

/** Sessions of WEKA's in the form of their publisher, of a folder or a file; undefined for the compact form. */
function wekaSessions(
  file: string,
): (() => Iterable<readonly [Readonly<Record<string, unknown>>, TraceLine]>) | undefined {
  if (isFolder(file) || isObjectFile(file)) {
    const files = isFolder(file) ? folderFiles(file, sessionFile) : [file];
    return function* () {
      for (const name of files) yield [wholeObject(name), new TraceLine(name, 1)] as const;
    };
  }
  const line = firstLine(file);
  if (!wekaSessionFields.every((field) => field in new TraceLine(file, 1).json(line))) return undefined;
  return function* () {
    for (const [text, at] of numbered(fileLines(file), file)) yield [at.json(text), at] as const;
  };
}

/** Requests of a generated workload; what takes hours and all memory is refused before it begins. */
const mostExpected = 20_000_000;

/** A workload that is generated: what is known before the simulation, for closed loops the first rounds. */
export function openSpec(given: WorkloadSpec, options: OpenOptions, format: Format = 'spec'): OpenedWorkload {
  const seeded = options.seed === undefined ? given : { ...given, seed: options.seed };
  const spec = options.adjust?.(seeded) ?? seeded;
  const workload = generateWorkload(spec, { mostExpected, ...options.limits });
  return { format, spec, workload, requests: () => requestsOf(workload.stream()) };
}

/** A spec from a file; profiles of ServeGen that it names are read and expanded. */
export function readSpec(file: string): WorkloadSpec {
  const folder = path.dirname(file);
  const spec = parseWorkloadSpec(readText(file), file, {
    readFile: (name) => readText(path.resolve(folder, name)),
  });
  if (spec.servegen === undefined) return spec;
  const { servegen, ...rest } = spec;
  const chunks = servegenChunks(path.resolve(folder, servegen.path));
  return withCohorts(rest, servegenCohorts(chunks, servegen, spec.seed), chunks);
}

function withCohorts(
  spec: WorkloadSpec,
  cohorts: WorkloadSpec['cohorts'],
  chunks: readonly ServeGenChunk[],
): WorkloadSpec {
  return {
    ...spec,
    category: chunks[0]?.hasReasonRatio ? 'reasoning' : spec.category,
    aggregateRate: 0,
    cohorts,
  };
}

interface ServeGenOptions {
  readonly windowDurationS?: number;
  readonly drainTimeoutS?: number;
}

export function servegenSpec(folder: string, seed: bigint, options: ServeGenOptions = {}): WorkloadSpec {
  const chunks = servegenChunks(folder);
  const servegen = {
    path: folder,
    windowDurationS: options.windowDurationS ?? 600,
    drainTimeoutS: options.drainTimeoutS ?? 180,
    timeWindow: '',
    spanStartS: 0,
    spanEndS: 0,
  } as const;
  const empty: WorkloadSpec = {
    seed,
    category: 'language',
    aggregateRate: 0,
    horizonUs: Infinity,
    numRequests: 0,
    goodputSloTargets: {},
    clients: [],
    cohorts: [],
  };
  return withCohorts(empty, servegenCohorts(chunks, servegen, seed), chunks);
}

/** All chunks of a folder that have lengths, in the order of their names. */
function servegenChunks(folder: string): ServeGenChunk[] {
  const traces = folderFiles(folder, /^chunk-.*-trace\.csv(\.gz|\.zst)?$/);
  if (traces.length === 0) {
    throw new TierKVError(
      'TKV_INPUT',
      `${folder}: holds no chunk-*-trace.csv. Name a folder of ServeGen profiles`,
      { path: folder },
    );
  }
  return traces.flatMap((trace) => {
    const id = path
      .basename(plainName(trace))
      .replace(/^chunk-/, '')
      .replace(/-trace\.csv$/, '');
    const stem = path.join(folder, `chunk-${id}-dataset.json`);
    const dataset = [stem, `${stem}.gz`, `${stem}.zst`].find((name) => exists(name));
    if (dataset === undefined) return []; // some published clients have rates only
    return [
      {
        id,
        windows: servegenWindows(fileLines(trace), trace),
        ...servegenLengths(readText(dataset), dataset),
      },
    ];
  });
}
