/**
 * Tasks on the workers of a server. All that is asked for is kept here until its answer is here: what the server or a
 * worker loses is put into the queue again. So nothing depends on what the server remembers, and running a case twice is
 * harmless, since its answer has its content for a name.
 */

import { randomUUID } from 'node:crypto';
import type { Queue } from 'bullmq';
import { FileContents } from '../../io/files/inputs.ts';
import type { PoolLimits, TaskRunner, Unanswered } from '../../io/workerPool.ts';
import { namedError, TierKVError } from '../../runtime/errors.ts';
import { answerBytes, readAnswer } from './answers.ts';
import { pathOf, type RemoteJob, requireFits, type TravellingTask, travelling } from './remoteTask.ts';
import { CaseServer, identityText, loadQueue, ownIdentity } from './server.ts';
import type { TaskAnswer, TaskKind, Tasks } from './thread.ts';

/** Tasks in the queue at once. The others wait here, so that a large grid does not fill the server's memory. */
const QUEUED_MAX = 512;
/** Bytes of their texts, for the same reason; one task is queued whatever it has. */
const QUEUED_BYTES_MAX = 256 * 2 ** 20;
/** Times that a case may leave the queue without an answer. More often, it ends its workers, and has no result. */
const GONE_MAX = 4;
/** Between two looks at what has come, in milliseconds. */
const LOOK_MS = 50;
/** Between two looks at whether jobs and workers are still there, in milliseconds. */
const CHECK_MS = 2000;

interface OpenTask {
  readonly key: string;
  readonly task: TravellingTask;
  /** All who asked for it. */
  readonly asked: AskedTask[];
  isQueued: boolean;
  /** Which life of the server it was queued in. */
  life: number;
  /** How often it was gone from the queue without an answer, while the server was there. */
  gone: number;
}

interface AskedTask {
  readonly make: () => { readonly kind: TaskKind; readonly task: Tasks[TaskKind]['task'] };
  readonly done: (answer: object | undefined) => void;
  readonly failed: (error: unknown) => void;
  readonly isCalledOff: () => boolean;
}

export class RemoteRunner implements TaskRunner<Tasks> {
  readonly #server: CaseServer;
  readonly #queue: Queue;
  readonly #wallMs: number;
  readonly #say: (line: string) => void;
  readonly #run = randomUUID();
  readonly #asked: AskedTask[] = [];
  readonly #open = new Map<string, OpenTask>();
  readonly #contents = new FileContents();
  #checkedMs = -Infinity;
  #saidAlone = false;
  #saidForeign = false;
  #closed = false;
  #closing: Promise<void> | undefined;
  #wake: () => void = () => {};

  private constructor(server: CaseServer, queue: Queue, { wallMs }: PoolLimits, say: (line: string) => void) {
    this.#server = server;
    this.#queue = queue;
    this.#wallMs = wallMs;
    this.#say = say;
    void this.#loop();
  }

  /**
   * @param say told of what a person has to know: workers that are missing, a server that was lost
   * @throws TKV_CONFIG, TKV_IO as `CaseServer.open`; TKV_MISMATCH where all workers have another version
   */
  static async open(url: string, limits: PoolLimits, say: (line: string) => void): Promise<RemoteRunner> {
    const field = 'workers';
    const { Queue } = await loadQueue(field);
    const server: CaseServer = await CaseServer.open(url, field, (isThere) =>
      say(
        isThere
          ? `${server.shown} is there again; what it lost is asked for once more`
          : `${server.shown} was lost; waiting for it`,
      ),
    );
    try {
      const { own, other } = await server.workers();
      if (own.length === 0 && other.length > 0) {
        const versions = [...new Set(other.map(identityText))].join(', ');
        const problem = `all workers of ${server.shown} are ${versions}, and this is ${identityText(ownIdentity())}`;
        const remedy = 'Start workers of the same version and Node, or run this with theirs.';
        throw namedError('TKV_MISMATCH', { field }, (name) => `${name(field)}: ${problem}. ${remedy}`);
      }
      const queue = new Queue(server.queueName, { connection: server.redis, prefix: server.prefix });
      queue.on('error', () => {}); // the server tells it
      return new RemoteRunner(server, queue, limits, say);
    } catch (error) {
      server.close();
      throw error;
    }
  }

