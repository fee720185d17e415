/**
 * TraceV2, the pair of files in which upstream records a run (a header in YAML, a CSV row a request): read
 * strictly, replayed in open or closed loop, and written.
 */

import { nearestName } from '../../runtime/errors.ts';
import * as is from '../../runtime/kinds.ts';
import { checkInputs } from '../../runtime/options.ts';
import { readYaml, type SpecNode } from '../description/fields.ts';
import type { SloTargets } from '../description/workloadSpec.ts';
import { GoRandom } from '../random/goRand.ts';
import type { SessionPlan } from './closedLoop.ts';
import type { RequestStream, TokenSpan, WorkloadRequest } from './request.ts';
import { VOCABULARY } from './tokens.ts';
import {
  csvCell,
  type Lines,
  numbered,
  shown,
  shownPlain,
  splitCsv,
  TakenColumns,
  type TraceLine,
} from './traceLines.ts';

// A recorded trace in closed loop: the first round of each session arrives as recorded, each later one its
// recorded pause after the one before has ended. Where a trace has no pauses, a pause is what is left of
// the time between two arrivals beyond a microsecond for each token of the answer, as generated
// conversations have it.

export interface ClosedLoopTrace {
  /** Requests outside sessions, and first rounds. */
  readonly stream: RequestStream;
  readonly sessions: SessionPlan;
}

/**
 * @param requests in order of arrival; all of them are held
 * @param pauseUs between rounds, in place of the recorded ones
 */
export function closedLoopTrace(requests: Iterable<WorkloadRequest>, pauseUs?: number): ClosedLoopTrace {
  checkInputs({ requests, pauseUs }, { requests: is.iterable(), pauseUs: is.optional(is.number()) });
  const first: WorkloadRequest[] = [];
  const later: WorkloadRequest[][] = [];
  const numberOf = new Map<string, number>();
  const last: WorkloadRequest[] = [];
  for (const request of requests) {
    const { sessionId } = request;
    const known = sessionId === '' ? undefined : numberOf.get(sessionId);
    if (known === undefined) {
      first.push(request);
      if (sessionId === '') continue;
      request.session = later.push([]) - 1;
      numberOf.set(sessionId, request.session);
      last[request.session] = request;
      continue;
    }
    const before = last[known];
    const gapUs = Math.max(0, request.arrivalUs - before.arrivalUs - before.outputTokens);
    const recordedUs = request.thinkTimeUs > 0 ? request.thinkTimeUs : gapUs;
    const thinkTimeUs = pauseUs ?? recordedUs;
    later[known].push({ ...request, thinkTimeUs });
    last[known] = request;
  }
  let next = 0;
  return {
    stream: { next: () => (next < first.length ? { ...first[next++] } : undefined) },
    sessions: {
      kinds: [],
      kindOf: new Int32Array(later.length),
      seeds: new BigInt64Array(later.length),
      recorded: later,
      followUpBudget: -1,
      horizonUs: Infinity,
    },
  };
}

// Reading the header of a TraceV2 pair, strictly: a key that the format does not have is an error. Sections
// that only a server or an engine uses are checked for their keys and left to their users.

interface TraceHeader {
  readonly version: number;
  readonly mode: 'generated' | 'real' | 'replayed';
  readonly warmUpRequests: number;
  readonly workloadSeed: bigint | undefined;
  readonly accumulate: boolean;
}

const SECTIONS: Readonly<Record<string, readonly string[]>> = {
  server: [
    'type',
    'model',
    'tensor_parallel',
    'max_num_seqs',
    'block_size',
    'gpu_memory_utilization',
    'max_model_len',
  ],
  network: ['measured_rtt_ms'],
  observed_kv_metrics: [
    'source',
    'hit_rate',
    'block_hits',
    'block_queries',
    'read_time_total',
    'write_time_total',
    'vllm_commit',
  ],
  kv_offload: [
    'cpu_bytes_to_use',
    'per_block_bytes',
    'block_size',
    'blocks_per_chunk',
    'tokens_per_hash',
    'eviction_policy',
    'offload_prompt_only',
    'self_describing_kv_events',
  ],
};
const TIER_KEYS = [
  'type',
  'root_dir',
  'n_read_threads',
  'n_write_threads',
  'locality',
  'enable_kv_events',
  'direct_io',
  'device_class',
  'read_bandwidth',
  'write_bandwidth',
  'base_latency',
  'saturation_queue_depth',
  'single_transfer_fraction',
  'latency_jitter_stddev',
];

