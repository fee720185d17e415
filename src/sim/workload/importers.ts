/**
 * Recorded traces of other systems that are JSON lines, as requests: miniswe, Mooncake, Qwen-Bailian, token ids. Every importer is a generator over lines and checks each field.
 */

import type { Said } from '../../runtime/errors.ts';
import * as is from '../../runtime/kinds.ts';
import { checkInputs, type Kinds, optionTable } from '../../runtime/options.ts';
import { fnv1a64 } from '../random/goRand.ts';
import type { PromptIdentity, RequestOrigin, WorkloadRequest } from './request.ts';
import { type Lines, numbered, requireBlocks, shown, TakenColumns, type TraceLine } from './traceLines.ts';

// Building requests from trace rows: the fields a row does not have get the values of a plain request.

export function traceOrigin(clientId: string): RequestOrigin {
  return { clientId, tenantId: '', sloClass: '', model: '', adapter: '', sloTargetUs: 0, prefixGroup: '' };
}

interface ImportedRow {
  readonly index: number;
  readonly origin: RequestOrigin;
  readonly arrivalUs: number;
  readonly inputTokens: number;
  readonly outputTokens: number;
  readonly prompt: PromptIdentity;
  readonly output?: PromptIdentity;
  readonly sessionId?: string;
  readonly round?: number;
  readonly thinkTimeUs?: number;
  readonly deadlineUs?: number;
}

/** Tokens that no other request shares: a stream of its own for every row of every trace. */
export function ownTokens(trace: string, side: 'in' | 'out', index: number, tokens: number): PromptIdentity {
  const seed = BigInt.asIntN(64, fnv1a64(`${trace}/${side}`) ^ BigInt(index));
  return { kind: 'drawn', spans: [{ seed, position: 0, tokens }] };
}

export function importedRequest(row: ImportedRow): WorkloadRequest {
  return {
    id: `request_${row.index}`,
    origin: row.origin,
    arrivalUs: row.arrivalUs,
    inputTokens: row.inputTokens,
    outputTokens: row.outputTokens,
    prefixTokens: 0,
    prompt: row.prompt,
    output: row.output ?? ownTokens(row.origin.clientId, 'out', row.index, row.outputTokens),
    deadlineUs: row.deadlineUs ?? 0,
    sessionId: row.sessionId ?? '',
    session: -1,
    round: row.round ?? 0,
    streaming: false,
    modalities: null,
    reasonRatio: 0,
    thinkTimeUs: row.thinkTimeUs ?? 0,
    recordedPrefixGroup: '',
  };
}

/**
 * A mark that tells the blocks of a trace from those of another one: its first row, and not where the file lies, since
 * policies that hash blocks would decide otherwise for a copy, and on another machine.
 */
export function blockSpace(first: Readonly<Record<string, unknown>>, fields: readonly string[]): string {
  return fnv1a64(JSON.stringify(fields.map((field) => [field, first[field] ?? null]))).toString(16);
}

/** Ids as pairs of first id and count. */
export function runsOf(ids: Iterable<number>): Int32Array {
  const runs: number[] = [];
  for (const id of ids) {
    const last = runs.length - 2;
    if (last >= 0 && runs[last] + runs[last + 1] === id) runs[last + 1]++;
    else runs.push(id, 1);
  }
  return Int32Array.from(runs);
}

/** Block ids of a row. A reader that has them in an array of numbers of its own gives that, so that they stand once. */
type BlockIds = readonly number[];

/**
 * Checks that prefix-chained ids are a tree: every id follows one and the same parent, none follows itself.
 */
class PrefixTree {
  readonly #parents = new Map<number, number>();

  /** Different blocks so far. */
  get blocks(): number {
    return this.#parents.size;
  }

  /** Returns what is wrong with a path from the root, or undefined; only a correct path is remembered. */
  check(ids: BlockIds): string | undefined {
    const fresh = new Map<number, number>();
    let parent = -1;
    for (const id of ids) {
      const known = this.#parents.get(id) ?? fresh.get(id);
      if (known === undefined) fresh.set(id, parent);
      else if (known !== parent) {
        const cycle = ids.indexOf(id) !== ids.lastIndexOf(id);
        if (cycle) return `names block ${id} twice, so its prefix would contain itself`;
        const name = (block: number): string => (block < 0 ? 'the start' : `block ${block}`);
        return `has block ${id} behind ${name(parent)}, which was behind ${name(known)} before`;
      }
      parent = id;
    }
    for (const [id, before] of fresh) this.#parents.set(id, before);
    return undefined;
  }
}

