/**
 * Reading the rows of TraceV2: one record a CSV row, columns found by name. `recordedRequests` turns records
 * into requests as upstream's fixed replay does: one random stream, first the prefixes of the groups in order
 * of appearance, then for every record its input and its output tokens.
 */

import { nearestName } from '../../../../runtime/nearestName.ts';
import { GoRandom } from '../../../random/index.ts';
import type { TokenSpan, WorkloadRequest } from '../../request.ts';
import { shown, shownPlain } from '../../shown.ts';
import { VOCABULARY } from '../../tokens/tokens.ts';
import { splitCsv } from '../csv.ts';
import { type Lines, numbered, type TraceLine } from '../lines.ts';
import { TakenColumns } from '../taken.ts';

/** One row of a trace. Times in µs; `inputTokens` without the prefix. */
export interface TraceRecord {
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
): Generator<TraceRecord> {
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
): TraceRecord {
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
  };
}

/**
 * Requests of a trace with its recorded lengths. `records` is called twice, since the prefix tokens of all
 * groups are drawn before anything else.
 */
export function* recordedRequests(
  records: () => Iterable<TraceRecord>,
  seed: bigint,
): Generator<WorkloadRequest> {
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
    };
  }
}