function closeSection(root: SpecNode, name: string): void {
  const section = root.section(name);
  if (section === undefined) return;
  for (const key of SECTIONS[name]) section.has(key);
  if (name === 'kv_offload') {
    for (const tier of section.list('secondary_tiers')) {
      for (const key of TIER_KEYS) tier.has(key);
      tier.close();
    }
  }
  section.close();
}

/** @throws {TierKVError} TKV_INPUT with file, line and key. */
export function readTraceHeader(text: string, file: string): TraceHeader {
  checkInputs({ text, file }, { text: is.text(), file: is.name() });
  const root = readYaml(text, file);
  const version = root.integer('trace_version', { min: 1 }, 0);
  if (version > TRACE_VERSION || version === 0) {
    throw root.error(
      'trace_version',
      version === 0 ? 'is missing' : `is ${version}`,
      `Versions 1 to ${TRACE_VERSION} can be read`,
    );
  }
  if (root.text('time_unit', 'microseconds') !== 'microseconds') {
    throw root.error('time_unit', `is "${root.text('time_unit')}"`, 'Only microseconds can be read');
  }
  const header: TraceHeader = {
    version,
    mode: root.choice('mode', ['generated', 'real', 'replayed']),
    warmUpRequests: root.integer('warm_up_requests', { min: 0 }, 0),
    workloadSeed: root.has('workload_seed') ? root.int64('workload_seed', 0n) : undefined,
    accumulate: root.choice('session_context_growth', ['', 'accumulate'], '') === 'accumulate',
  };
  for (const key of ['created_at', 'workload_spec']) root.text(key);
  for (const name of Object.keys(SECTIONS)) closeSection(root, name);
  for (const name of root.section('goodput_slo_targets')?.keys() ?? []) {
    const one = root.section('goodput_slo_targets')!.section(name);
    for (const key of ['ttft_ms', 'itl_ms', 'e2e_ms']) one?.optionalNumber(key, { min: 0 });
    one?.close();
  }
  root.close();
  return header;
}

// Reading the rows of TraceV2: one record a CSV row, columns found by name. `recordedRequests` turns records
// into requests as upstream's fixed replay does: one random stream, first the prefixes of the groups in order
// of appearance, then for every record its input and its output tokens.

/** One row of a trace. Times in µs; `inputTokens` without the prefix. */
interface TraceV2Record {
  readonly requestId: number;
  readonly clientId: string;
  readonly tenantId: string;
  readonly sloClass: string;
  readonly sessionId: string;
  readonly round: number;
  readonly prefixGroup: string;
  readonly prefixTokens: number;
  readonly streaming: boolean;
  readonly inputTokens: number;
  readonly outputTokens: number;
  readonly modalities: readonly [text: number, image: number, audio: number, video: number];
  readonly reasonRatio: number;
  readonly model: string;
  readonly deadlineUs: number;
  readonly sloTargetUs: number;
  readonly serverInputTokens: number;
  readonly arrivalUs: number;
  readonly sendUs: number;
  readonly firstChunkUs: number;
  readonly lastChunkUs: number;
  readonly status: string;
  readonly finishReason: string;
  readonly adapter: string;
  readonly thinkTimeUs: number;
  /** Absolute; 0 for never. */
  readonly cancelUs: number;
}

/** Columns that every TraceV2 has. */
export const traceV2Columns: readonly string[] = [
  'request_id',
  'client_id',
  'tenant_id',
  'slo_class',
  'session_id',
  'round_index',
  'prefix_group',
  'streaming',
  'input_tokens',
  'output_tokens',
  'arrival_time_us',
  'status',
];
/** Columns that are known and change nothing in a replay. */
const RECORDED = new Set([
  'vllm_priority',
  'status',
  'first_chunk_time_us',
  'last_chunk_time_us',
  'num_chunks',
  'error_message',
  'finish_reason',
  'x_request_id',
]);
const OPTIONAL = [
  'vllm_priority',
  'prefix_length',
  'text_tokens',
  'image_tokens',
  'audio_tokens',
  'video_tokens',
  'reason_ratio',
  'model',
  'deadline_us',
  'slo_target_us',
  'server_input_tokens',
  'send_time_us',
  'first_chunk_time_us',
  'last_chunk_time_us',
  'num_chunks',
  'error_message',
  'finish_reason',
  'x_request_id',
  'adapter',
  'think_time_us',
  'cancel_time_us',
];

