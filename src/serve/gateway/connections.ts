/**
 * Connections of clients. Each is let go within a bounded time, whatever its client does: one that is told to end is closed
 * shortly after, whether or not the client ends its side, and one whose client takes nothing of what waits for it is closed
 * when it has done so for the limit. A server of Node waits for both without end: it has sent its last byte, and is done.
 *
 * A connection has one request at a time: the next one is begun when the answer before it has gone out. Else a client that
 * asks on and takes no answer keeps servers at work for it, and each further answer looks as if something went on.
 */

import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import { runningClock } from '../../backends/runningClock.ts';

/** How long a client that was told to end has for it, at most. */
const ENDING_MS_MOST = 2000;
/** Requests of a connection that wait for their turn. Node reads on while they wait, so they must be few. */
const WAITING_MOST = 64;
/** Bytes of a refused request that are read and thrown away, so that its client can read why. */
const DISCARDED_BYTES_MOST = 2 ** 20;

interface WaitingAnswer {
  /** Bytes that wait for the client, and bytes that were sent, when they were looked at. */
  length: number;
  sent: number;
  /** Since when neither has changed, in milliseconds of the running clock. */
  sinceMs: number;
}

interface Connection {
  /** The bytes that wait for the client; undefined where nothing waits. */
  answer: WaitingAnswer | undefined;
  /** Whether the connection has a request that is being served. */
  isBusy: boolean;
  /** Begin the requests that came behind that one. */
  readonly waiting: (() => void)[];
}

export class ClientConnections {
  readonly #sockets = new Map<Socket, Connection>();
  readonly #ending = new WeakSet<Socket>();
  readonly #clientMs: number;
  readonly #endingMs: number;
  #sweep: NodeJS.Timeout | undefined;

  /** @param uploadMs longest time in which a client sends a request @param clientMs longest time in which one takes nothing */
  constructor(uploadMs: number, clientMs: number) {
    this.#clientMs = clientMs;
    this.#endingMs = Math.min(ENDING_MS_MOST, Math.ceil(uploadMs / 4));
  }

  get size(): number {
    return this.#sockets.size;
  }

  add(socket: Socket): void {
    this.#sockets.set(socket, { answer: undefined, isBusy: false, waiting: [] });
    socket.on('close', () => {
      this.#sockets.delete(socket);
      if (this.#sockets.size > 0) return;
      clearInterval(this.#sweep);
      this.#sweep = undefined;
    });
    this.#sweep ??= setInterval(() => this.#free(), Math.min(1000, Math.ceil(this.#clientMs / 4))).unref();
  }

  /**
   * Begins a request when all answers before it on its connection have gone out, or at once. A request whose connection closes
   * meanwhile is never begun.
   * @returns false where too many wait there: it is not begun
   */
  inTurn(socket: Socket, response: ServerResponse, begin: () => void): boolean {
    const connection = this.#sockets.get(socket);
    if (connection === undefined) return true;
    const start = (): void => {
      connection.isBusy = true;
      response.once('close', () => {
        connection.isBusy = false;
        if (!socket.destroyed) connection.waiting.shift()?.();
      });
      begin();
    };
    if (!connection.isBusy) start();
    else if (connection.waiting.length < WAITING_MOST) connection.waiting.push(start);
    else return false;
    return true;
  }

  /** Ends a connection with these last bytes. Its client has a moment to read them. */
  end(socket: Socket, last: string): void {
    if (this.#ending.has(socket) || !socket.writable) {
      if (!socket.writable) socket.destroy();
      return;
    }
    this.#ending.add(socket);
    socket.end(last);
    const cancel = runningClock.alarm(this.#endingMs, () => socket.destroy(), true);
    socket.once('close', cancel);
  }

  destroyAll(): void {
    for (const socket of this.#sockets.keys()) socket.destroy();
  }

  /** Closes what has waited for its client for too long. */
  #free(): void {
    const nowMs = runningClock.nowMs();
    for (const [socket, connection] of this.#sockets) {
      const { writableLength: length, bytesWritten: sent } = socket;
      const { answer } = connection;
      if (length === 0) connection.answer = undefined;
      else if (answer === undefined || answer.length !== length || answer.sent !== sent) {
        connection.answer = { length, sent, sinceMs: nowMs };
      } else if (nowMs - answer.sinceMs >= this.#clientMs) socket.destroy();
    }
  }
}

/** Whether a body belongs to a request. */
export function hasBody({ headers }: IncomingMessage): boolean {
  return headers['transfer-encoding'] !== undefined || Number(headers['content-length'] ?? 0) > 0;
}

/** Throws away what comes of a body that is not wanted. A client that sends on and on is cut off. */
export function discardBody(request: IncomingMessage): void {
  let bytes = 0;
  request.on('data', (chunk: Buffer) => {
    bytes += chunk.length;
    if (bytes > DISCARDED_BYTES_MOST) request.socket.destroy();
  });
}
