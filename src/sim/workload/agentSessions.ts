/**
 * Coding-agent sessions of WEKA's kv-cache-tester. In its own form a session is one JSON object with `requests`, each of
 * them `t` (s from the start of the session), `in`, `out`, `think_time` (s) and `hash_ids`, one for each full block; a
 * sub-agent is an entry with `requests` of its own. In the compact form a request is a line with session `s`, agent `a`,
 * `t`, `in`, `out`, `think` and `h`, runs of ids. Ids are local to a session. Sessions are numbered by id and start a
 * fixed time apart; requests are ordered by (start, session, line).
 */

import * as is from '../../runtime/kinds.ts';
import { checkInputs, type Kinds, optionTable } from '../../runtime/options.ts';
import { blockIds, importedRequest, runsOf, traceOrigin } from './importers.ts';
import type { WorkloadRequest } from './request.ts';
import { type Lines, numbered, requireBlocks, TakenColumns, type TraceLine } from './traceLines.ts';

interface WekaOptions {
  /** Seconds between the starts of two sessions; 60 in the merged workload of the ground truth. */
  readonly sessionGapS?: number;
  readonly blockTokens?: number;
  /** Filled with what was taken of the file. */
  readonly taken?: TakenColumns;
}

const wekaOptionsTable = optionTable({
  sessionGapS: is.optional(is.passed()),
  blockTokens: is.optional(is.passed()),
  taken: is.optional(is.passed()),
} satisfies Kinds<WekaOptions>);

/** Fields that every line must have, and fields that it may have. */
export const wekaFields: readonly string[] = ['s', 't', 'in', 'out', 'h'];
const readFields = [...wekaFields, 'a', 'think'];
const wekaNames: ReadonlySet<string> = new Set(readFields);
/** Fields of a session object. */
export const wekaSessionFields: readonly string[] = ['id', 'block_size', 'hash_id_scope', 'requests'];
const sessionNames: ReadonlySet<string> = new Set(wekaSessionFields);
const sessionRequestFields = ['t', 'in', 'out', 'think_time', 'hash_ids'];
const sessionRequestNames: ReadonlySet<string> = new Set([...sessionRequestFields, 'requests']);

interface WekaRow {
  readonly sessionId: string;
  readonly agent: number;
  readonly startS: number;
  readonly inputTokens: number;
  readonly outputTokens: number;
  readonly thinkS: number;
  readonly runs: Int32Array;
  readonly namespace: string;
  readonly blockTokens: number;
}

/**
 * Reads agent sessions in the format of WEKA, with their requests merged by time. Sessions overlap for days, so the rows of the whole file are held, some hundred bytes
 * each.
 * @throws {TierKVError} TKV_INPUT naming file, line and field.
 */
export function* wekaRequests(
  lines: Lines,
  file: string,
  options: WekaOptions = {},
): Generator<WorkloadRequest> {
  checkInputs(
    { lines, file, options },
    { lines: is.iterable(), file: is.name(), options: is.optional(is.object()) },
  );
  wekaOptionsTable.read(options);
  checkInputs(options, {
    sessionGapS: is.optional(is.number()),
    blockTokens: is.optional(is.number()),
    taken: is.optional(is.object()),
  });
  const { gapS, taken } = beginWeka(readFields, options);
  const rows: WekaRow[] = [];
  for (const [text, at] of numbered(lines, file)) {
    const row = at.json(text);
    taken.leaveOthers(row, wekaNames);
    const read = readRow(row, at, options.blockTokens ?? 64, taken);
    if (read !== undefined) rows.push(read);
  }
  yield* mergedSessions(rows, gapS);
}

function beginWeka(
  columns: readonly string[],
  options: WekaOptions,
): { readonly gapS: number; readonly taken: TakenColumns } {
  const gapS = options.sessionGapS ?? 60;
  const { taken = new TakenColumns() } = options;
  checkInputs({ taken }, { taken: is.fields({ begin: is.func() }) });
  taken.begin(columns, `s, from the start of a session; sessions start ${gapS} s apart`);
  return { gapS, taken };
}

/**
 * Sessions in the form of their publisher, each an object: of files with one, or with one a line.
 * @throws {TierKVError} TKV_INPUT naming file, line and field.
 */