function columnIndex(names: readonly string[], at: TraceLine): ReadonlyMap<string, number> {
  const known = [...traceV2Columns, ...OPTIONAL];
  for (const name of names) {
    if (known.includes(name)) continue;
    const near = nearestName(name, known);
    throw at.error(
      shownPlain(name),
      'is not a column of TraceV2',
      near === undefined ? 'Drop it' : `Did you mean "${near}"?`,
    );
  }
  const twice = names.find((name, i) => names.indexOf(name) < i);
  if (twice !== undefined) throw at.error(twice, 'is there twice', 'Keep one of the columns');
  const missing = traceV2Columns.find((name) => !names.includes(name));
  if (missing !== undefined) throw at.error(missing, 'is missing', 'Write the column');
  return new Map(names.map((name, i) => [name, i]));
}

/** @throws {TierKVError} TKV_INPUT naming file, line and column. */
export function* traceRecords(
  lines: Lines,
  file: string,
  taken: TakenColumns = new TakenColumns(),
): Generator<TraceV2Record> {
  checkInputs(
    { lines, file, taken },
    { lines: is.iterable(), file: is.name(), taken: is.optional(is.object()) },
  );
  let columns: ReadonlyMap<string, number> | undefined;
  let width = 0;
  let previousUs = -Infinity;
  for (const [line, at] of numbered(lines, file)) {
    const cells = splitCsv(line);
    if (cells === undefined) throw at.error('', 'a quote is never closed', 'Mend the line');
    if (columns === undefined) {
      const names = cells.map((cell) => cell.trim());
      columns = columnIndex(names, at);
      width = cells.length;
      taken.begin(
        names.filter((name) => !RECORDED.has(name)),
        'us',
      );
      for (const name of names) if (RECORDED.has(name)) taken.leave(name);
      continue;
    }
    if (cells.length !== width)
      throw at.error('', `has ${cells.length} cells, not ${width}`, 'Mend the line');
    const record = readRecord(columns, cells, at);
    if (record.prefixTokens === 0 && record.serverInputTokens === 0) {
      at.requirePrompt('input_tokens', record.inputTokens);
    }
    previousUs = at.requireOrder('arrival_time_us', record.arrivalUs, previousUs);
    yield record;
  }
}

function readRecord(
  columns: ReadonlyMap<string, number>,
  cells: readonly string[],
  at: TraceLine,
): TraceV2Record {
  const text = (name: string): string => cells[columns.get(name) ?? -1] ?? '';
  const integer = (name: string): number => (columns.has(name) ? at.cell(text(name), name, 0) : 0);
  const tokens = (name: string): number => (columns.has(name) ? at.tokenCell(text(name), name) : 0);
  const streaming = text('streaming');
  if (streaming !== 'true' && streaming !== 'false')
    throw at.error('streaming', `is ${shown(streaming)}`, 'Write true or false');
  const ratio = text('reason_ratio') === '' ? 0 : Number(text('reason_ratio'));
  if (!(ratio >= 0 && ratio <= 1))
    throw at.error('reason_ratio', `is ${shown(text('reason_ratio'))}`, 'Write a share from 0 to 1');
  const arrivalUs = integer('arrival_time_us');
  const deadline = integer('deadline_us');
  if (deadline > 0 && deadline < arrivalUs) {
    throw at.error('deadline_us', `is ${deadline}, before the arrival at ${arrivalUs}`, 'Write 0 for none');
  }
  const cancelUs = integer('cancel_time_us');
  if (cancelUs > 0 && cancelUs < arrivalUs) {
    throw at.error(
      'cancel_time_us',
      `is ${cancelUs}, before the arrival at ${arrivalUs}`,
      'Write 0 for never',
    );
  }
  const prefixGroup = text('prefix_group');
  const prefixTokens = tokens('prefix_length');
  const sessionId = text('session_id');
  if (prefixTokens > 0 && prefixGroup === '' && sessionId === '') {
    throw at.error('prefix_length', `is ${prefixTokens} without a prefix_group`, 'Name the group');
  }
  return {
    requestId: integer('request_id'),
    clientId: text('client_id'),
    tenantId: text('tenant_id'),
    sloClass: text('slo_class'),
    sessionId,
    round: integer('round_index'),
    prefixGroup,
    prefixTokens,
    streaming: streaming === 'true',
    inputTokens: tokens('input_tokens'),
    outputTokens: tokens('output_tokens'),
    modalities: [
      tokens('text_tokens'),
      tokens('image_tokens'),
      tokens('audio_tokens'),
      tokens('video_tokens'),
    ],
    reasonRatio: ratio,
    model: text('model'),
    deadlineUs: deadline,
    sloTargetUs: integer('slo_target_us'),
    serverInputTokens: tokens('server_input_tokens'),
    arrivalUs,
    sendUs: integer('send_time_us'),
    firstChunkUs: integer('first_chunk_time_us'),
    lastChunkUs: integer('last_chunk_time_us'),
    status: text('status'),
    finishReason: text('finish_reason'),
    adapter: text('adapter'),
    thinkTimeUs: integer('think_time_us'),
    cancelUs,
  };
}

