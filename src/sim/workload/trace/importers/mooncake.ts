/**
 * Mooncake traces: one JSON object a line with `timestamp` (ms), `input_length`, `output_length` and
 * `hash_ids`, one id per block of the input, the last block perhaps partial. Equal ids are equal whole
 * prefixes, so the ids form a tree; a trace in which they do not is refused.
 */

import type { WorkloadRequest } from '../../request.ts';
import { type Lines, numbered, requireBlocks } from '../lines.ts';
import { TakenColumns } from '../taken.ts';
import { importedRequest, PrefixTree, runsOf, traceOrigin } from './imported.ts';

export interface MooncakeOptions {
  /** Tokens a block; 512 in the published traces. */
  readonly blockTokens?: number;
  /** Filled with what was taken of the file. */
  readonly taken?: TakenColumns;
}

/** All fields of a line that are read. */
export const mooncakeFields: readonly string[] = ['timestamp', 'input_length', 'output_length', 'hash_ids'];
const known: ReadonlySet<string> = new Set(mooncakeFields);

const ORIGIN = traceOrigin('mooncake');
const MAX_BLOCK_ID = 2 ** 31 - 1;
/** Most different blocks of a trace, each of which is remembered with the block before it. */
const maxBlocks = 2 ** 22;

/** @throws {TierKVError} TKV_INPUT naming file, line and field. */
export function* mooncakeRequests(
  lines: Lines,
  file: string,
  options: MooncakeOptions = {},
): Generator<WorkloadRequest> {
  const blockTokens = options.blockTokens ?? 512;
  const { taken = new TakenColumns() } = options;
  taken.begin(mooncakeFields, 'ms');
  const tree = new PrefixTree();
  let previousUs = 0;
  let index = 0;
  for (const [text, at] of numbered(lines, file)) {
    const row = at.json(text);
    taken.leaveOthers(row, known);
    const arrivalUs = at.requireOrder(
      'timestamp',
      at.withinTrace('timestamp', Math.round(at.number(row, 'timestamp', 0) * 1000)),
      previousUs,
    );
    previousUs = arrivalUs;
    const inputTokens = at.prompt(row, 'input_length');
    const outputTokens = at.tokens(row, 'output_length');
    const ids = row.hash_ids;
    if (!Array.isArray(ids) || !ids.every((id) => Number.isInteger(id) && id >= 0 && id <= MAX_BLOCK_ID)) {
      throw at.error('hash_ids', 'is not a list of block ids', `Write integers from 0 to ${MAX_BLOCK_ID}`);
    }
    const wanted = Math.ceil(inputTokens / blockTokens);
    if (ids.length !== wanted) {
      throw at.error(
        'hash_ids',
        `holds ${ids.length} ids for ${inputTokens} tokens, ${wanted} blocks of ${blockTokens}`,
        'Set the block size of the trace (--block-tokens), or mend the line',
      );
    }
    requireBlocks('hash_ids', ids.length, at);
    const broken = tree.check(ids);
    if (tree.blocks > maxBlocks) {
      const problem = `brings the trace to more than ${maxBlocks} different blocks`;
      throw at.error('hash_ids', problem, 'Take a part of the trace (--num-requests does not shorten it)');
    }
    if (broken !== undefined) throw at.error('hash_ids', broken, 'Give every prefix an id of its own');
    yield importedRequest({
      index: index++,
      origin: ORIGIN,
      arrivalUs,
      inputTokens,
      outputTokens,
      prompt: { kind: 'blocks', namespace: file, blockTokens, runs: runsOf(ids) },
    });
  }
}