  run<K extends TaskKind>(
    kind: K,
    make: () => Tasks[K]['task'],
    isCalledOff: () => boolean = () => false,
  ): Promise<TaskAnswer<K> | undefined> {
    if (this.#closed) return Promise.resolve(undefined);
    return new Promise((resolve, reject) => {
      this.#asked.push({
        make: () => ({ kind, task: make() }),
        // a worker answers a task with the answer of its kind
        done: (answer) => resolve(answer as TaskAnswer<K> | undefined),
        failed: reject,
        isCalledOff: () => this.#closed || isCalledOff(),
      });
      this.#wake();
    });
  }

  close(): Promise<void> {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  async #close(): Promise<void> {
    this.#closed = true;
    for (const { done } of this.#asked.splice(0)) done(undefined);
    // what waits in the queue is of no use to this run any more; what runs is kept as a result
    if (this.#server.isThere) {
      const left = [...this.#open.keys()];
      await Promise.race([this.#forget(left), new Promise((resolve) => setTimeout(resolve, 2000).unref())]);
    }
    for (const { asked } of this.#open.values()) for (const { done } of asked) done(undefined);
    this.#open.clear();
    this.#wake();
    this.#server.close();
  }

  async #forget(keys: readonly string[]): Promise<void> {
    // a job that a worker has cannot be removed, and need not be
    await Promise.all(keys.map((key) => this.#queue.remove(key).catch(() => {})));
  }

  async #loop(): Promise<void> {
    while (!this.#closed) {
      if (this.#asked.length === 0 && this.#open.size === 0) {
        await new Promise<void>((resolve) => {
          this.#wake = resolve;
        });
        continue;
      }
      try {
        await this.#look();
        await this.#drop();
        this.#take();
        const nowMs = performance.now();
        if (nowMs - this.#checkedMs > CHECK_MS) {
          this.#checkedMs = nowMs;
          await this.#check();
        }
        await this.#send();
      } catch (error) {
        if (this.#closed) return;
        const told = error instanceof TierKVError ? error : this.#server.refusal(error, 'workers');
        if (told !== undefined) this.#fail(told);
        // else the server went away between two commands; the next round finds out what is left
      }
      await new Promise((resolve) => setTimeout(resolve, LOOK_MS));
    }
  }

  /** All that is asked for ends with the error: a file is not what it was, or the server refuses. */
  #fail(error: TierKVError): void {
    for (const { failed } of this.#asked.splice(0)) failed(error);
    for (const { asked } of this.#open.values()) for (const { failed } of asked) failed(error);
    this.#open.clear();
  }

  /** Takes what was asked for into the work, as far as there is room. */
  #take(): void {
    let bytes = 0;
    for (const { task } of this.#open.values()) bytes += task.task.length;
    while (this.#asked.length > 0 && this.#open.size < QUEUED_MAX && bytes < QUEUED_BYTES_MAX) {
      const next = this.#asked.shift() as AskedTask;
      if (next.isCalledOff()) {
        next.done(undefined);
        continue;
      }
      try {
        const { kind, task } = next.make();
        const { key, ...travels } = travelling(kind, task, this.#contents);
        requireFits(travels);
        bytes += travels.task.length;
        const before = this.#open.get(key);
        if (before !== undefined) before.asked.push(next);
        else this.#open.set(key, { key, task: travels, asked: [next], isQueued: false, life: 0, gone: 0 });
      } catch (error) {
        next.failed(error);
      }
    }
  }

  /** Answers that have come. */
  async #look(): Promise<void> {
    const all = [...this.#open.values()];
    if (all.length === 0) return;
    const wanted = all.flatMap(({ key, task }) => {
      const bytes = answerBytes[task.kind];
      return [
        { name: this.#server.resultKey(key), bytes },
        { name: this.#server.answerKey(this.#run, key), bytes },
      ];
    });
    const texts = await this.#server.textsOf(wanted);
    for (const [i, { key, task, asked }] of all.entries()) {
      for (const at of [2 * i, 2 * i + 1]) {
        const text = texts[at];
        if (text === undefined) continue;
        // each caller gets an answer of its own
        const answers = asked.flatMap(() => readAnswer(task.kind, key, text) ?? []);
        if (answers.length < asked.length) {
          await this.#refuse(wanted[at].name);
          continue;
        }
        this.#open.delete(key);
        for (const [of, { done }] of asked.entries()) done(answers[of]);
        break;
      }
    }
  }

  /** Discards an answer that does not fit its case, also for workers, which look whether one is there. */
  async #refuse(name: string): Promise<void> {
    if (!this.#saidForeign) {
      const remedy =
        'another program or another tierkv writes there, so use a server or a database of its own';
      this.#say(
        `${this.#server.shown} holds ${name}, which does not answer its case; it is computed again (${remedy})`,
      );
    }
    this.#saidForeign = true;
    await this.#server.redis.del(name);
  }

  /** Takes out of the queue what all who asked for it have called off. */
  async #drop(): Promise<void> {
    const off = [...this.#open.values()].filter(({ asked }) =>
      asked.every(({ isCalledOff }) => isCalledOff()),
    );
    if (off.length === 0) return;
    await this.#forget(off.map(({ key }) => key));
    for (const { key, asked } of off) {
      this.#open.delete(key);
      for (const { done } of asked) done(undefined);
    }
  }

  /** Jobs that are gone without an answer go into the queue again; a person is told where there are no workers. */
  async #check(): Promise<void> {
    const queued = [...this.#open.values()].filter(({ isQueued }) => isQueued);
    const there = this.#server.redis.pipeline();
    for (const { key } of queued) there.exists(this.#queue.toKey(key));
    const found = (await there.exec()) ?? [];
    for (const [i, each] of queued.entries()) {
      const [error, count] = found[i] ?? [];
      if (error !== null || count !== 0) continue;
      each.isQueued = false;
      if (each.life !== this.#server.life || ++each.gone <= GONE_MAX) continue;
      this.#open.delete(each.key);
      const message = `its workers ended or gave it back ${each.gone} times`;
      for (const { done } of each.asked) done({ unanswered: 'failed', message } satisfies Unanswered);
    }
    const { own, other } = await this.#server.workers();
    const isAlone = own.length === 0;
    if (isAlone && !this.#saidAlone) {
      const others =
        other.length === 0 ? '' : ` (those there have another version: ${identityText(other[0])})`;
      this.#say(
        `waiting for workers${others}: run tierkv worker ${this.#server.shown} with ${identityText(ownIdentity())}`,
      );
    }
    if (!isAlone && this.#saidAlone) this.#say(`workers are there: ${own.length}`);
    this.#saidAlone = isAlone;
  }

  /** Puts into the queue what is not there. */
  async #send(): Promise<void> {
    const all = [...this.#open.values()].filter(({ isQueued }) => !isQueued);
    if (all.length === 0) return;
    const files = new Map(
      all.flatMap(({ task: { trace } }) =>
        (trace?.files ?? []).map(([name, hash]) => [hash, pathOf(trace as NonNullable<typeof trace>, name)]),
      ),
    );
    for (const [hash, file] of files) await this.#server.putFile(file, hash);
    const wallMs = this.#wallMs === Infinity ? null : this.#wallMs;
    const jobs = all.map(({ key, task }) => ({
      name: task.kind,
      data: { run: this.#run, wallMs, task } satisfies RemoteJob,
      opts: { jobId: key, removeOnComplete: true, removeOnFail: true },
    }));
    await this.#queue.addBulk(jobs);
    for (const each of all) Object.assign(each, { isQueued: true, life: this.#server.life });
  }
}