/**
 * Requests of a trace with its recorded lengths. `records` is called twice, since the prefix tokens of all
 * groups are drawn before anything else.
 */
export function* recordedRequests(
  records: () => Iterable<TraceV2Record>,
  seed: bigint,
): Generator<WorkloadRequest> {
  checkInputs({ records, seed }, { records: is.func(), seed: is.bigint() });
  const random = new GoRandom(seed);
  const draw = (tokens: number): TokenSpan => {
    const span = { seed, position: random.position, tokens };
    random.skipIntn(tokens, VOCABULARY);
    return span;
  };
  const prefixes = new Map<string, TokenSpan>();
  for (const record of records()) {
    if (record.prefixGroup === '' || record.prefixTokens === 0 || prefixes.has(record.prefixGroup)) continue;
    prefixes.set(record.prefixGroup, draw(record.prefixTokens));
  }
  let index = 0;
  for (const record of records()) {
    const prefix = prefixes.get(record.prefixGroup);
    const served =
      record.serverInputTokens > 0 && record.prefixGroup === ''
        ? record.serverInputTokens
        : record.inputTokens;
    const input = draw(served);
    const output = draw(record.outputTokens);
    const [text, image, audio, video] = record.modalities;
    yield {
      id: `request_${index++}`,
      origin: {
        clientId: record.clientId,
        tenantId: record.tenantId,
        sloClass: record.sloClass,
        model: record.model,
        adapter: record.adapter,
        sloTargetUs: record.sloTargetUs,
        prefixGroup: record.prefixGroup,
      },
      arrivalUs: record.sendUs > 0 ? record.sendUs : record.arrivalUs,
      inputTokens: (prefix?.tokens ?? 0) + served,
      outputTokens: record.outputTokens,
      prefixTokens: prefix?.tokens ?? 0,
      prompt: { kind: 'drawn', spans: prefix === undefined ? [input] : [prefix, input] },
      output: { kind: 'drawn', spans: [output] },
      deadlineUs: record.deadlineUs,
      sessionId: record.sessionId,
      session: -1,
      round: record.round,
      streaming: record.streaming,
      modalities: text + image + audio + video > 0 ? { text, image, audio, video } : null,
      reasonRatio: record.reasonRatio,
      thinkTimeUs: record.thinkTimeUs,
      recordedPrefixGroup: record.prefixGroup,
      ...(record.cancelUs > 0 ? { cancelUs: record.cancelUs } : {}),
    };
  }
}

// Writing TraceV2: a header in YAML and one CSV row a request. Columns that only some traces use appear when
// asked for; a caller that streams decides before the first row (`columnsFor`).

const TRACE_VERSION = 3;

const FIXED_COLUMNS = [
  'request_id',
  'client_id',
  'tenant_id',
  'slo_class',
  'session_id',
  'round_index',
  'prefix_group',
  'prefix_length',
  'streaming',
  'input_tokens',
  'output_tokens',
  'text_tokens',
  'image_tokens',
  'audio_tokens',
  'video_tokens',
  'reason_ratio',
  'model',
  'deadline_us',
  'server_input_tokens',
  'arrival_time_us',
  'send_time_us',
  'first_chunk_time_us',
  'last_chunk_time_us',
  'num_chunks',
  'status',
  'error_message',
  'finish_reason',
] as const;