export function* wekaSessionRequests(
  sessions: Iterable<readonly [session: Readonly<Record<string, unknown>>, at: TraceLine]>,
  options: WekaOptions = {},
): Generator<WorkloadRequest> {
  checkInputs({ sessions, options }, { sessions: is.iterable(), options: is.optional(is.object()) });
  wekaOptionsTable.read(options);
  checkInputs(options, {
    sessionGapS: is.optional(is.number()),
    blockTokens: is.optional(is.number()),
    taken: is.optional(is.object()),
  });
  const { gapS, taken } = beginWeka(sessionRequestFields, options);
  const rows: WekaRow[] = [];
  const known = new Set<string>();
  for (const each of sessions) {
    checkInputs({ each }, { each: is.iterable() });
    const [session, at] = each;
    taken.leaveOthers(session, sessionNames);
    const id = at.text(session, 'id');
    if (known.has(id)) throw at.error('id', `is "${id}", as of a session before`, 'Drop the second one');
    known.add(id);
    const blockTokens = at.integer(session, 'block_size', 1);
    const scope = at.text(session, 'hash_id_scope');
    if (scope !== 'local' && scope !== 'global') {
      throw at.error('hash_id_scope', `is "${scope}"`, 'Write local or global');
    }
    const namespace = scope === 'local' ? id : '';
    let agents = 0;
    const walk = (value: unknown, agent: number, fromS: number): void => {
      if (!Array.isArray(value))
        throw at.error('requests', 'is not a list', 'Write the requests of the session');
      for (const entry of value) {
        if (typeof entry !== 'object' || entry === null || Array.isArray(entry)) {
          throw at.error('requests', 'holds an entry that is not an object', 'Mend the session');
        }
        const row = entry as Readonly<Record<string, unknown>>;
        taken.leaveOthers(row, sessionRequestNames);
        const startS = at.seconds(row, 't') + fromS;
        if (row.requests !== undefined) {
          walk(row.requests, ++agents, countsFromMarker(row.requests, at.seconds(row, 't')) ? startS : fromS);
          taken.note('sub-agents');
          continue;
        }
        const inputTokens = at.tokens(row, 'in');
        const outputTokens = at.tokens(row, 'out');
        if (taken.drops(inputTokens, outputTokens)) continue;
        at.requirePrompt('in', inputTokens);
        const ids = blockIds(row, at);
        if (ids.length !== Math.floor(inputTokens / blockTokens)) {
          const problem = `holds ${ids.length} ids for ${inputTokens} tokens in blocks of ${blockTokens}`;
          throw at.error('hash_ids', problem, 'Give one for each full block');
        }
        requireBlocks('hash_ids', ids.length, at);
        const thinkS = at.seconds(row, 'think_time', 0);
        const sized = { inputTokens, outputTokens, thinkS, runs: runsOf(ids), namespace, blockTokens };
        rows.push({ sessionId: id, agent, startS, ...sized });
      }
    };
    walk(session.requests, 0, 0);
  }
  yield* mergedSessions(rows, gapS);
}

/**
 * Whether a sub-agent's times count from its marker: one that lies before the marker cannot count from the start of the
 * session.
 */
function countsFromMarker(requests: unknown, markerS: number): boolean {
  return (
    Array.isArray(requests) && requests.some((inner) => typeof inner?.t === 'number' && inner.t < markerS)
  );
}

function* mergedSessions(rows: readonly WekaRow[], gapS: number): Generator<WorkloadRequest> {
  const names = [...new Set(rows.map((row) => row.sessionId))].sort();
  const numberOf = new Map(names.map((name, k) => [name, k]));
  const origins = new Map(names.map((name) => [name, traceOrigin(name)]));
  const startS = (row: WekaRow): number => gapS * numberOf.get(row.sessionId)! + row.startS;
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
      prompt: { kind: 'blocks', namespace: row.namespace, blockTokens: row.blockTokens, runs: row.runs },
      sessionId: row.sessionId,
      round,
      thinkTimeUs: Math.round(row.thinkS * 1e6),
    });
  }
}

function readRow(
  row: Readonly<Record<string, unknown>>,
  at: TraceLine,
  blockTokens: number,
  taken: TakenColumns,
): WekaRow | undefined {
  const inputTokens = at.tokens(row, 'in');
  const sessionId = at.text(row, 's');
  const read = {
    sessionId,
    agent: at.integer(row, 'a', 0, 0),
    startS: at.seconds(row, 't'),
    inputTokens,
    outputTokens: at.tokens(row, 'out'),
    thinkS: at.seconds(row, 'think', 0),
    runs: readRuns(row.h, at, Math.floor(inputTokens / blockTokens), blockTokens),
    namespace: sessionId,
    blockTokens,
  };
  if (taken.drops(inputTokens, read.outputTokens)) return undefined;
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
