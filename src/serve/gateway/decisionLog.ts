/**
 * The log of a gateway: a line for what it decides by, then a line for each input and each decision, in order. A decision
 * follows the input that asked for it, so a log can be decided again: inputs go to the control plane of the simulator,
 * and its decisions are compared with the written ones, line for line. A log may lie in several files, one behind the
 * other; each begins with such a first line, and they are read as one.
 */

import { fileLines, firstLine } from '../../io/files/inputs.ts';
import type { PolicyBundle } from '../../policy/evolve/bundle/policyBundle.ts';
import { readBundle } from '../../policy/evolve/bundle/readBundle.ts';
import { maxLineValues, parseJson } from '../../runtime/boundedJson.ts';
import { TierKVError } from '../../runtime/errors.ts';
import * as is from '../../runtime/kinds.ts';
import { checkInputs } from '../../runtime/options.ts';
import { checkControl } from '../../sim/control/plane.ts';
import { GatewayCore } from './core.ts';
import { partsOf } from './lineFile.ts';
import { type BoundPlan, bindPlan, type GatewayPlan } from './plan.ts';
import type { GatewayInput, GatewayOutput } from './records.ts';

const FORMAT = 'tierkv.gateway-log/1';

/** First line of a log. */
interface LogHeader {
  readonly format: typeof FORMAT;
  /** When the gateway began, as a date, for people. */
  readonly began: string;
  /** Unit by which prompts are cut: `tokenizer` or `text`. */
  readonly tokenisation: string;
  /** How a chat becomes one text: `template` or `text`. */
  readonly chats: string;
  /** The same in all files of a run, and in no other one. */
  readonly run: string;
  /** Which file of the run it is, from 0. */
  readonly part: number;
  readonly plan: GatewayPlan;
}

export function logHeader(
  plan: GatewayPlan,
  { tokenisation, chats }: Pick<LogHeader, 'tokenisation' | 'chats'>,
  run: { readonly run: string; readonly part: number; readonly began: Date },
): LogHeader {
  const { began, ...of } = run;
  return { format: FORMAT, began: began.toISOString(), tokenisation, chats, ...of, plan };
}

//  Reading a log, and deciding it again.

/** A decision that came out otherwise than it was written. */
interface LogDifference {
  /** The file of the log. */
  readonly file: string;
  /** Line of the log. */
  readonly line: number;
  /** The decision as written; '' where the log has no further one. */
  readonly written: string;
  /** The decision as made again; '' where none was made. */
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
  /** Line of a file at which it stopped, because decisions before came out otherwise and what follows fits no more; -1 for the end. */
  readonly stoppedAt: number;
  /** Whether the last line is only a part of one: the gateway was killed. */
  readonly isCut: boolean;
  readonly header: LogHeader;
}

const DIFFERENCES_MOST = 10;

/** Lines of a log as records, each with its number and its text. */
interface LogLine {
  readonly file: string;
  readonly line: number;
  readonly text: string;
  readonly record: GatewayInput | GatewayOutput;
}

interface OpenedLog {
  readonly header: LogHeader;
  /** Whether the last line read was a part of one. Known at the end. */
  readonly isCut: () => boolean;
  readonly records: () => Generator<LogLine>;
}

/** Reads the first line of a log, before its plan is looked at. @throws TKV_INPUT naming file and line */
function headerOf(path: string): LogHeader {
  const first = firstLine(path);
  if (first === '') throw badLine(path, 1, 'is empty');
  const header = parseJson(first, (problem) => badLine(path, 1, problem)) as LogHeader | null;
  if (header === null || typeof header !== 'object' || header.format !== FORMAT) {
    throw badLine(path, 1, `is not the first line of a log (${FORMAT})`);
  }
  if (typeof header.began !== 'string' || Number.isNaN(Date.parse(header.began))) {
    throw badLine(path, 1, 'does not say when the gateway began');
  }
  const { run = '', part = 0 } = header;
  if (typeof run !== 'string' || !Number.isSafeInteger(part) || part < 0) {
    throw badLine(path, 1, 'does not say which part of a log it is');
  }
  return { ...header, run, part };
}