/** Which of the optional columns a trace has. */
export interface TraceColumns {
  readonly sloTarget: boolean;
  readonly adapter: boolean;
  readonly thinkTime: boolean;
  /** Where users give requests up. */
  readonly cancelTime?: boolean;
}

/** Times of a finished request as a simulation knows them, in µs; 0 for what did not happen. */
export interface TraceTiming {
  readonly firstChunkUs: number;
  readonly lastChunkUs: number;
  readonly status: 'ok' | 'timeout' | 'error' | 'incomplete';
  readonly finishReason: string;
}

const NOT_RUN: TraceTiming = { firstChunkUs: 0, lastChunkUs: 0, status: 'incomplete', finishReason: '' };

export function traceColumns(columns: TraceColumns): string {
  checkInputs({ columns }, { columns: is.fields({ sloTarget: is.flag(), adapter: is.flag() }) });
  const names: string[] = [...FIXED_COLUMNS];
  if (columns.sloTarget) names.splice(names.indexOf('deadline_us') + 1, 0, 'slo_target_us');
  if (columns.adapter) names.push('adapter');
  if (columns.thinkTime) names.push('think_time_us');
  if (columns.cancelTime) names.push('cancel_time_us');
  return names.join(',');
}

/** One row, without a line end. */
export function traceRow(
  requestId: number,
  request: WorkloadRequest,
  columns: TraceColumns,
  timing: TraceTiming = NOT_RUN,
): string {
  const { origin, modalities } = request;
  const cells: Array<string | number | boolean> = [
    requestId,
    csvCell(origin.clientId),
    csvCell(origin.tenantId),
    csvCell(origin.sloClass),
    csvCell(request.sessionId),
    request.round,
    csvCell(request.recordedPrefixGroup),
    request.prefixTokens,
    request.streaming,
    request.inputTokens - request.prefixTokens,
    request.outputTokens,
    modalities?.text ?? 0,
    modalities?.image ?? 0,
    modalities?.audio ?? 0,
    modalities?.video ?? 0,
    request.reasonRatio,
    csvCell(origin.model),
    request.deadlineUs,
  ];
  if (columns.sloTarget) cells.push(origin.sloTargetUs);
  cells.push(
    0,
    request.arrivalUs,
    request.arrivalUs,
    timing.firstChunkUs,
    timing.lastChunkUs,
    0,
    timing.status,
    '',
    timing.finishReason,
  );
  if (columns.adapter) cells.push(csvCell(origin.adapter));
  if (columns.thinkTime) cells.push(request.thinkTimeUs);
  if (columns.cancelTime) cells.push(request.cancelUs ?? 0);
  return cells.join(',');
}

interface TraceHeaderFields {
  readonly mode: 'generated' | 'real' | 'replayed';
  readonly workloadSeed?: bigint;
  readonly workloadSpec?: string;
  readonly sessionContextGrowth?: '' | 'accumulate';
  readonly goodputSloTargets?: Readonly<Record<string, SloTargets>>;
}

/** The header file of a generated trace. */
export function traceHeader(fields: TraceHeaderFields): string {
  checkInputs({ fields }, { fields: is.fields({ mode: is.text() }) });
  const lines = [
    `trace_version: ${TRACE_VERSION}`,
    'time_unit: microseconds',
    `mode: ${fields.mode}`,
    'warm_up_requests: 0',
  ];
  if (fields.workloadSeed !== undefined) lines.push(`workload_seed: ${fields.workloadSeed}`);
  if (fields.workloadSpec !== undefined) lines.push(`workload_spec: ${JSON.stringify(fields.workloadSpec)}`);
  if (fields.sessionContextGrowth === 'accumulate') lines.push('session_context_growth: accumulate');
  const targets = Object.entries(fields.goodputSloTargets ?? {});
  if (targets.length > 0) {
    lines.push('goodput_slo_targets:');
    for (const [name, target] of targets) {
      lines.push(`  ${JSON.stringify(name)}:`);
      if (target.ttftMs !== undefined) lines.push(`    ttft_ms: ${target.ttftMs}`);
      if (target.itlMs !== undefined) lines.push(`    itl_ms: ${target.itlMs}`);
      if (target.e2eMs !== undefined) lines.push(`    e2e_ms: ${target.e2eMs}`);
    }
  }
  return `${lines.join('\n')}\n`;
}
