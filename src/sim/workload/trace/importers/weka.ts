/**
 * Coding-agent sessions in the compact form of WEKA's kv-cache-tester: one request a line with session `s`,
 * agent `a`, start `t` (s from the start of the session), `in`, `out`, `think` (s) and `h`, runs of 64-token
 * block ids that are local to the session. Sessions are numbered by id and start a fixed time apart; requests
 * are ordered by (start, session, line).
 */

import type { WorkloadRequest } from '../../request.ts';
import { type Lines, numbered, requireBlocks, type TraceLine } from '../lines.ts';
import { TakenColumns } from '../taken.ts';
import { importedRequest, traceOrigin } from './imported.ts';

export interface WekaOptions {
  /** Seconds between the starts of two sessions; 60 in the merged workload of the ground truth. */
  readonly sessionGapS?: number;
  readonly blockTokens?: number;
  /** Filled with what was taken of the file. */
  readonly taken?: TakenColumns;
}

/** Fields that every line has, and those that it may have. */
export const wekaFields: readonly string[] = ['s', 't', 'in', 'out', 'h'];
const readFields = [...wekaFields, 'a', 'think'];
const known: ReadonlySet<string> = new Set(readFields);

interface Row {
  readonly sessionId: string;
  readonly agent: number;
  readonly startS: number;
  readonly inputTokens: number;
  readonly outputTokens: number;
  readonly thinkS: number;
  readonly runs: Int32Array;
}

/**
 * All requests merged. Sessions overlap for days, so the rows of the whole file are held, some hundred bytes
 * each.
 * @throws {TierKVError} TKV_INPUT naming file, line and field.
 */
export function* wekaRequests(
  lines: Lines,
  file: string,
  options: WekaOptions = {},
): Generator<WorkloadRequest> {
  const gapS = options.sessionGapS ?? 60;
  const blockTokens = options.blockTokens ?? 64;
  const { taken = new TakenColumns() } = options;
  taken.begin(readFields, `s, from the start of a session; sessions start ${gapS} s apart`);
  const rows: Row[] = [];
  for (const [text, at] of numbered(lines, file)) {
    const row = at.json(text);
    taken.leaveOthers(row, known);
    rows.push(readRow(row, at, blockTokens));
  }
  const names = [...new Set(rows.map((row) => row.sessionId))].sort();
  const numberOf = new Map(names.map((name, k) => [name, k]));
  const origins = new Map(names.map((name) => [name, traceOrigin(name)]));
  const startS = (row: Row): number => gapS * numberOf.get(row.sessionId)! + row.startS;
  const order = rows
    .map((_, line) => line)
    .sort(
      (x, y) =>
        startS(rows[x]) - startS(rows[y]) ||
        numberOf.get(rows[x].sessionId)! - numberOf.get(rows[y].sessionId)! ||
        x - y,
    );
  const rounds = new Map<string, number>();
  let index = 0;
  for (const line of order) {
    const row = rows[line];
    const round = rounds.get(row.sessionId) ?? 0;
    rounds.set(row.sessionId, round + 1);
    yield importedRequest({
      index: index++,
      origin: origins.get(row.sessionId)!,
      arrivalUs: Math.round(startS(row) * 1e6),
      inputTokens: row.inputTokens,
      outputTokens: row.outputTokens,
      prompt: { kind: 'blocks', namespace: row.sessionId, blockTokens, runs: row.runs },
      sessionId: row.sessionId,
      round,
      thinkTimeUs: Math.round(row.thinkS * 1e6),
    });
  }
}

function readRow(row: Readonly<Record<string, unknown>>, at: TraceLine, blockTokens: number): Row {
  const inputTokens = at.tokens(row, 'in');
  const read = {
    sessionId: at.text(row, 's'),
    agent: at.integer(row, 'a', 0, 0),
    startS: at.seconds(row, 't'),
    inputTokens,
    outputTokens: at.tokens(row, 'out'),
    thinkS: at.seconds(row, 'think', 0),
    runs: readRuns(row.h, at, Math.floor(inputTokens / blockTokens), blockTokens),
  };
  at.requirePrompt('in', inputTokens);
  return read;
}

function readRuns(value: unknown, at: TraceLine, wanted: number, blockTokens: number): Int32Array {
  const pairs = Array.isArray(value) ? value : [value];
  const flat: number[] = [];
  let blocks = 0;
  for (const pair of pairs) {
    const [first, count] = Array.isArray(pair) ? pair : [];
    const fits =
      Number.isInteger(first) &&
      first >= 0 &&
      Number.isInteger(count) &&
      count > 0 &&
      first + count < 2 ** 31;
    if (!fits) throw at.error('h', 'is not a list of runs', 'Write [[first id, count], …]');
    flat.push(first, count);
    blocks += count;
  }
  if (blocks !== wanted) {
    throw at.error(
      'h',
      `holds ${blocks} ids, not one for each of ${wanted} full blocks of ${blockTokens}`,
      'Mend the line',
    );
  }
  requireBlocks('h', blocks, at);
  return Int32Array.from(flat);
}
