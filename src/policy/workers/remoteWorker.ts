/**
 * A worker of a server: it takes cases from the queue, runs them on threads, and keeps their answers there. The main
 * thread only waits, so that a case of an hour renews its lock as one of a millisecond does; a worker that is killed
 * renews nothing, and its cases go to another one.
 */

import { randomUUID } from 'node:crypto';
import fs from 'node:fs';
import path from 'node:path';
import type { Job, Worker } from 'bullmq';
import { temporaryDirectory } from '../../io/files/temporaryDirectory.ts';
import { isUnanswered, type Unanswered, WorkerPool } from '../../io/workerPool.ts';
import { answerBytes, readAnswer, writeAnswer } from './answers.ts';
import { readPayload, writePayload } from './payload.ts';
import { arrived, type RemoteJob, readJob, type TravellingTrace } from './remoteTask.ts';
import { CaseServer, identityText, loadQueue, ownIdentity } from './server.ts';
import type { TaskKind, Tasks } from './thread.ts';

interface WorkerOptions {
  readonly url: string;
  /** Cases at once, each on a thread. */
  readonly threads: number;
  /** Heap of a thread. */
  readonly heapMiB: number;
  /** Until a case of a worker that was killed may go to another one, in milliseconds. Default: 10 s. */
  readonly lockMs?: number;
  readonly say: (line: string) => void;
  readonly progress: (done: number, running: number) => void;
}

/** Lock of a case at a worker, in milliseconds. A living worker renews it in half of that. */
const LOCK_MS = 10_000;
/** Between two searches for such cases, in milliseconds. */
const STALLED_MS = 3000;
/** Workers that may be killed with a case before it leaves the queue. */
const STALLED_MAX = 2;
/** Between two signs of life, in milliseconds. */
const ALIVE_MS = 3000;

/** Serves the queue until the signal. @throws as `CaseServer.open` */
export async function serveQueue(options: WorkerOptions, signal: AbortSignal): Promise<void> {
  const field = 'server';
  const { Worker: QueueWorker } = await loadQueue(field);
  const { say, threads, heapMiB, lockMs = LOCK_MS } = options;
  let restart: () => void = () => {};
  const server: CaseServer = await CaseServer.open(options.url, field, (isThere) => {
    say(isThere ? `${server.shown} is there again` : `${server.shown} was lost; waiting for it`);
    if (isThere) restart();
  });
  using files = temporaryDirectory('tierkv-worker-');
  const cases = new QueuedCases(
    server,
    new WorkerPool<Tasks>({ workers: threads, wallMs: Infinity, heapMiB }),
    files.path,
    options,
  );
  const id = randomUUID();
  const sign = (): void => void server.noteWorker(id, threads).catch(() => {});
  const alive = setInterval(sign, ALIVE_MS);
  sign();
  const told = new Set<string>();
  const tellOnce = (error: unknown): void => {
    const problem = error instanceof Error ? error.message : String(error);
    if (signal.aborted || told.has(problem)) return;
    told.add(problem);
    say(`a case was given back: ${problem}`);
  };
  const begin = (): Worker => {
    const run = async (job: Job<unknown>): Promise<void> => {
      try {
        await cases.run(job);
      } catch (error) {
        tellOnce(error);
        throw error; // the one who asked puts it into the queue again
      }
    };
    const worker = new QueueWorker(server.queueName, run, {
      connection: server.redis,
      prefix: server.prefix,
      concurrency: threads,
      lockDuration: lockMs,
      stalledInterval: Math.min(STALLED_MS, lockMs),
      // then the one who asked decides
      maxStalledCount: STALLED_MAX,
      drainDelay: 1,
    });
    worker.on('error', () => {}); // a lost server is told above; a job that it forgot has its answer all the same
    return worker;
  };
  let worker = begin();
  // what waited in the old connection may wait for ever
  restart = () => {
    const old = worker;
    worker = begin();
    void old.close(true).catch(() => {});
  };
  const count = `${threads} ${threads === 1 ? 'thread' : 'threads'}`;
  say(`serves ${server.shown} with ${count}, as ${identityText(ownIdentity())}`);
  try {
    await new Promise<void>((resolve) => {
      if (signal.aborted) resolve();
      signal.addEventListener('abort', () => resolve(), { once: true });
    });
  } finally {
    clearInterval(alive);
    restart = () => {};
    // the cases that run are given back first, so that others get them at once
    await cases.close();
    say(`has done ${cases.done} ${cases.done === 1 ? 'case' : 'cases'}`);
    if (server.isThere) {
      const bye = Promise.allSettled([worker.close(), server.forgetWorker(id)]);
      await Promise.race([bye, new Promise((resolve) => setTimeout(resolve, 3000).unref())]);
    }
    server.close();
  }
}