// Agent traces as text (LMCache's miniswe): one JSON object a line with `timestamp` (µs), `session_id`,
// `input` and `output`. There are no token ids; until a tokenizer is given, a token is a UTF-8 byte, which
// keeps every shared prefix and makes lengths exact in a unit that is not the model's.

type Tokenizer = (text: string) => Int32Array;

const encoder = new TextEncoder();
const byteTokens: Tokenizer = (text) => Int32Array.from(encoder.encode(text));

/** All fields of a line that are read. */
export const textTraceFields: readonly string[] = ['timestamp', 'session_id', 'input', 'output'];
const textFields: ReadonlySet<string> = new Set(textTraceFields);

interface TextTraceOptions {
  /** Filled with what was taken of the files. */
  readonly taken?: TakenColumns;
  readonly tokenize?: Tokenizer;
}

const textTraceOptionsTable = optionTable({
  taken: is.optional(is.passed()),
  tokenize: is.optional(is.passed()),
} satisfies Kinds<TextTraceOptions>);

interface MinisweRow {
  readonly timestampUs: number;
  readonly sessionId: string;
  readonly input: string;
  readonly output: string;
  readonly at: TraceLine;
}

/**
 * Reads traces whose prompts are texts: requests of all files, ordered by (timestamp, file, line); the first arrives at 0.
 * @throws {TierKVError} TKV_INPUT naming file, line and field.
 */
