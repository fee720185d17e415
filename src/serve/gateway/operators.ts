/**
 * The operators' port of a gateway: its figures, its backends, and their drain, at an address that is not the tenants'. With an
 * admin key each request must show it; without one, requests of this machine alone are answered, and a drain is refused.
 */

import http from 'node:http';
import type { Socket } from 'node:net';
import { isLoopback, OperatorAccess } from '../../observe/dashboard/operatorAccess.ts';
import { configError } from '../../runtime/errors.ts';
import { ClientConnections, discardBody } from './connections.ts';
import { listenAt, urlOf } from './server.ts';
import { GatewayStatus, type StatusSource } from './status.ts';

/** An operator sends no bodies, and waits for no answer for long. */
const REQUEST_MS_MOST = 10_000;
/** Operators and what scrapes for them. */
const CONNECTIONS_MOST = 256;

export class OperatorServer {
  readonly url: string;
  readonly #server: http.Server;
  readonly #connections: ClientConnections;

  private constructor(server: http.Server, connections: ClientConnections) {
    this.#server = server;
    this.#connections = connections;
    this.url = urlOf(server);
  }

  /** @throws TKV_CONFIG for an address that others reach, without a key; TKV_IO where the port cannot be had */
  static async listen(
    source: StatusSource,
    adminKey: string | undefined,
    host: string,
    port: number,
  ): Promise<OperatorServer> {
    if (adminKey === undefined && !isLoopback(host)) {
      throw configError(
        'operatorHost',
        `is ${host}, which other machines reach, without an admin key`,
        (name) => `Give ${name('adminKey')}, or leave the address out.`,
      );
    }
    const access = new OperatorAccess({ token: adminKey, what: 'This page of the gateway' });
    const pages = new GatewayStatus(source);
    const connections = new ClientConnections(REQUEST_MS_MOST, REQUEST_MS_MOST);
    const options = {
      requestTimeout: REQUEST_MS_MOST,
      headersTimeout: REQUEST_MS_MOST,
      connectionsCheckingInterval: REQUEST_MS_MOST / 4,
    };
    const server = http.createServer(options, (request, response) => {
      discardBody(request);
      const refusal = access.refusal(request);
      if (refusal !== undefined) {
        const { status, message } = refusal;
        response.writeHead(status, { 'content-type': 'application/json' });
        response.end(`${JSON.stringify({ error: { message, code: 'forbidden' } })}\n`);
        return;
      }
      pages.serve((request.url ?? '/').split('?')[0], request, response, adminKey !== undefined);
    });
    server.maxConnections = CONNECTIONS_MOST;
    server.on('connection', (socket) => connections.add(socket));
    server.on('clientError', (_error, socket) => {
      connections.end(socket as Socket, 'HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n');
    });
    await listenAt(server, host, port, 'operatorPort');
    return new OperatorServer(server, connections);
  }

  async close(): Promise<void> {
    const closed = new Promise<void>((resolve) => {
      this.#server.close(() => resolve());
    });
    this.#connections.destroyAll();
    await closed;
  }
}
