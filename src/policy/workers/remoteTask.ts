/**
 * A task as it travels: its text, the key that its content gives it, and the files that it reads. Names of files are no
 * part of the key, and on the other machine the files lie elsewhere.
 */

import { createHash } from 'node:crypto';
import fs from 'node:fs';
import path from 'node:path';
import { type FileContents, filesReadBy } from '../../io/files/inputs.ts';
import { namedError, TierKVError } from '../../runtime/errors.ts';
import * as is from '../../runtime/kinds.ts';
import { openWorkload } from '../../sim/build/openWorkload.ts';
import type { SimulationPlan } from '../../sim/build/plan.ts';
import { deployedPaths, type Path } from '../../sim/description/knobs.ts';
import { answerBytes } from './answers.ts';
import { readPayload, writePayload } from './payload.ts';
import { ownIdentity } from './server.ts';
import type { TaskKind, Tasks } from './thread.ts';

/** A recorded trace, with the files beside it. */
export interface TravellingTrace {
  /** Where it lies for the one who asks: messages name it so. */
  readonly path: string;
  /** Path below the folder of its files. */
  readonly name: string;
  /** Files by name below that folder. */
  readonly files: readonly (readonly [name: string, hash: string])[];
}

export interface TravellingTask {
  readonly kind: TaskKind;
  readonly task: string;
  readonly trace?: TravellingTrace;
}

/** A job of the queue. */
export interface RemoteJob {
  /** Which run asks: reasons for the lack of a result are told to it alone. */
  readonly run: string;
  /** Longest time of the task; null for no limit. */
  readonly wallMs: number | null;
  readonly task: TravellingTask;
}

/** Bytes of the text of a task: a plan, and the programs of its policies. The server holds hundreds of them. */
const TASK_BYTES_MOST = 16 * 2 ** 20;
/** Files of a trace, and letters of a name of one. */
const FILES_MOST = 4096;
const NAME_LETTERS_MOST = 4096;

const isShort = (value: unknown): boolean => typeof value === 'string' && value.length <= NAME_LETTERS_MOST;
const isHash = (value: unknown): boolean => typeof value === 'string' && /^[0-9a-f]{64}$/.test(value);

const shortText = is.that<string>(`text of at most ${NAME_LETTERS_MOST} letters`, isShort);
const tracePart = is.that<TravellingTrace['files'][number]>(
  'a name and a hash',
  (value) => Array.isArray(value) && value.length === 2 && isShort(value[0]) && isHash(value[1]),
);
const jobKind = is.fields<RemoteJob>({
  run: shortText,
  wallMs: is.orNull(is.finite()),
  task: is.fields({
    kind: is.oneOf(Object.keys(answerBytes)),
    task: is.that(
      `text of at most ${TASK_BYTES_MOST / 2 ** 20} MiB`,
      (value) => typeof value === 'string' && Buffer.byteLength(value) <= TASK_BYTES_MOST,
    ),
    trace: is.optional(
      is.fields({
        path: shortText,
        name: shortText,
        files: is.that(
          `at most ${FILES_MOST} files, each a name and a hash`,
          (value) =>
            Array.isArray(value) &&
            value.length <= FILES_MOST &&
            value.every((each) => is.holds(tracePart, each)),
        ),
      }),
    ),
  }),
});

/** Reads a job of the queue, where a tierkv put it there. @throws TKV_INPUT with what is wrong */
export function readJob(data: unknown): RemoteJob {
  try {
    return jobKind.read(data, 'the job');
  } catch (cause) {
    if (!(cause instanceof TierKVError)) throw cause;
    const problem = `the queue holds a job that no tierkv put there: ${cause.message}`;
    throw new TierKVError('TKV_INPUT', `${problem} Use a server or a database of its own.`, {
      field: 'server',
      cause,
    });
  }
}

/** @throws TKV_INPUT for a task that is too much for a server */
export function requireFits({ task, trace }: TravellingTask): void {
  const tooMuch = (problem: string): TierKVError =>
    namedError(
      'TKV_INPUT',
      { field: 'workers' },
      (name) =>
        `${name('workers')}: ${problem}. Run it on threads of this machine: ${name('workers')} with a number.`,
    );
  const bytes = Buffer.byteLength(task);
  if (bytes > TASK_BYTES_MOST) {
    const limit = `${TASK_BYTES_MOST / 2 ** 20} MiB`;
    const problem = `a case has ${(bytes / 2 ** 20).toFixed(1)} MiB as text, and a server is given ${limit} at most`;
    throw tooMuch(problem);
  }
  const files = trace?.files ?? [];
  const long = files.some(([name]) => name.length > NAME_LETTERS_MOST);
  if (files.length <= FILES_MOST && !long) return;
  const problem = long
    ? `a file of the trace has a name of more than ${NAME_LETTERS_MOST} letters`
    : `the trace has ${files.length} files, and a server is given ${FILES_MOST} at most`;
  throw tooMuch(problem);
}

