/**
 * The HTTP side of a gateway: clients come in, are known by their keys, and send bodies within limits. Nothing of a body is
 * looked at before its key is known, and nothing for an operator is at this port (operators.ts).
 */

import http, { type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo, Socket } from 'node:net';
import { runningClock } from '../../backends/runningClock.ts';
import { TierKVError } from '../../runtime/errors.ts';
import { AnswerMeter } from './answerMeter.ts';
import { AttemptFailed, beginAnswer, messageOf, passOn } from './answers.ts';
import { countingPaths, messagesPath } from './apis.ts';
import { ClientConnections, discardBody, hasBody } from './connections.ts';
import { withoutControl } from './controlFields.ts';
import { forwardedHeaders, keyOf, sendError, sendHead } from './heads.ts';
import { Passage } from './passage.ts';
import { readPrompt } from './prompts.ts';
import type { ServedGateway } from './served.ts';
import { countMore, sendHealth } from './status.ts';

/**
 * Connections that the kernel keeps until they are taken. Where it has no room for one more, its client believes to be connected
 * and waits for seconds: with Node's own 511 a burst of two thousand clients meets that.
 */
const BACKLOG = 4096;

export class GatewayServer {
  readonly url: string;
  readonly #server: http.Server;
  readonly #connections: ClientConnections;

  private constructor(server: http.Server, connections: ClientConnections) {
    this.#server = server;
    this.#connections = connections;
    this.url = urlOf(server);
  }

  /** @throws TKV_IO where the port cannot be had */
  static async listen(gateway: ServedGateway, host: string, port: number): Promise<GatewayServer> {
    const { limits } = gateway;
    const connections = new ClientConnections(limits.uploadMs, limits.clientMs);
    const held: HeldWork = { requests: 0, bytes: 0, uploads: new WeakSet() };
    const server = http.createServer({
      maxHeaderSize: limits.headerBytes,
      requestTimeout: limits.uploadMs,
      headersTimeout: Math.min(limits.uploadMs, 60_000),
      connectionsCheckingInterval: Math.min(30_000, Math.ceil(limits.uploadMs / 4)),
      // a client that asked and takes no more is let go with the others that send nothing
      keepAliveTimeout: Math.min(75_000, Math.ceil(1.25 * limits.uploadMs)),
    });
    const serveNow = (request: IncomingMessage, response: ServerResponse, waits: boolean): void => {
      serve(gateway, held, request, response, waits).catch((error: unknown) => {
        // a fault of ours: the client is told so, and the gateway goes on
        gateway.counts.failed++;
        sendError(response, 500, 'internal_error', `the gateway failed: ${messageOf(error)}`);
      });
    };
    const take = (request: IncomingMessage, response: ServerResponse, waits: boolean): void => {
      const begin = (): void => serveNow(request, response, waits);
      if (connections.inTurn(request.socket, response, begin)) return;
      response.setHeader('connection', 'close');
      discardBody(request);
      const message = 'Too many requests wait on this connection. Read the answers, or use more connections.';
      refuse(gateway, response, 429, 'too_many_pipelined', message);
    };
    server.on('request', (request, response) => take(request, response, false));
    // a client that asks before it sends its body is told to only once its key is known
    server.on('checkContinue', (request, response) => take(request, response, true));
    // beside those with a request some are kept alive; what is beyond is closed, and costs no memory
    server.maxConnections = 4 * limits.requests + 1024;
    server.on('connection', (socket) => connections.add(socket));
    server.on('clientError', (error: NodeJS.ErrnoException, duplex) => {
      const socket = duplex as Socket; // of a server without TLS
      const { code = '' } = error;
      const tooLong = code === 'HPE_HEADER_OVERFLOW';
      // the error of a body is counted where the body is read
      if (code.startsWith('HPE_') && !held.uploads.has(socket)) {
        countMore(gateway.counts.refused, tooLong ? 'head_too_large' : 'bad_head');
      }
      const status = tooLong ? '431 Request Header Fields Too Large' : statusOfBadHttp[code];
      connections.end(socket, `HTTP/1.1 ${status ?? '400 Bad Request'}\r\nConnection: close\r\n\r\n`);
    });
    server.on('drop', () => countMore(gateway.counts.refused, 'too_many_connections'));
    await listenAt(server, host, port, 'port');
    return new GatewayServer(server, connections);
  }

  get openConnections(): number {
    return this.#connections.size;
  }

