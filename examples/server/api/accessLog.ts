/**
 * A line for each request that ended, as JSON: when it came, what it was, how it ended, what it took. Keys, prompts and
 * answers are in none. A log that cannot be written costs no request anything, and is told of once.
 */

import fs from 'node:fs';
import type { FastifyInstance, FastifyRequest } from 'fastify';
import type { Answer } from '../engine/index.ts';
import { optionError } from './options.ts';

/** What is known of a request that the engine got. */
export interface AccessFacts {
  readonly tenant: string;
  readonly answers: readonly Answer[];
  readonly stream: boolean;
}

export class AccessLog {
  readonly #out: NodeJS.WritableStream;
  readonly #isFile: boolean;
  readonly #facts: WeakMap<FastifyRequest, AccessFacts> = new WeakMap();

  /**
   * @param target a file, to which lines are added, or `-` for standard output
   * @param log told once where it cannot be written
   * @throws TKV_CONFIG for a file that cannot be opened
   */
  constructor(target: string, log: (line: string) => void) {
    this.#isFile = target !== '-';
    if (!this.#isFile) {
      this.#out = process.stdout;
      return;
    }
    let handle: number;
    try {
      handle = fs.openSync(target, 'a', 0o600);
    } catch (error) {
      const why = error instanceof Error ? error.message : String(error);
      throw optionError(
        '--access-log',
        `cannot be written (${why})`,
        'Name a file in a directory that exists',
        error,
      );
    }
    let isTold = false;
    this.#out = fs.createWriteStream(target, { fd: handle }).on('error', (error) => {
      if (!isTold) log(`The access log ${target} is written no more: ${error.message}.`);
      isTold = true;
    });
  }

  note(request: FastifyRequest, facts: AccessFacts): void {
    this.#facts.set(request, facts);
  }

  /** Follows all requests of the app. */
  watch(app: FastifyInstance): void {
    app.addHook('onRequest', async (request, reply) => {
      const startedMs = performance.now();
      const time = new Date().toISOString();
      reply.raw.once('close', () => {
        const line = this.#line(request, time, performance.now() - startedMs, reply.raw);
        this.#out.write(`${JSON.stringify(line)}\n`);
      });
    });
    app.addHook('onClose', async () => {
      if (this.#isFile) await new Promise<void>((resolve) => this.#out.end(resolve));
    });
  }

  #line(
    request: FastifyRequest,
    time: string,
    tookMs: number,
    response: { readonly statusCode: number; readonly writableFinished: boolean },
  ): object {
    const { id, method, url, ip } = request;
    const [path] = url.split('?'); // what is behind it may be a key
    const ms = (value: number): number => Math.round(10 * value) / 10;
    const line = { time, id, ip, method, path, status: response.statusCode, ms: ms(tookMs) };
    const whole = response.writableFinished ? {} : { aborted: true };
    const facts = this.#facts.get(request);
    if (facts === undefined) return { ...line, ...whole };
    const { tenant, answers, stream } = facts;
    const [first] = answers;
    const { firstTokenMs, arrivedMs } = first.times;
    return {
      ...line,
      ...whole,
      tenant,
      stream,
      prompt_tokens: first.promptTokens,
      cached_tokens: first.cachedTokens,
      completion_tokens: answers.reduce((sum, { tokens }) => sum + tokens.length, 0),
      ttft_ms: Number.isNaN(firstTokenMs) ? null : ms(firstTokenMs - arrivedMs),
      finish: answers.map(({ finish }) => finish ?? 'open'),
    };
  }
}
