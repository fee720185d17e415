/** The HTTP side of a gateway: clients come in, are known by their keys, and send bodies within limits. */

import http, { type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo, Socket } from 'node:net';
import { TierKVError } from '../runtime/errors.ts';
import { messageOf } from './answers.ts';
import { Passage, type ServedGateway, sendError } from './passage.ts';
import { GatewayStatus } from './status.ts';

export class GatewayServer {
  readonly url: string;
  readonly #server: http.Server;
  readonly #sockets: Set<Socket>;

  private constructor(server: http.Server, sockets: Set<Socket>) {
    this.#server = server;
    this.#sockets = sockets;
    const { address, port, family } = server.address() as AddressInfo;
    this.url = `http://${family === 'IPv6' ? `[${address}]` : address}:${port}`;
  }

  /** @throws TKV_IO where the port cannot be had */
  static async listen(gateway: ServedGateway, host: string, port: number): Promise<GatewayServer> {
    const { limits } = gateway;
    const sockets = new Set<Socket>();
    const server = http.createServer(
      {
        maxHeaderSize: limits.headerBytes,
        requestTimeout: limits.uploadMs,
        headersTimeout: Math.min(limits.uploadMs, 60_000),
        connectionsCheckingInterval: Math.min(30_000, Math.ceil(limits.uploadMs / 2)),
        keepAliveTimeout: 75_000,
      },
      (request, response) => {
        serve(gateway, request, response).catch((error: unknown) => {
          // a fault of ours: the client is told so, and the gateway goes on
          gateway.counts.failed++;
          sendError(response, 500, 'internal_error', `the gateway failed: ${messageOf(error)}`);
        });
      },
    );
    server.on('connection', (socket) => {
      sockets.add(socket);
      socket.on('close', () => sockets.delete(socket));
    });
    server.on('clientError', (error: NodeJS.ErrnoException, socket) => {
      if (!socket.writable) return;
      const tooLong = error.code === 'HPE_HEADER_OVERFLOW';
      socket.end(`HTTP/1.1 ${tooLong ? '431 Request Header Fields Too Large' : '400 Bad Request'}\r\n\r\n`);
    });
    await new Promise<void>((resolve, reject) => {
      server.once('error', (cause) => {
        const remedy = 'Name another port, or end the program that has it.';
        reject(
          new TierKVError('TKV_IO', `${host}:${port}: ${cause.message}. ${remedy}`, { field: 'port', cause }),
        );
      });
      server.listen(port, host, () => resolve());
    });
    return new GatewayServer(server, sockets);
  }

  /** Takes no more requests; what is under way has `graceMs`. */
  async close(graceMs: number): Promise<void> {
    const closed = new Promise<void>((resolve) => {
      this.#server.close(() => resolve());
    });
    this.#server.closeIdleConnections();
    const timer = setTimeout(() => {
      for (const socket of this.#sockets) socket.destroy();
    }, graceMs);
    await closed;
    clearTimeout(timer);
  }
}

async function serve(
  gateway: ServedGateway,
  request: IncomingMessage,
  response: ServerResponse,
): Promise<void> {
  const path = (request.url ?? '/').split('?')[0];
  if (path === '/health' || path === '/metrics' || path.startsWith('/gateway/')) {
    new GatewayStatus(gateway).serve(path, request, response);
    return;
  }
  if (!path.startsWith('/v1/')) {
    sendError(response, 404, 'not_found', `${path.slice(0, 100)} is not served here. Use a path below /v1/.`);
    return;
  }
  const tenant = tenantOf(gateway, request);
  if (tenant === undefined) {
    sendError(
      response,
      401,
      'invalid_api_key',
      'The API key is not known. Send one as "Authorization: Bearer KEY".',
    );
    return;
  }
  if (gateway.openRequests >= gateway.limits.requests) {
    sendError(
      response,
      429,
      'overloaded',
      'Too many requests wait here. Come again later.',
      gateway.retryAfterS(),
    );
    return;
  }
  const body = await bodyOf(request, response, gateway.limits.bodyBytes);
  if (body === undefined) return;
  await new Passage(gateway, request, response, path, body, tenant).run();
}

/** The tenant of a key; undefined for a key that is not known. */
function tenantOf({ tenants }: ServedGateway, { headers }: IncomingMessage): string | undefined {
  if (tenants === undefined) return '';
  const key = /^Bearer +(\S+) *$/i.exec(headers.authorization ?? '')?.[1];
  return key === undefined ? undefined : tenants.get(key);
}

/** The whole body; undefined where the client was told why not, or has left. */
async function bodyOf(
  request: IncomingMessage,
  response: ServerResponse,
  mostBytes: number,
): Promise<Buffer | undefined> {
  const tooLong = (): undefined => {
    response.setHeader('connection', 'close');
    sendError(
      response,
      413,
      'body_too_large',
      `The body is longer than ${mostBytes} bytes. Send a shorter one.`,
    );
    return undefined;
  };
  if (Number(request.headers['content-length'] ?? 0) > mostBytes) return tooLong();
  const chunks: Buffer[] = [];
  let bytes = 0;
  try {
    for await (const chunk of request as AsyncIterable<Buffer>) {
      bytes += chunk.length;
      if (bytes > mostBytes) return tooLong();
      chunks.push(chunk);
    }
  } catch {
    return undefined; // the client left, or was too slow
  }
  return chunks.length === 1 ? chunks[0] : Buffer.concat(chunks);
}
