/**
 * Digests beside the host's thread, of bytes in an arena, whose address other threads of the process can be told. A thread starts when it is first of use, another
 * one when those there are have much to do; until then, and for bytes that no thread can see or that are sooner digested than
 * sent, the caller is told to do it himself. Requests of one turn of the event loop travel as one message.
 *
 * A thread that ends unasked costs nothing but its speed: what it had to do is digested here, and no other is started.
 */

import { availableParallelism } from 'node:os';
import { extname } from 'node:path';
import { Worker } from 'node:worker_threads';
import type { Digest } from '../../runtime/digest.ts';
import { stretchOf } from '../arena/index.ts';
import type { DigestAnswer, DigestRequest, Task } from './digestWorker.ts';
import { hostDigest } from './hostDigest.ts';

/** Shorter stretches are sooner digested than sent. */
const SENT_BYTES_MIN = 128 * 1024;
/** A thread with more than that to do is joined by another. */
const BACKLOG_BYTES = 8 * 1024 * 1024;
const THREADS_MAX = 4;

/** One core stays with the host's thread, another with the system and the device's driver: of two cores none is to spare. */
export function defaultDigestThreads(): number {
  return Math.max(0, Math.min(THREADS_MAX, availableParallelism() - 2));
}

/** The part of a worker that is used here. */
export type DigestWorker = Pick<Worker, 'on' | 'postMessage' | 'ref' | 'unref' | 'terminate'>;

interface Waiting {
  readonly bytes: Uint8Array;
  readonly firstWord: number;
  readonly resolve: (digest: Digest) => void;
}

export class DigestThreads implements AsyncDisposable {
  readonly #max: number;
  readonly #start: () => DigestWorker;
  readonly #threads: Thread[] = [];
  #failure = '';

  /** @param start for tests */
  constructor(max: number, start: () => DigestWorker = startWorker) {
    this.#max = max;
    this.#start = start;
  }

  /** Threads that run, how many there may be, and why none is started any more; empty while that is not so. */
  describe(): { digestThreads: number; digestThreadsMax: number; digestThreadFailure: string } {
    return {
      digestThreads: this.#threads.length,
      digestThreadsMax: this.#max,
      digestThreadFailure: this.#failure,
    };
  }

  /** The digest of a stretch as `hostDigest` gives it, or undefined when the caller is to digest it himself. */
  digest(bytes: Uint8Array, firstWord: number): Promise<Digest> | undefined {
    if (bytes.byteLength < SENT_BYTES_MIN || stretchOf(bytes.buffer) === undefined) return undefined;
    const thread = this.#leastBusy();
    return thread === undefined
      ? undefined
      : new Promise((resolve) => thread.take({ bytes, firstWord, resolve }));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#failure = 'closed';
    await Promise.all(this.#threads.splice(0).map((thread) => thread.end()));
  }

  #leastBusy(): Thread | undefined {
    let best: Thread | undefined;
    for (const thread of this.#threads) {
      if (thread.up && (best === undefined || thread.backlogBytes < best.backlogBytes)) best = thread;
    }
    const starting = this.#threads.some(({ up }) => !up);
    const enough = starting || (best !== undefined && best.backlogBytes <= BACKLOG_BYTES);
    if (!enough && this.#failure === '' && this.#threads.length < this.#max) this.#startThread();
    return best;
  }

  #startThread(): void {
    try {
      const thread = new Thread(this.#start(), (why) => {
        const at = this.#threads.indexOf(thread);
        if (at >= 0) this.#threads.splice(at, 1);
        this.#failure ||= why;
      });
      this.#threads.push(thread);
    } catch (error) {
      this.#failure = messageOf(error);
    }
  }
}

class Thread {
  up = false;
  backlogBytes = 0;
  readonly #worker: DigestWorker;
  /** Of buffers that the worker knows. */
  readonly #numbers: WeakMap<ArrayBufferLike, number> = new WeakMap();
  #buffers = 0;
  #unsent: Waiting[] = [];
  /** What the worker has to do, a list for each message. */
  readonly #sent: (readonly Waiting[])[] = [];
  #ended = false;

  constructor(worker: DigestWorker, onEnd: (why: string) => void) {
    this.#worker = worker;
    const end = (why: string): void => {
      if (this.#ended) return;
      this.#ended = true;
      onEnd(why);
      this.#digestHere();
    };
    worker.on('online', () => {
      this.up = true;
    });
    worker.on('message', (answer: DigestAnswer) => this.#receive(answer));
    worker.on('error', (error: unknown) => end(messageOf(error)));
    worker.on('exit', (code: number) => end(`it ended with code ${code}`));
    worker.unref();
  }

  take(one: Waiting): void {
    if (this.#unsent.push(one) === 1) queueMicrotask(() => this.#send());
    this.backlogBytes += one.bytes.byteLength;
  }

  async end(): Promise<void> {
    this.#ended = true;
    await this.#worker.terminate();
    this.#digestHere();
  }

  #send(): void {
    const waiting = this.#unsent;
    this.#unsent = [];
    if (waiting.length === 0) return;
    const buffers: DigestRequest['buffers'][number][] = [];
    const tasks = waiting.map(({ bytes, firstWord }): Task => {
      let buffer = this.#numbers.get(bytes.buffer);
      if (buffer === undefined) {
        buffer = this.#buffers++;
        this.#numbers.set(bytes.buffer, buffer);
        buffers.push([buffer, stretchOf(bytes.buffer)!]);
      }
      return { buffer, at: bytes.byteOffset, bytes: bytes.byteLength, firstWord };
    });
    if (this.#sent.push(waiting) === 1) this.#worker.ref();
    this.#worker.postMessage({ buffers, tasks } satisfies DigestRequest);
  }

  #receive(answer: DigestAnswer): void {
    const waiting = this.#sent.shift() ?? [];
    if (this.#sent.length === 0) this.#worker.unref();
    waiting.forEach(({ bytes, resolve }, i) => {
      this.backlogBytes -= bytes.byteLength;
      resolve({ lo: answer[2 * i], hi: answer[2 * i + 1] });
    });
  }

  #digestHere(): void {
    const waiting = [...this.#sent.splice(0).flat(), ...this.#unsent.splice(0)];
    for (const { bytes, firstWord, resolve } of waiting) resolve(hostDigest(bytes, firstWord));
  }
}

/** The worker's file lies beside this one, as source or compiled. */
function startWorker(): DigestWorker {
  const file = `./digestWorker${extname(import.meta.url)}`;
  return new Worker(new URL(file, import.meta.url), { name: 'tierkv digest' });
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
