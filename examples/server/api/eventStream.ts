/**
 * Server-sent events to one client. `send` waits while the client reads more slowly than text comes, and a
 * client that does not read at all for a while is left. While nothing is to be sent, a comment now and then
 * says to clients and proxies that the stream is alive.
 *
 * Whether the client is still there is asked of the response: a request is closed as soon as its body has
 * been read.
 */

import type { ServerResponse } from 'node:http';

export interface EventStreamOptions {
  readonly headers: Readonly<Record<string, string>>;
  /** How long a client may leave a full stream unread. */
  readonly patienceMs: number;
  /** After so long without an event a comment is sent. */
  readonly keepAliveMs: number;
}

export class EventStream {
  readonly #response: ServerResponse;
  readonly #patienceMs: number;
  readonly #keepAlive: NodeJS.Timeout;

  constructor(response: ServerResponse, { headers, patienceMs, keepAliveMs }: EventStreamOptions) {
    this.#response = response;
    this.#patienceMs = patienceMs;
    this.#keepAlive = setInterval(() => {
      if (this.isOpen && !response.writableNeedDrain) response.write(': keep-alive\n\n');
    }, keepAliveMs);
    response.on('close', () => clearInterval(this.#keepAlive));
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

  /** @param data an object, or the words that end the stream @param name of the event, for clients that look at it */
  async send(data: object | '[DONE]', name?: string): Promise<void> {
    if (!this.isOpen) return;
    this.#keepAlive.refresh();
    const text = typeof data === 'string' ? data : JSON.stringify(data);
    const named = name === undefined ? '' : `event: ${name}\n`;
    if (this.#response.write(`${named}data: ${text}\n\n`)) return;
    const response = this.#response;
    let isSettled = false;
    await new Promise<void>((resolve) => {
      const settle = (): void => {
        isSettled = true;
        clearTimeout(timer);
        response.off('drain', settle);
        response.off('close', settle);
        resolve();
      };
      // after a suspend, timers run before what the client has taken is known
      const leave = (): void => {
        if (!isSettled) response.destroy();
      };
      const timer = setTimeout(() => setImmediate(leave), this.#patienceMs);
      response.once('drain', settle);
      response.once('close', settle);
    });
  }

  end(): void {
    clearInterval(this.#keepAlive);
    if (this.isOpen) this.#response.end();
  }
}
