/**
 * Opens anything that holds a workload: finds out its format, or takes the one that was named, and hands out
 * its requests. Only this file knows which reader belongs to which format.
 */

import path from 'node:path';
import { configError, TierKVError } from '../../runtime/errors.ts';
import {
  azureRequests,
  generateWorkload,
  type Limits,
  lengthFileRequests,
  mooncakeRequests,
  nearestName,
  parseWorkloadSpec,
  readTraceHeader,
  recordedRequests,
  requestsOf,
  type ServeGenChunk,
  servegenCohorts,
  servegenLengths,
  servegenWindows,
  textTraceRequests,
  tokenIdRequests,
  traceRecords,
  type Workload,
  type WorkloadRequest,
  type WorkloadSpec,
  wekaRequests,
} from '../../sim/workload/index.ts';
import { readYaml } from '../../sim/workload/spec/reader.ts';
import { fileLines, firstLine, inputError, readText } from '../input/index.ts';
import { exists, folderFiles, isFolder } from './files.ts';

export const FORMATS = [
  'spec',
  'tracev2',
  'mooncake',
  'weka',
  'miniswe',
  'token-ids',
  'azure',
  'lengths',
  'servegen',
] as const;
export type Format = (typeof FORMATS)[number];

export interface OpenOptions {
  readonly format?: Format;
  readonly seed?: bigint;
  readonly limits?: Partial<Limits>;
  /** Requests per second, for files of lengths. */
  readonly rate?: number;
  readonly blockTokens?: number;
  readonly sessionGapS?: number;
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
}

export function requireFormat(name: string): Format {
  if ((FORMATS as readonly string[]).includes(name)) return name as Format;
  const near = nearestName(name, FORMATS);
  throw configError(
    '--from',
    `is "${name}"`,
    `${near === undefined ? '' : `Did you mean "${near}"? `}Valid: ${FORMATS.join(', ')}.`,
  );
}

const plainName = (file: string): string => file.replace(/\.(gz|zst)$/, '');

/** The format of a file or folder by its name and its first line. */
export function formatOf(file: string): Format {
  if (isFolder(file)) return folderFiles(file, /^chunk-.*-trace\.csv$/).length > 0 ? 'servegen' : 'miniswe';
  if (/\.ya?ml$/.test(file)) {
    return traceData(file) === undefined || isSpecification(file) ? 'spec' : 'tracev2';
  }
  const line = firstLine(file);
  if (line === '') throw inputError(file, 'is empty: there is no request in it', 'Name another file.');
  if (line.startsWith('{')) return detectJson(line) ?? unknownFormat(file);
  if (/^request_id,/.test(line)) return 'tracev2';
  if (/^TIMESTAMP,/.test(line)) return 'azure';
  if (line.includes(',')) return 'lengths';
  return unknownFormat(file);
}

function detectJson(line: string): Format | undefined {
  if (line.includes('"hash_ids"')) return 'mooncake';
  if (line.includes('"input_tok_ids"')) return 'token-ids';
  if (line.includes('"session_id"')) return 'miniswe';
  return line.includes('"h"') && line.includes('"s"') ? 'weka' : undefined;
}

function unknownFormat(file: string): never {
  throw new TierKVError(
    'TKV_INPUT',
    `${file}: no known workload format. Name it with --from: ${FORMATS.join(', ')}`,
    { path: file },
  );
}

/** Keys by which a specification is told from the header of a TraceV2 pair, which has none of them. */
const specKeys = ['clients', 'cohorts', 'servegen_data', 'inference_perf'];

/** Whether a YAML file is a specification, whatever lies beside it. */
function isSpecification(file: string): boolean {
  const keys = readYaml(readText(file), file).keys();
  return specKeys.some((key) => keys.includes(key));
}

/** The CSV beside the header of a TraceV2 pair. */
function traceData(header: string): string | undefined {
  const stem = plainName(header).replace(/\.ya?ml$/, '');
  return [`${stem}.csv`, `${stem}.csv.gz`, `${stem}.csv.zst`].find((name) => exists(name));
}

function traceHeaderOf(data: string): string | undefined {
  const stem = plainName(data).replace(/\.csv$/, '');
  return [`${stem}.yaml`, `${stem}.yml`].find((name) => exists(name) && !isSpecification(name));
}

export function openWorkload(file: string, options: OpenOptions = {}): OpenedWorkload {
  const format = options.format ?? formatOf(file);
  switch (format) {
    case 'spec':
      return openSpec(readSpec(file), options, format);
    case 'servegen':
      return openSpec(servegenSpec(file, options.seed ?? 42n), options, format);
    case 'tracev2': {
      const data = /\.ya?ml$/.test(file) ? traceData(file) : file;
      if (data === undefined) {
        throw new TierKVError(
          'TKV_INPUT',
          `${file}: the CSV of this trace is missing. Put it beside the header`,
          { path: file },
        );
      }
      const header = traceHeaderOf(data);
      if (header !== undefined) readTraceHeader(readText(header), header);
      return {
        format,
        requests: () => recordedRequests(() => traceRecords(fileLines(data), data), options.seed ?? 42n),
      };
    }
    case 'mooncake':
      return {
        format,
        requests: () =>
          mooncakeRequests(
            fileLines(file),
            file,
            options.blockTokens === undefined ? {} : { blockTokens: options.blockTokens },
          ),
      };
    case 'weka':
      return {
        format,
        requests: () =>
          wekaRequests(fileLines(file), file, {
            ...(options.blockTokens === undefined ? {} : { blockTokens: options.blockTokens }),
            ...(options.sessionGapS === undefined ? {} : { sessionGapS: options.sessionGapS }),
          }),
      };
    case 'miniswe': {
      const files = isFolder(file) ? folderFiles(file, /\.jsonl(\.gz|\.zst)?$/) : [file];
      if (files.length === 0) {
        const holds = 'holds neither sessions (*.jsonl) nor profiles of ServeGen (chunk-*-trace.csv)';
        throw inputError(file, holds, 'Name a file, or a folder with one of them.');
      }
      return {
        format,
        requests: () => textTraceRequests(files.map((name) => ({ file: name, lines: fileLines(name) }))),
      };
    }
    case 'token-ids':
      return { format, requests: () => tokenIdRequests(fileLines(file), file) };
    case 'azure':
      return { format, requests: () => azureRequests(fileLines(file), file) };
    case 'lengths':
      return {
        format,
        requests: () =>
          lengthFileRequests(fileLines(file), file, { rate: options.rate ?? 1, seed: options.seed ?? 42n }),
      };
  }
}

/** A workload that is generated: what is known before the simulation, for closed loops the first rounds. */
export function openSpec(given: WorkloadSpec, options: OpenOptions, format: Format = 'spec'): OpenedWorkload {
  const seeded = options.seed === undefined ? given : { ...given, seed: options.seed };
  const spec = options.adjust?.(seeded) ?? seeded;
  const workload = generateWorkload(spec, options.limits);
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

export interface ServeGenOptions {
  readonly windowDurationS?: number;
  readonly drainTimeoutS?: number;
}

/** The spec of a folder of ServeGen profiles. */
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
