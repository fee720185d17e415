/**
 * The log of a gateway: a line for what it decides by, then a line for each input and each decision, in order. A decision
 * follows the input that asked for it, so a log can be decided again: inputs go to the control plane of the simulator,
 * and its decisions are compared with the written ones, line for line.
 */

import { createWriteStream, type WriteStream } from 'node:fs';
import type { PolicyBundle } from '../evolve/bundle/policyBundle.ts';
import { readBundle } from '../evolve/bundle/readBundle.ts';
import { fileLines, firstLine } from '../files/inputs.ts';
import { requireWritableTarget } from '../files/results.ts';
import { maxLineValues, parseJson } from '../runtime/boundedJson.ts';
import { TierKVError } from '../runtime/errors.ts';
import { checkControl } from '../sim/control/plane.ts';
import { GatewayCore } from './core.ts';
import { type BoundPlan, bindPlan, type GatewayPlan } from './plan.ts';
import type { GatewayInput, GatewayOutput } from './records.ts';

const FORMAT = 'tierkv.gateway-log/1';

/** First line of a log. */
export interface LogHeader {
  readonly format: typeof FORMAT;
  /** When the gateway began, as a date, for people. */
  readonly began: string;
  /** What prompts are cut by: `tokenizer` or `text`. */
  readonly tokenisation: string;
  /** What chats become one text by: `template` or `text`. */
  readonly chats: string;
  readonly plan: GatewayPlan;
}

/** Bytes that may wait for the disk. Beyond them the log is cut, and the gateway goes on. */
const WAITING_BYTES_MOST = 64 * 2 ** 20;
/** Bytes of lines that are put together into one write. */
const BATCH_BYTES = 64 * 2 ** 10;

/** A file of lines that is written beside the work. A disk that cannot keep up costs lines, never memory. */
export class LineFile {
  readonly path: string;
  readonly #stream: WriteStream;
  #batch: string[] = [];
  #batchBytes = 0;
  #scheduled = false;
  #failed: Error | undefined;
  /** Lines that could not be written. From the first one on the file ends. */
  lost = 0;