/** Settings that a plan has done with: paths of files among them, which differ from machine to machine. */
const doneWith: ReadonlySet<Path> = new Set<Path>([
  ...deployedPaths,
  'file',
  'set',
  'workload.file',
  'workload.traceHeader',
]);

/** The plan with what its run still reads, so that like plans are equal. */
function trimmed(plan: SimulationPlan): SimulationPlan {
  const left = <T extends object>(of: T): T =>
    Object.fromEntries(Object.entries(of).filter(([path]) => !doneWith.has(path as Path))) as T;
  const { words } = plan.deployment;
  const values = left(plan.deployment.values);
  // that it is there decides when the run ends
  const data = values['workload.traceData'] === undefined ? {} : { 'workload.traceData': 'the trace' };
  return {
    ...plan,
    deployment: { words, values: { ...values, ...data }, places: left(plan.deployment.places) },
  };
}

/** The plan without names of files. */
function nameless(plan: SimulationPlan, hashes: readonly string[]): unknown {
  const { workload, deployment } = plan;
  // where a setting was written changes no result
  const pools = plan.pools.map((pool) => ({ ...pool, deployment: pool.deployment?.values }));
  const plain = { ...plan, pools, deployment: deployment.values };
  return { ...plain, workload: workload.kind === 'preset' ? workload : { ...workload, file: hashes } };
}

type AnyTask = Tasks[TaskKind]['task'];

function planOf(kind: TaskKind, task: AnyTask): SimulationPlan {
  // the kind says which task it is
  return kind === 'case' ? (task as Tasks['case']['task']).case.plan : (task as Tasks['point']['task']).plan;
}

function withPlan(kind: TaskKind, task: AnyTask, plan: unknown): object {
  if (kind !== 'case') return { ...task, plan };
  const each = task as Tasks['case']['task'];
  return { ...each, case: { ...each.case, plan } };
}

/** @param contents hashes of files, each read once for a run */
export function travelling(
  kind: TaskKind,
  task: AnyTask,
  contents: FileContents,
): TravellingTask & { readonly key: string } {
  const plan = trimmed(planOf(kind, task));
  const trace = traceOf(plan, contents);
  const hashes = trace === undefined ? [] : trace.files.map(([name, hash]) => `${name} ${hash}`);
  const content = writePayload([ownIdentity(), kind, withPlan(kind, task, nameless(plan, hashes))]);
  return {
    kind,
    key: createHash('sha256').update(content).digest('hex'),
    task: writePayload(withPlan(kind, task, plan)),
    ...(trace === undefined ? {} : { trace }),
  };
}

const traces = new WeakMap<FileContents, Map<string, TravellingTrace>>();

function traceOf({ workload }: SimulationPlan, contents: FileContents): TravellingTrace | undefined {
  if (workload.kind !== 'trace') return undefined;
  const { file, format } = workload;
  const known = traces.get(contents) ?? new Map<string, TravellingTrace>();
  traces.set(contents, known);
  const before = known.get(file);
  if (before !== undefined) return before;
  const whole = path.resolve(file);
  const read = filesReadBy(() => {
    for (const _first of openWorkload(file, { format }).requests()) break;
  });
  const isFolder = fs.statSync(whole).isDirectory();
  const folder = isFolder ? whole : path.dirname(whole);
  const files = [...new Set(isFolder ? read : [whole, ...read])]
    .map((each) => [path.relative(folder, each), contents.of(each)] as const)
    .filter(([, hash]) => hash !== '')
    .sort(([a], [b]) => (a < b ? -1 : 1));
  const trace = { path: file, name: isFolder ? '.' : path.basename(whole), files };
  known.set(file, trace);
  return trace;
}

/** Where a file of a trace lies for the one who asks. */
export function pathOf({ path: file, name }: TravellingTrace, each: string): string {
  return path.join(name === '.' ? file : path.dirname(file), each);
}

/** The task as it was, with its trace at `place`. */
export function arrived({ kind, task, trace }: TravellingTask, place: string | undefined): AnyTask {
  const whole = readPayload(task) as AnyTask; // it was written as one
  if (trace === undefined || place === undefined) return whole;
  const plan = planOf(kind, whole);
  // its kind is `trace`, since it brings one
  return withPlan(kind, whole, { ...plan, workload: { ...plan.workload, file: place } }) as AnyTask;
}