  /** Takes no more requests; what is under way has `graceMs`. */
  async close(graceMs: number): Promise<void> {
    const closed = new Promise<void>((resolve) => {
      this.#server.close(() => resolve());
    });
    this.#server.closeIdleConnections();
    const timer = setTimeout(() => this.#connections.destroyAll(), graceMs);
    await closed;
    clearTimeout(timer);
  }
}

/** Where a server listens. */
export function urlOf(server: http.Server): string {
  const { address, port, family } = server.address() as AddressInfo;
  return `http://${family === 'IPv6' ? `[${address}]` : address}:${port}`;
}

/** @param field of the configuration that names the port @throws TKV_IO where it cannot be had */
export async function listenAt(
  server: http.Server,
  host: string,
  port: number,
  field: string,
): Promise<void> {
  await new Promise<void>((resolve, reject) => {
    server.once('error', (cause) => {
      const remedy = `Name another ${field}, or end the program that has it.`;
      reject(new TierKVError('TKV_IO', `${host}:${port}: ${cause.message}. ${remedy}`, { field, cause }));
    });
    server.listen({ host, port, backlog: BACKLOG }, () => resolve());
  });
}

const statusOfBadHttp: Readonly<Record<string, string>> = {
  ERR_HTTP_REQUEST_TIMEOUT: '408 Request Timeout',
};

/** Work that clients have with the gateway now, from the first byte of a request to the last one of its answer. */
interface HeldWork {
  requests: number;
  /** Bytes of bodies. */
  bytes: number;
  /** Connections whose body is being read. */
  readonly uploads: WeakSet<object>;
}

/** Tells a client, before its request has a number, why nothing is decided on it; and counts that. */
function refuse(
  gateway: ServedGateway,
  response: ServerResponse,
  status: number,
  code: string,
  message: string,
  retryAfterS?: number,
): void {
  countMore(gateway.counts.refused, code);
  sendError(response, status, code, message, retryAfterS);
}

/** @param waits whether the client sends its body only when it is told to */
async function serve(
  gateway: ServedGateway,
  held: HeldWork,
  request: IncomingMessage,
  response: ServerResponse,
  waits: boolean,
): Promise<void> {
  const path = (request.url ?? '/').split('?')[0];
  const unread = (): void => {
    // a client that was not told to send its body may go on with another request, or with the body all the same
    if (waits) response.setHeader('connection', 'close');
    discardBody(request);
  };
  if (path === '/health') {
    unread();
    sendHealth(gateway, response);
    return;
  }
  // a path that leads elsewhere would reach what a server shows to its operator alone
  if (!path.startsWith('/v1/') || /(^|\/)(\.|%2e){1,2}(\/|%2f|$)|\\|%5c/i.test(path)) {
    unread();
    const message = `${path.slice(0, 100)} is not served here. Use a path below /v1/.`;
    refuse(gateway, response, 404, 'not_found', message);
    return;
  }
  const tenant = tenantOf(gateway, request);
  if (tenant === undefined) {
    unread();
    const message = 'The API key is not known. Send one as "Authorization: Bearer KEY" or "x-api-key: KEY".';
    refuse(gateway, response, 401, 'invalid_api_key', message);
    return;
  }
  if (held.requests >= gateway.limits.requests) {
    unread();
    overloaded(gateway, response);
    return;
  }
  held.requests++;
  let bytes = 0;
  try {
    if (request.method !== 'POST') {
      // lists of models and the like: nothing to decide, and no part of the workload
      if (hasBody(request)) {
        unread();
        const message = `A ${request.method} with a body is not passed on. Send it with POST, or without a body.`;
        refuse(gateway, response, 405, 'method_not_allowed', message);
        return;
      }
      request.resume(); // it has no body
      await passPlain(gateway, request, response, tenant, Buffer.alloc(0));
      return;
    }
    const packing = request.headers['content-encoding'] ?? 'identity';
    if (packing !== 'identity') {
      unread();
      const message = `A body packed with ${packing.slice(0, 40)} is not taken. Send it as it is.`;
      refuse(gateway, response, 415, 'unsupported_encoding', message);
      return;
    }
    const { socket } = request;
    held.uploads.add(socket);
    if (waits) response.writeContinue();
    const body = await bodyOf(request, response, gateway, (more) => {
      bytes += more;
      held.bytes += more;
      return held.bytes <= gateway.limits.heldBytes;
    });
    held.uploads.delete(socket);
    if (body === undefined) return;
    if (countingPaths.has(path)) await passCount(gateway, request, response, tenant, body);
    else await new Passage(gateway, request, response, path, body, tenant).run();
    await taken(response, gateway.limits.clientMs);
  } finally {
    held.requests--;
    held.bytes -= bytes;
  }
}

function overloaded(gateway: ServedGateway, response: ServerResponse): void {
  const message = 'Too many requests wait here. Come again later.';
  refuse(gateway, response, 429, 'overloaded', message, gateway.retryAfterS());
}

/** Waits until a client has taken the end of its answer; one that does not is left. */
async function taken(response: ServerResponse, clientMs: number): Promise<void> {
  if (response.writableFinished || response.destroyed || !response.writableEnded) return;
  await new Promise<void>((resolve) => {
    const cancel = runningClock.alarm(clientMs, () => response.destroy(), true);
    const end = (): void => {
      cancel();
      resolve();
    };
    response.once('finish', end);
    response.once('close', end);
  });
}

/** Asks a backend that has the model for the tokens of a prompt. */
async function passCount(
  gateway: ServedGateway,
  request: IncomingMessage,
  response: ServerResponse,
  tenant: string,
  body: Buffer,
): Promise<void> {
  try {
    const { fields, model } = readPrompt(messagesPath, body.toString('utf8'));
    await passPlain(gateway, request, response, tenant, withoutControl(body, fields), model);
  } catch (error) {
    if (!(error instanceof TierKVError)) throw error;
    refuse(gateway, response, 400, 'invalid_body', error.message);
  }
}

/** Asks any backend that is up, and passes its answer on. @param model that it must serve, where any does; '' for any */
async function passPlain(
  gateway: ServedGateway,
  request: IncomingMessage,
  response: ServerResponse,
  tenant: string,
  body: Buffer,
  model = '',
): Promise<void> {
  const { limits, pool } = gateway;
  const lateAtMs = runningClock.nowMs() + limits.totalMs;
  const routable = pool.backends.filter(({ isRoutable }) => isRoutable);
  const serving = routable.filter(({ models }) => models.has(model));
  const up = serving.length === 0 ? routable : serving;
  const { method = 'GET', url = '/' } = request;
  for (const backend of up.slice(0, limits.retries + 1)) {
    const known = gateway.tenants === undefined ? undefined : tenant;
    const headers = forwardedHeaders(request, backend, known, gateway.forwardHeaders);
    if (method === 'POST') headers['content-length'] = body.length;
    let upstream: http.ClientRequest | undefined;
    const stop = (): void => void upstream?.destroy();
    response.once('close', stop);
    const cancel = runningClock.alarm(Math.max(0, lateAtMs - runningClock.nowMs()), stop, true);
    try {
      const open = (isFresh: boolean): http.ClientRequest => {
        upstream = backend.request(method, url, headers, isFresh);
        return upstream;
      };
      const answer = await beginAnswer(open, body, limits, false);
      sendHead(response, answer, backend.id);
      const ended = await passOn(answer, response, limits, new AnswerMeter(false));
      if (ended === 'whole') response.end();
      else response.destroy();
      return;
    } catch (error) {
      if (!(error instanceof AttemptFailed)) throw error;
      // a client that leaves ends the backend's connection too: that is not the backend's fault
      if (response.destroyed) return;
      if (error.kind === 'connection') pool.failed(backend, error.message);
    } finally {
      cancel();
      response.off('close', stop);
    }
  }
  refuse(gateway, response, 503, 'no_backend', 'No backend can take the request now.', 1);
}

/** The tenant of a key; undefined for a key that is not known. */
function tenantOf({ tenants }: ServedGateway, request: IncomingMessage): string | undefined {
  if (tenants === undefined) return '';
  const key = keyOf(request);
  return key === undefined ? undefined : tenants.get(key);
}

/**
 * The whole body; undefined where the client was told why not, or has left.
 * @param hold is told of bytes as they come @returns whether there is room for them
 */
async function bodyOf(
  request: IncomingMessage,
  response: ServerResponse,
  gateway: ServedGateway,
  hold: (bytes: number) => boolean,
): Promise<Buffer | undefined> {
  const mostBytes = gateway.limits.bodyBytes;
  const tooLong = (): undefined => {
    response.setHeader('connection', 'close');
    const message = `The body is longer than ${mostBytes} bytes. Send a shorter one.`;
    refuse(gateway, response, 413, 'body_too_large', message);
    return undefined;
  };
  if (Number(request.headers['content-length'] ?? 0) > mostBytes) return tooLong();
  const chunks: Buffer[] = [];
  let bytes = 0;
  try {
    for await (const chunk of request as AsyncIterable<Buffer>) {
      bytes += chunk.length;
      if (bytes > mostBytes) return tooLong();
      if (!hold(chunk.length)) {
        response.setHeader('connection', 'close');
        overloaded(gateway, response);
        return undefined;
      }
      chunks.push(chunk);
    }
  } catch {
    // the client left, or was too slow
    countMore(gateway.counts.refused, 'upload_broken');
    return undefined;
  }
  return chunks.length === 1 ? chunks[0] : Buffer.concat(chunks);
}