  /** @throws TKV_IO where the file cannot be written */
  constructor(path: string) {
    requireWritableTarget(path);
    this.path = path;
    this.#stream = createWriteStream(path, { flags: 'w' });
    this.#stream.on('error', (error) => {
      this.#failed = error;
    });
  }

  /** What the disk said, where it failed. */
  get failure(): string | undefined {
    if (this.#failed !== undefined) return this.#failed.message;
    return this.lost > 0 ? 'the disk is slower than the requests' : undefined;
  }

  add(record: object): void {
    if (this.lost > 0 || this.#failed !== undefined || this.#stream.writableLength > WAITING_BYTES_MOST) {
      this.lost++;
      return;
    }
    const line = `${JSON.stringify(record)}\n`;
    this.#batch.push(line);
    this.#batchBytes += line.length;
    if (this.#batchBytes >= BATCH_BYTES) this.#flush();
    else if (!this.#scheduled) {
      this.#scheduled = true;
      setImmediate(() => {
        this.#scheduled = false;
        this.#flush();
      });
    }
  }

  #flush(): void {
    if (this.#batch.length === 0) return;
    this.#stream.write(this.#batch.join(''));
    this.#batch = [];
    this.#batchBytes = 0;
  }

  /** Writes what is left. */
  async close(): Promise<void> {
    this.#flush();
    await new Promise<void>((resolve) => {
      if (this.#failed !== undefined) resolve();
      else {
        this.#stream.once('error', () => resolve());
        this.#stream.end(() => resolve());
      }
    });
  }
}

export function logHeader(
  plan: GatewayPlan,
  { tokenisation, chats }: Pick<LogHeader, 'tokenisation' | 'chats'>,
  began: Date,
): LogHeader {
  return { format: FORMAT, began: began.toISOString(), tokenisation, chats, plan };
}

//  Reading a log, and deciding it again.

/** A decision that came out otherwise than it was written. */
export interface LogDifference {
  /** Line of the log. */
  readonly line: number;
  /** As written; '' where nothing more was. */
  readonly written: string;
  /** As decided again; '' where nothing was. */
  readonly again: string;
}

export interface ReplayResult {
  readonly inputs: number;
  readonly decisions: number;
  /** Decisions of the kind `route`. */
  readonly routes: number;
  /** Decisions that came out otherwise, and the first of them. */
  readonly differing: number;
  readonly differences: readonly LogDifference[];
  /** Line at which it stopped, because decisions before came out otherwise and what follows fits no more; -1 for the end. */
  readonly stoppedAt: number;
  /** Whether the last line is only a part of one: the gateway was killed. */
  readonly isCut: boolean;
  readonly header: LogHeader;
}

const DIFFERENCES_MOST = 10;

/** Lines of a log as records, each with its number and its text. */
export interface LogLine {
  readonly line: number;
  readonly text: string;
  readonly record: GatewayInput | GatewayOutput;
}

export interface OpenedLog {
  readonly header: LogHeader;
  /** Whether the last line read was a part of one. Known at the end. */
  readonly isCut: () => boolean;
  readonly records: () => Generator<LogLine>;
}

/** @throws TKV_INPUT naming file and line */
export function openLog(path: string): OpenedLog {
  let cut = false;
  const error = (line: number, problem: string, cause?: unknown): TierKVError =>
    new TierKVError('TKV_INPUT', `${path}:${line}: ${problem}. Name the log of a gateway.`, {
      path,
      line,
      cause,
    });
  const first = firstLine(path);
  if (first === '') throw error(1, 'is empty');
  const header = parseJson(first, (problem) => error(1, problem)) as LogHeader | null;
  if (header === null || typeof header !== 'object' || header.format !== FORMAT) {
    throw error(1, `is not the first line of a log (${FORMAT})`);
  }
  if (typeof header.began !== 'string' || Number.isNaN(Date.parse(header.began))) {
    throw error(1, 'does not say when the gateway began');
  }
  return {
    header: { ...header, plan: planOf(header, (problem, cause) => error(1, problem, cause)) },
    isCut: () => cut,
    *records() {
      let line = 0;
      let pending: { readonly line: number; readonly text: string } | undefined;
      for (const text of fileLines(path)) {
        line++;
        if (line === 1 || text === '') continue;
        if (pending !== undefined) yield { ...pending, record: recordOf(pending.text, pending.line, error) };
        pending = { line, text };
      }
      if (pending === undefined) return;
      // a killed gateway leaves a part of a line
      let record: GatewayInput | GatewayOutput;
      try {
        record = recordOf(pending.text, pending.line, error);
      } catch {
        cut = true;
        return;
      }
      yield { ...pending, record };
    },
  };
}

/** The plan of a log, read as if it came from elsewhere: it may have been changed. */
function planOf({ plan }: LogHeader, error: (problem: string, cause?: unknown) => TierKVError): GatewayPlan {
  const bundleOf = (bundle: unknown): PolicyBundle => readBundle(bundle);
  try {
    return {
      ...plan,
      control: checkControl(plan.control),
      bundle: plan.bundle === null ? null : bundleOf(plan.bundle),
      shadows: plan.shadows.map(({ name, bundle }) => ({ name: String(name), bundle: bundleOf(bundle) })),
    };
  } catch (cause) {
    throw error(`its plan cannot be used: ${cause instanceof Error ? cause.message : String(cause)}`, cause);
  }
}

function recordOf(
  text: string,
  line: number,
  error: (line: number, problem: string) => TierKVError,
): GatewayInput | GatewayOutput {
  const record = parseJson(text, (problem) => error(line, problem), maxLineValues);
  if (typeof record !== 'object' || record === null || !('in' in record || 'out' in record)) {
    throw error(line, 'is neither an input nor a decision');
  }
  return record as GatewayInput | GatewayOutput;
}

/** @throws TKV_INPUT for whatever a changed plan leads to */
async function boundOf(plan: GatewayPlan, path: string): Promise<BoundPlan> {
  try {
    return await bindPlan(plan);
  } catch (cause) {
    if (cause instanceof TierKVError) throw cause;
    const why = cause instanceof Error ? cause.message : String(cause);
    throw new TierKVError(
      'TKV_INPUT',
      `${path}:1: its plan cannot be used: ${why}. Name the log of a gateway.`,
      {
        path,
        line: 1,
        cause,
      },
    );
  }
}

/**
 * Decides a recorded run again.
 * @throws TKV_INPUT for a file that is not a log; TKV_CONFIG for a plan that cannot be made
 */
export async function replayLog(path: string): Promise<ReplayResult> {
  const opened = openLog(path);
  const bound: BoundPlan = await boundOf(opened.header.plan, path);
  const again: string[] = [];
  const core = new GatewayCore(bound, (output) => void again.push(JSON.stringify(output)));
  const differences: LogDifference[] = [];
  const counts = { inputs: 0, decisions: 0, routes: 0 };
  let differing = 0;
  const differ = (line: number, written: string, decided: string): void => {
    differing++;
    if (differences.length < DIFFERENCES_MOST) differences.push({ line, written, again: decided });
  };
  let at = 1;
  let stoppedAt = -1;
  for (const { line, text, record } of opened.records()) {
    at = line;
    if ('in' in record) {
      // all decisions on the input before must have been written
      for (const left of again.splice(0)) differ(line, '', left);
      counts.inputs++;
      try {
        core.accept(record);
      } catch (cause) {
        // decisions that came out otherwise lead to a state in which later inputs mean nothing
        if (differences.length > 0) {
          stoppedAt = line;
          break;
        }
        const problem = `the input cannot be taken: ${cause instanceof Error ? cause.message : String(cause)}`;
        throw new TierKVError('TKV_INPUT', `${path}:${line}: ${problem}. Name a whole log.`, {
          path,
          line,
          cause,
        });
      }
      continue;
    }
    counts.decisions++;
    if (record.out === 'route') counts.routes++;
    const decided = again.shift() ?? '';
    if (decided !== text) differ(line, text, decided);
  }
  if (!opened.isCut() && stoppedAt === -1) for (const left of again) differ(at, '', left);
  return { ...counts, differing, differences, stoppedAt, isCut: opened.isCut(), header: opened.header };
}
