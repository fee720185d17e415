/**
 * Agent traces as text (LMCache's miniswe): one JSON object a line with `timestamp` (µs), `session_id`,
 * `input` and `output`. There are no token ids; until a tokenizer is given, a token is a UTF-8 byte, which
 * keeps every shared prefix and makes lengths exact in a unit that is not the model's.
 */

import type { PromptIdentity, WorkloadRequest } from '../../request.ts';
import { type Lines, numbered, type TraceLine } from '../lines.ts';
import { TakenColumns } from '../taken.ts';
import { importedRequest, traceOrigin } from './imported.ts';

export type Tokenizer = (text: string) => Int32Array;

const encoder = new TextEncoder();
export const byteTokens: Tokenizer = (text) => Int32Array.from(encoder.encode(text));

/** All fields of a line that are read. */
export const textTraceFields: readonly string[] = ['timestamp', 'session_id', 'input', 'output'];
const known: ReadonlySet<string> = new Set(textTraceFields);

export interface TextTraceOptions {
  /** Filled with what was taken of the files. */
  readonly taken?: TakenColumns;
  readonly tokenize?: Tokenizer;
}

interface Row {
  readonly timestampUs: number;
  readonly sessionId: string;
  readonly input: string;
  readonly output: string;
  readonly at: TraceLine;
}

/**
 * Requests of all given files together, ordered by (timestamp, file, line); the first arrives at 0.
 * @throws {TierKVError} TKV_INPUT naming file, line and field.
 */
export function* textTraceRequests(
  files: ReadonlyArray<{ readonly file: string; readonly lines: Lines }>,
  options: TextTraceOptions = {},
): Generator<WorkloadRequest> {
  const { taken = new TakenColumns() } = options;
  taken.begin(textTraceFields, 'us, from the first request');
  const tokenize = options.tokenize ?? byteTokens;
  const rows: Row[] = [];
  for (const { file, lines } of files) {
    for (const [text, at] of numbered(lines, file)) {
      const row = at.json(text);
      taken.leaveOthers(row, known);
      rows.push({
        timestampUs: at.integer(row, 'timestamp', 0),
        sessionId: at.text(row, 'session_id'),
        input: at.text(row, 'input'),
        output: at.text(row, 'output'),
        at,
      });
    }
  }
  const order = rows.map((_, i) => i).sort((x, y) => rows[x].timestampUs - rows[y].timestampUs || x - y);
  const firstUs = order.length === 0 ? 0 : rows[order[0]].timestampUs;
  const rounds = new Map<string, number>();
  let index = 0;
  for (const i of order) {
    const row = rows[i];
    const round = rounds.get(row.sessionId) ?? 0;
    rounds.set(row.sessionId, round + 1);
    const side = (text: string): PromptIdentity & { kind: 'tokens' } => ({
      kind: 'tokens',
      tokens: tokenize(text),
    });
    const prompt = side(row.input);
    row.at.requirePrompt('input', prompt.tokens.length);
    const output = side(row.output);
    yield importedRequest({
      index: index++,
      origin: traceOrigin(row.sessionId),
      arrivalUs: row.timestampUs - firstUs,
      inputTokens: prompt.tokens.length,
      outputTokens: output.tokens.length,
      prompt,
      output,
      sessionId: row.sessionId,
      round,
    });
  }
}