class QueuedCases {
  readonly #server: CaseServer;
  readonly #pool: WorkerPool<Tasks>;
  readonly #folder: string;
  readonly #options: WorkerOptions;
  /** Cases that run here, by key: after the server was lost they may be asked for again. */
  readonly #running = new Map<string, Promise<object | undefined>>();
  readonly #traces = new Map<string, Promise<string>>();
  /** Cases answered. */
  done: number = 0;

  constructor(server: CaseServer, pool: WorkerPool<Tasks>, folder: string, options: WorkerOptions) {
    this.#server = server;
    this.#pool = pool;
    this.#folder = folder;
    this.#options = options;
  }

  /** @throws where the case is not answered; who asked puts it into the queue again */
  async run({ id, data: held }: Job<unknown>): Promise<void> {
    const key = id as string; // each has one
    const data = readJob(held);
    const { kind } = data.task;
    const bytes = answerBytes[kind];
    const [known] = await this.#server.textsOf([{ name: this.#server.resultKey(key), bytes }]);
    if (known !== undefined && readAnswer(kind, key, known) !== undefined) return;
    let running = this.#running.get(key);
    if (running === undefined) {
      running = this.#answer(data).finally(() => this.#running.delete(key));
      this.#running.set(key, running);
      this.#options.progress(this.done, this.#running.size);
    }
    const answer = await running;
    if (answer === undefined) throw new Error('the worker ends');
    const text = writeAnswer(key, answer);
    if (Buffer.byteLength(text) > bytes) {
      const message = `its answer has more than ${bytes / 2 ** 20} MiB, too much for a server`;
      const told = { unanswered: 'failed', message } satisfies Unanswered;
      await this.#server.keepAnswer(data.run, key, writeAnswer(key, told));
      return;
    }
    const isResult = !isUnanswered(answer) && !('error' in answer);
    if (isResult) await this.#server.keepResult(key, text);
    else await this.#server.keepAnswer(data.run, key, text);
    this.#options.progress(++this.done, this.#running.size);
  }

  async close(): Promise<void> {
    await this.#pool.close();
  }

  async #answer({ task, wallMs }: RemoteJob): Promise<object | undefined> {
    const { trace } = task;
    const place = trace === undefined ? undefined : await this.#placeOf(trace);
    const kind: TaskKind = task.kind;
    const answer = await this.#pool.run(
      kind,
      () => arrived(task, place),
      undefined,
      () => wallMs ?? Infinity,
    );
    return answer === undefined || place === undefined || trace === undefined
      ? answer
      : inOwnWords(answer, place, trace);
  }

  /** Where the trace lies here; its files are fetched once. @throws where the server does not have them */
  #placeOf(trace: TravellingTrace): Promise<string> {
    const name = JSON.stringify([trace.name, trace.files]);
    const known = this.#traces.get(name);
    if (known !== undefined) return known;
    const fetched = this.#fetch(trace, path.join(this.#folder, `trace-${this.#traces.size}-${randomUUID()}`));
    this.#traces.set(name, fetched);
    fetched.catch(() => this.#traces.delete(name));
    return fetched;
  }

  async #fetch({ name, files }: TravellingTrace, folder: string): Promise<string> {
    for (const [each, hash] of files) {
      const target = path.join(folder, each);
      // a name comes from elsewhere: it must not lead out of the folder
      if (path.relative(folder, target).startsWith('..')) throw new Error(`${each} lies outside its folder`);
      await fs.promises.mkdir(path.dirname(target), { recursive: true });
      if (!(await this.#server.getFile(hash, target))) throw new Error(`the server does not have ${each}`);
    }
    return path.join(folder, name);
  }
}

/** An answer that names a file names it as the one who asked does. */
function inOwnWords(answer: object, place: string, trace: TravellingTrace): object {
  const text = writePayload(answer);
  const [here, there] = [place, trace.path].map((each) => JSON.stringify(each).slice(1, -1));
  return text.includes(here) ? (readPayload(text.replaceAll(here, there)) as object) : answer;
}
