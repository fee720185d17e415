/**
 * Server-sent events to one client. `send` waits while the client reads more slowly than text comes, and a
 * client that does not read at all for a while is left.
 *
 * Whether the client is still there is asked of the response: a request is closed as soon as its body has
 * been read.
 */

import type { ServerResponse } from 'node:http';

export class EventStream {
  readonly #response: ServerResponse;
  readonly #patienceMs: number;

  constructor(response: ServerResponse, headers: Readonly<Record<string, string>>, patienceMs: number) {
    this.#response = response;
    this.#patienceMs = patienceMs;
    response.on('error', () => response.destroy());
    response.writeHead(200, {
      ...headers,
      'content-type': 'text/event-stream; charset=utf-8',
      'cache-control': 'no-cache',
      'x-accel-buffering': 'no',
    });
    response.flushHeaders();
  }

  get isOpen(): boolean {
    return !this.#response.destroyed && !this.#response.writableEnded;
  }

  /** @param data an object, or the words that end the stream */
  async send(data: object | '[DONE]'): Promise<void> {
    if (!this.isOpen) return;
    const text = typeof data === 'string' ? data : JSON.stringify(data);
    if (this.#response.write(`data: ${text}\n\n`)) return;
    const response = this.#response;
    await new Promise<void>((resolve) => {
      const settle = (): void => {
        clearTimeout(timer);
        response.off('drain', settle);
        response.off('close', settle);
        resolve();
      };
      const timer = setTimeout(() => response.destroy(), this.#patienceMs);
      response.once('drain', settle);
      response.once('close', settle);
    });
  }

  end(): void {
    if (this.isOpen) this.#response.end();
  }
}