function badLine(path: string, line: number, problem: string, cause?: unknown): TierKVError {
  const message = `${path}:${line}: ${problem}. Name the log of a gateway.`;
  return new TierKVError('TKV_INPUT', message, { path, line, cause });
}

/** The files of a run up to the one that is named, in order. @throws TKV_INPUT where one is missing */
function filesOf(path: string, { run, part }: LogHeader): readonly string[] {
  if (part === 0) return [path];
  const files: string[] = Array<string>(part).fill('');
  for (const other of partsOf(path.replace(/\.\d+$/, ''))) {
    if (other === path) continue;
    try {
      const header = headerOf(other);
      if (header.run === run && header.part < part) files[header.part] = other;
    } catch {
      // another file beside it
    }
  }
  const missing = files.indexOf('');
  if (missing === -1) return [...files, path];
  const problem = `is part ${part + 1} of a log whose part ${missing + 1} is not beside it`;
  throw new TierKVError(
    'TKV_INPUT',
    `${path}:1: ${problem}. Decisions depend on all before them: keep all parts.`,
    { path, line: 1 },
  );
}

/**
 * Opens a log, with the parts before it that lie beside it.
 * @throws TKV_INPUT naming file and line
 */
export function openLog(path: string): OpenedLog {
  let cut = false;
  const last = headerOf(path);
  const files = filesOf(path, last);
  const header = files[0] === path ? last : headerOf(files[0]);
  return {
    header: { ...header, plan: planOf(header, (problem, cause) => badLine(files[0], 1, problem, cause)) },
    isCut: () => cut,
    *records() {
      for (const file of files) {
        const error = (line: number, problem: string): TierKVError => badLine(file, line, problem);
        let line = 0;
        let pending: { readonly line: number; readonly text: string } | undefined;
        for (const text of fileLines(file)) {
          line++;
          if (line === 1 || text === '') continue;
          if (pending !== undefined) {
            yield { file, ...pending, record: recordOf(pending.text, pending.line, error) };
          }
          pending = { line, text };
        }
        if (pending === undefined) continue;
        // a killed gateway leaves a part of a line
        let record: GatewayInput | GatewayOutput;
        try {
          record = recordOf(pending.text, pending.line, error);
        } catch (cause) {
          if (file !== path) throw cause;
          cut = true;
          return;
        }
        yield { file, ...pending, record };
      }
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
export async function decideAgain(path: string): Promise<ReplayResult> {
  checkInputs({ path }, { path: is.name() });
  const opened = openLog(path);
  const bound: BoundPlan = await boundOf(opened.header.plan, path);
  const again: string[] = [];
  const core = new GatewayCore(bound, (output) => void again.push(JSON.stringify(output)));
  const differences: LogDifference[] = [];
  const counts = { inputs: 0, decisions: 0, routes: 0 };
  let differing = 0;
  const differ = (where: Pick<LogLine, 'file' | 'line'>, written: string, decided: string): void => {
    differing++;
    const { file, line } = where;
    if (differences.length < DIFFERENCES_MOST) differences.push({ file, line, written, again: decided });
  };
  let at: Pick<LogLine, 'file' | 'line'> = { file: path, line: 1 };
  let stoppedAt = -1;
  for (const { file, line, text, record } of opened.records()) {
    at = { file, line };
    if ('in' in record) {
      // all decisions on the input before must have been written
      for (const left of again.splice(0)) differ(at, '', left);
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
        throw new TierKVError('TKV_INPUT', `${file}:${line}: ${problem}. Name a whole log.`, {
          path: file,
          line,
          cause,
        });
      }
      continue;
    }
    counts.decisions++;
    if (record.out === 'route') counts.routes++;
    const decided = again.shift() ?? '';
    if (decided !== text) differ(at, text, decided);
  }
  if (!opened.isCut() && stoppedAt === -1) for (const left of again) differ(at, '', left);
  return { ...counts, differing, differences, stoppedAt, isCut: opened.isCut(), header: opened.header };
}
