/**
 * Traces that `tierkv gateway` writes of real traffic, as requests: a JSON object a line, in the order in which requests
 * ended. Blocks of prompts are known by keys alone, and equal keys are equal prefixes. Requests arrive as they did; one
 * that was turned away arrives too, with the tokens that it asked for.
 */

import { blockSpace, importedRequest, runsOf, traceOrigin } from './importers.ts';
import type { WorkloadRequest } from './request.ts';
import { type Lines, numbered, requireBlocks, TakenColumns, type TraceLine } from './traceLines.ts';

/** All fields that every line has and that are read. */
export const gatewayFields: readonly string[] = [
  'arrival_us',
  'prompt_tokens',
  'output_tokens',
  'block_tokens',
  'block_keys',
];
/** Fields that a line may have beside them and that are read. */
const moreFields = [
  'model',
  'adapter',
  'tenant',
  'slo_class',
  'slo_ttft_us',
  'deadline_us',
  'session',
  'streaming',
  'max_tokens',
  'outcome',
];
const readNames: ReadonlySet<string> = new Set([...gatewayFields, ...moreFields]);

/** Requests of a trace, which is held while it is put in order. */
const maxRequests = 2 ** 22;
/** Different blocks of a trace, each of which is remembered. */
const maxKeys = 2 ** 22;

interface GatewayRow {
  readonly at: TraceLine;
  readonly row: Readonly<Record<string, unknown>>;
  readonly arrivalUs: number;
  readonly keys: Int32Array;
}

/** @throws {TierKVError} TKV_INPUT naming file, line and field. */
export function* gatewayRequests(
  lines: Lines,
  file: string,
  taken: TakenColumns = new TakenColumns(),
): Generator<WorkloadRequest> {
  taken.begin([...gatewayFields, ...moreFields], 'µs');
  const numbers = new Map<string, number>();
  const rows: GatewayRow[] = [];
  let namespace = '';
  for (const [text, at] of numbered(lines, file)) {
    const row = at.json(text);
    namespace ||= blockSpace(row, gatewayFields);
    taken.leaveOthers(row, readNames);
    const arrivalUs = at.withinTrace('arrival_us', at.integer(row, 'arrival_us', 0));
    if (rows.length === maxRequests)
      throw at.error('', `is beyond ${maxRequests} requests`, 'Take a part of the trace');
    rows.push({ at, row, arrivalUs, keys: numbersOf(row, at, numbers) });
  }
  // equal arrivals stay in the order of the lines
  rows.sort((a, b) => a.arrivalUs - b.arrivalUs);
  let index = 0;
  for (const { at, row, arrivalUs, keys } of rows) {
    const blockTokens = at.integer(row, 'block_tokens', 1);
    const inputTokens = at.prompt(row, 'prompt_tokens');
    if (keys.length * blockTokens > inputTokens) {
      const problem = `holds ${keys.length} keys of ${blockTokens} tokens for a prompt of ${inputTokens}`;
      throw at.error('block_keys', problem, 'Mend or drop the line');
    }
    const ran = at.tokens(row, 'output_tokens');
    const text = (name: string): string => (row[name] === undefined ? '' : at.text(row, name));
    const turnedAway = row.outcome === 'rejected' || row.outcome === 'unroutable';
    const time = (name: string): number => (row[name] === undefined ? 0 : at.integer(row, name, 0));
    const givenUs = time('deadline_us');
    const asked = row.max_tokens === undefined ? 0 : at.tokens(row, 'max_tokens');
    yield importedRequest({
      index: index++,
      origin: {
        ...traceOrigin('gateway'),
        model: text('model'),
        adapter: text('adapter'),
        tenantId: text('tenant'),
        sloClass: text('slo_class'),
        sloTargetUs: time('slo_ttft_us'),
      },
      arrivalUs,
      inputTokens,
      outputTokens: turnedAway && ran === 0 ? Math.max(1, asked) : ran,
      prompt: { kind: 'blocks', namespace, blockTokens, runs: runsOf(keys) },
      sessionId: text('session'),
      deadlineUs: givenUs === 0 ? 0 : arrivalUs + givenUs,
    });
  }
}

/** Numbers of the keys, in the order in which keys first stand in the trace. */
function numbersOf(
  row: Readonly<Record<string, unknown>>,
  at: TraceLine,
  numbers: Map<string, number>,
): Int32Array {
  const keys = row.block_keys;
  if (!Array.isArray(keys) || !keys.every((key) => typeof key === 'string' && /^[0-9a-f]{16}$/.test(key))) {
    throw at.error('block_keys', 'must be a list of keys', 'Write 16 hexadecimal digits a key');
  }
  requireBlocks('block_keys', keys.length, at);
  return Int32Array.from(keys as string[], (key) => {
    const known = numbers.get(key);
    if (known !== undefined) return known;
    if (numbers.size === maxKeys) {
      throw at.error(
        'block_keys',
        `brings the trace to more than ${maxKeys} different blocks`,
        'Take a part of the trace',
      );
    }
    numbers.set(key, numbers.size);
    return numbers.size - 1;
  });
}