export function* textTraceRequests(
  files: ReadonlyArray<{ readonly file: string; readonly lines: Lines }>,
  options: TextTraceOptions = {},
): Generator<WorkloadRequest> {
  checkInputs(
    { files, options },
    { files: is.list(is.fields({ file: is.name() })), options: is.optional(is.object()) },
  );
  textTraceOptionsTable.read(options);
  checkInputs(options, { taken: is.optional(is.object()), tokenize: is.optional(is.func()) });
  const { taken = new TakenColumns() } = options;
  checkInputs({ taken }, { taken: is.fields({ begin: is.func() }) });
  taken.begin(textTraceFields, 'us, from the first request');
  const tokenize = options.tokenize ?? byteTokens;
  const rows: MinisweRow[] = [];
  for (const { file, lines } of files) {
    for (const [text, at] of numbered(lines, file)) {
      const row = at.json(text);
      taken.leaveOthers(row, textFields);
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

// Mooncake traces: one JSON object a line with `timestamp` (ms), `input_length`, `output_length` and
// `hash_ids`, one id per block of the input, the last block perhaps partial. Equal ids are equal whole
// prefixes, so the ids form a tree; a trace in which they do not is refused.

interface MooncakeOptions {
  /** Tokens a block; 512 in the published traces. */
  readonly blockTokens?: number;
  /** Filled with what was taken of the file. */
  readonly taken?: TakenColumns;
}

const mooncakeOptionsTable = optionTable({
  blockTokens: is.optional(is.passed()),
  taken: is.optional(is.passed()),
} satisfies Kinds<MooncakeOptions>);

/** All fields of a line that are read. */
export const mooncakeFields: readonly string[] = ['timestamp', 'input_length', 'output_length', 'hash_ids'];
const mooncakeNames: ReadonlySet<string> = new Set(mooncakeFields);

const MOONCAKE = traceOrigin('mooncake');
const MAX_BLOCK_ID = 2 ** 31 - 1;
/** Most different blocks of a trace, each of which is remembered with the block before it. */
const maxBlocks = 2 ** 22;

/** A row that holds all rules of the format. */
export interface MooncakeRow {
  readonly arrivalUs: number;
  readonly inputTokens: number;
  readonly outputTokens: number;
  readonly ids: BlockIds;
}

/** The rules of a trace, row by row: every reader of lines asks it. */
export class MooncakeRows {
  readonly #blockTokens: number;
  readonly #taken: TakenColumns;
  readonly #shorter: Said;
  readonly #tree = new PrefixTree();
  #previousUs = 0;

  /** @param shorter how a caller takes fewer blocks of a trace, for the error of one that has too many */
  constructor(
    blockTokens: number,
    taken: TakenColumns = new TakenColumns(),
    shorter: Said = 'Take a part of the trace: a limit of requests does not shorten it',
  ) {
    this.#blockTokens = blockTokens;
    this.#taken = taken;
    this.#shorter = shorter;
  }

  /**
   * Reads the next row; undefined for one that is left out. A row that is refused changes nothing.
   * @throws {TierKVError} TKV_INPUT naming file, line and field.
   */
  read(row: Readonly<Record<string, unknown>>, at: TraceLine): MooncakeRow | undefined {
    const arrivalUs = this.#taken.ordered(
      at,
      'timestamp',
      at.withinTrace('timestamp', Math.round(at.number(row, 'timestamp', 0) * 1000)),
      this.#previousUs,
    );
    const inputTokens = at.tokens(row, 'input_length');
    const outputTokens = at.tokens(row, 'output_length');
    if (this.#taken.drops(inputTokens, outputTokens)) {
      this.#previousUs = arrivalUs;
      return undefined;
    }
    at.requirePrompt('input_length', inputTokens);
    const ids = blockIds(row, at);
    const wanted = Math.ceil(inputTokens / this.#blockTokens);
    if (ids.length !== wanted) {
      throw at.error(
        'hash_ids',
        `holds ${ids.length} ids for ${inputTokens} tokens, ${wanted} blocks of ${this.#blockTokens}`,
        (name) => `Set the block size of the trace (${name('blockTokens')}), or mend the line`,
      );
    }
    requireBlocks('hash_ids', ids.length, at);
    const broken = this.#tree.check(ids);
    if (broken !== undefined) throw at.error('hash_ids', broken, 'Give every prefix an id of its own');
    if (this.#tree.blocks > maxBlocks) {
      const problem = `brings the trace to more than ${maxBlocks} different blocks`;
      throw at.error('hash_ids', problem, this.#shorter);
    }
    this.#previousUs = arrivalUs;
    return { arrivalUs, inputTokens, outputTokens, ids };
  }
}

/**
 * Reads a trace in the format of Mooncake.
 * @throws {TierKVError} TKV_INPUT naming file, line and field.
 */
export function* mooncakeRequests(
  lines: Lines,
  file: string,
  options: MooncakeOptions = {},
): Generator<WorkloadRequest> {
  checkInputs(
    { lines, file, options },
    { lines: is.iterable(), file: is.name(), options: is.optional(is.object()) },
  );
  mooncakeOptionsTable.read(options);
  checkInputs(options, { blockTokens: is.optional(is.number()), taken: is.optional(is.object()) });
  const blockTokens = options.blockTokens ?? 512;
  const { taken = new TakenColumns() } = options;
  checkInputs({ taken }, { taken: is.fields({ begin: is.func() }) });
  taken.begin(mooncakeFields, 'ms');
  const rows = new MooncakeRows(blockTokens, taken);
  let namespace = '';
  let index = 0;
  for (const [text, at] of numbered(lines, file)) {
    const row = at.json(text);
    namespace ||= blockSpace(row, mooncakeFields);
    taken.leaveOthers(row, mooncakeNames);
    const read = rows.read(row, at);
    if (read === undefined) continue;
    const { arrivalUs, inputTokens, outputTokens, ids } = read;
    yield importedRequest({
      index: index++,
      origin: MOONCAKE,
      arrivalUs,
      inputTokens,
      outputTokens,
      prompt: { kind: 'blocks', namespace, blockTokens, runs: runsOf(ids) },
    });
  }
}

/** The `hash_ids` of a row. */
export function blockIds(row: Readonly<Record<string, unknown>>, at: TraceLine): BlockIds {
  const ids = row.hash_ids;
  const remedy = `Write integers from 0 to ${MAX_BLOCK_ID}`;
  if (!Array.isArray(ids)) {
    throw at.error('hash_ids', ids === undefined ? 'is missing' : `is ${shown(ids)}, not a list`, remedy);
  }
  for (let i = 0; i < ids.length; i++) {
    const id: unknown = ids[i];
    if (Number.isInteger(id) && (id as number) >= 0 && (id as number) <= MAX_BLOCK_ID) continue;
    throw at.error(`hash_ids[${i}]`, `is ${shown(id)}`, remedy);
  }
  return ids;
}

// Qwen-Bailian's traces: JSON lines like Mooncake's, with `timestamp` in seconds, blocks of 16 tokens, and the chat that
// a request goes on. An id there names the content of one block and not of the prefix, so ids are chained here: equal
// ids behind equal prefixes are equal blocks. The last id may be of a partial block or be left out.

/** All fields of a line that are read, but `hash_ids`, without which prompts share nothing. */
export const bailianFields: readonly string[] = [
  'chat_id',
  'parent_chat_id',
  'timestamp',
  'input_length',
  'output_length',
  'type',
  'turn',
];
const bailianNames: ReadonlySet<string> = new Set([...bailianFields, 'hash_ids']);
const BAILIAN_BLOCK_TOKENS = 16;
/** Most chats of a trace, each of which is remembered with the one it goes on. */
const maxChats = 2 ** 23;

/** Ids that stand for a block's content, made into ids of whole prefixes. */
class ChainedIds {
  readonly #dense = new Map<number, number>();
  readonly #chained = new Map<number, number>();

  /** Different prefixes so far. */
  get blocks(): number {
    return this.#chained.size;
  }

  of(ids: BlockIds): BlockIds {
    let parent = 0; // the start; prefixes count from 1
    return ids.map((id) => {
      let dense = this.#dense.get(id);
      if (dense === undefined) this.#dense.set(id, (dense = this.#dense.size));
      const key = parent * 2 ** 24 + dense;
      let chained = this.#chained.get(key);
      if (chained === undefined) this.#chained.set(key, (chained = this.#chained.size + 1));
      parent = chained;
      return chained;
    });
  }
}

/**
 * Reads a trace in the format of Alibaba's Bailian.
 * @throws {TierKVError} TKV_INPUT naming file, line and field.
 */
export function* bailianRequests(
  lines: Lines,
  file: string,
  options: MooncakeOptions = {},
): Generator<WorkloadRequest> {
  checkInputs(
    { lines, file, options },
    { lines: is.iterable(), file: is.name(), options: is.optional(is.object()) },
  );
  mooncakeOptionsTable.read(options);
  checkInputs(options, { blockTokens: is.optional(is.number()), taken: is.optional(is.object()) });
  const blockTokens = options.blockTokens ?? BAILIAN_BLOCK_TOKENS;
  const { taken = new TakenColumns() } = options;
  checkInputs({ taken }, { taken: is.fields({ begin: is.func() }) });
  taken.begin([...bailianFields, 'hash_ids'], 's');
  const chains = new ChainedIds();
  const rootOf = new Map<number, number>();
  const rounds = new Map<number, number>();
  const origins = new Map<string, RequestOrigin>();
  let namespace = '';
  let previousUs = 0;
  let index = 0;
  for (const [text, at] of numbered(lines, file)) {
    const row = at.json(text);
    namespace ||= blockSpace(row, bailianFields);
    taken.leaveOthers(row, bailianNames);
    const chat = at.integer(row, 'chat_id', 0);
    const parent = at.integer(row, 'parent_chat_id', -1);
    if (rootOf.has(chat)) throw at.error('chat_id', `is ${chat}, as in a line above`, 'Drop the second line');
    if (rootOf.size === maxChats)
      throw at.error('chat_id', `is one of more than ${maxChats}`, 'Split the trace');
    const root = parent < 0 ? chat : (rootOf.get(parent) ?? parent);
    rootOf.set(chat, root);
    const us = at.withinTrace('timestamp', Math.round(at.number(row, 'timestamp', 0) * 1e6));
    const arrivalUs = taken.ordered(at, 'timestamp', us, previousUs);
    previousUs = arrivalUs;
    const inputTokens = at.tokens(row, 'input_length');
    const outputTokens = at.tokens(row, 'output_length');
    const type = at.text(row, 'type');
    at.integer(row, 'turn', 1);
    if (taken.drops(inputTokens, outputTokens)) continue;
    at.requirePrompt('input_length', inputTokens);
    let prompt: PromptIdentity;
    if (row.hash_ids === undefined) {
      taken.note('rows without hash_ids, which share nothing');
      prompt = ownTokens('qwen-bailian', 'in', index, inputTokens);
    } else {
      const ids = blockIds(row, at);
      const whole = Math.floor(inputTokens / blockTokens);
      if (ids.length !== whole && ids.length !== Math.ceil(inputTokens / blockTokens)) {
        throw at.error(
          'hash_ids',
          `holds ${ids.length} ids for ${inputTokens} tokens, ${whole} full blocks of ${blockTokens}`,
          (name) => `Set the block size of the trace (${name('blockTokens')}), or mend the line`,
        );
      }
      requireBlocks('hash_ids', ids.length, at);
      prompt = { kind: 'blocks', namespace, blockTokens, runs: runsOf(chains.of(ids)) };
      if (chains.blocks > maxBailianBlocks) {
        const problem = `brings the trace to more than ${maxBailianBlocks} different blocks`;
        throw at.error('hash_ids', problem, 'Take a part of the trace');
      }
    }
    const round = rounds.get(root) ?? 0;
    rounds.set(root, round + 1);
    let origin = origins.get(type);
    if (origin === undefined) origins.set(type, (origin = traceOrigin(`qwen-bailian ${type}`)));
    yield importedRequest({
      index: index++,
      origin,
      arrivalUs,
      inputTokens,
      outputTokens,
      prompt,
      sessionId: `chat_${root}`,
      round,
    });
  }
}

/** Most different prefixes of a Bailian trace, whose blocks are small. */
const maxBailianBlocks = 2 ** 23;

// Request sets with token ids: one JSON object a line with `input_tok_ids`, `output_tok_ids` and
// `arrival_time_ns`, as LLMServingSim publishes ShareGPT.

/** All fields of a line that are read. */
export const tokenIdFields: readonly string[] = ['input_tok_ids', 'output_tok_ids', 'arrival_time_ns'];
const tokenIdNames: ReadonlySet<string> = new Set(tokenIdFields);

const TOKEN_IDS = traceOrigin('token-ids');

/** @throws {TierKVError} TKV_INPUT naming file, line and field. */
export function* tokenIdRequests(
  lines: Lines,
  file: string,
  taken: TakenColumns = new TakenColumns(),
): Generator<WorkloadRequest> {
  checkInputs(
    { lines, file, taken },
    { lines: is.iterable(), file: is.name(), taken: is.optional(is.object()) },
  );
  taken.begin(tokenIdFields, 'ns');
  let previousUs = 0;
  let index = 0;
  for (const [text, at] of numbered(lines, file)) {
    const row = at.json(text);
    taken.leaveOthers(row, tokenIdNames);
    const arrivalUs = taken.ordered(
      at,
      'arrival_time_ns',
      at.withinTrace('arrival_time_ns', Math.trunc(at.number(row, 'arrival_time_ns', 0) / 1000)),
      previousUs,
    );
    previousUs = arrivalUs;
    const input = tokenList(row, 'input_tok_ids', at);
    const output = tokenList(row, 'output_tok_ids', at);
    if (taken.drops(input.length, output.length)) continue;
    at.requirePrompt('input_tok_ids', input.length);
    yield importedRequest({
      index: index++,
      origin: TOKEN_IDS,
      arrivalUs,
      inputTokens: input.length,
      outputTokens: output.length,
      prompt: { kind: 'tokens', tokens: input },
      output: { kind: 'tokens', tokens: output },
    });
  }
}

function tokenList(row: Readonly<Record<string, unknown>>, field: string, at: TraceLine): Int32Array {
  const value = row[field];
  if (Array.isArray(value) && value.every((id) => Number.isInteger(id) && id >= 0 && id < 2 ** 31)) {
    return Int32Array.from(value);
  }
  throw at.error(field, 'is not a list of token ids', 'Write integers of at least 0');
}
