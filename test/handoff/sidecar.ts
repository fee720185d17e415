/**
 * A proxy before a decode server, as llm-d puts one: a request that names a prefill server goes there first, with one
 * token and no stream, and what comes back as `kv_transfer_params` goes on to the decode server unread. Where the
 * prefill leg fails, the decode server answers alone.
 */

import { createServer, type IncomingMessage, request, type Server, type ServerResponse } from 'node:http';
import { portOfOurOwn } from '../ports.ts';

export const prefillerHeader = 'x-prefiller-host-port';

export interface SidecarHooks {
  /** Between the two legs. */
  readonly between?: () => void | Promise<void>;
  /** Changes what the decode leg gets. */
  readonly changed?: (params: unknown) => unknown;
}

export class Sidecar implements AsyncDisposable {
  readonly url: string;
  /** Requests whose prefill leg came to something, and requests that the decode server answered alone. */
  readonly counts = { handedOff: 0, alone: 0 };
  readonly hooks: SidecarHooks;
  readonly #server: Server;
  readonly #decode: URL;

  private constructor(server: Server, url: string, decode: string, hooks: SidecarHooks) {
    this.#server = server;
    this.url = url;
    this.#decode = new URL(decode);
    this.hooks = hooks;
  }

  static async start(decode: string, hooks: SidecarHooks = {}): Promise<Sidecar> {
    const port = await portOfOurOwn();
    const server = createServer((asked, answer) => void sidecar.#serve(asked, answer));
    const sidecar = new Sidecar(server, `http://127.0.0.1:${port}`, decode, hooks);
    await new Promise<void>((resolve) => server.listen(port, '127.0.0.1', resolve));
    return sidecar;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#server.closeAllConnections();
    await new Promise((resolve) => this.#server.close(resolve));
  }

  async #serve(asked: IncomingMessage, answer: ServerResponse): Promise<void> {
    const parts: Buffer[] = [];
    for await (const part of asked) parts.push(part as Buffer);
    const body = JSON.parse(Buffer.concat(parts).toString()) as Record<string, unknown>;
    const prefiller = asked.headers[prefillerHeader];
    const path = asked.url ?? '/';
    let params: unknown = null;
    if (typeof prefiller === 'string') params = await this.#prefill(`http://${prefiller}${path}`, body);
    await this.hooks.between?.();
    if (this.hooks.changed !== undefined) params = this.hooks.changed(params);
    this.counts[params === null ? 'alone' : 'handedOff']++;
    const { hostname, port } = this.#decode;
    const leg = JSON.stringify(params === null ? body : { ...body, kv_transfer_params: params });
    const headers = { 'content-type': 'application/json', 'content-length': Buffer.byteLength(leg) };
    const passed = request({ host: hostname, port, path, method: 'POST', headers, agent: false }, (from) => {
      answer.writeHead(from.statusCode ?? 502, from.headers);
      from.pipe(answer);
    });
    passed.on('error', () => answer.destroy());
    passed.end(leg);
  }

  async #prefill(url: string, body: Record<string, unknown>): Promise<unknown> {
    const { stream_options: _dropped, ...rest } = body;
    const leg = {
      ...rest,
      stream: false,
      max_tokens: 1,
      max_completion_tokens: 1,
      kv_transfer_params: {
        do_remote_decode: true,
        do_remote_prefill: false,
        remote_engine_id: null,
        remote_block_ids: null,
        remote_host: null,
        remote_port: null,
      },
    };
    try {
      const headers = { 'content-type': 'application/json', connection: 'close' };
      const answer = await fetch(url, { method: 'POST', headers, body: JSON.stringify(leg) });
      if (!answer.ok) return null;
      return ((await answer.json()) as { kv_transfer_params?: unknown }).kv_transfer_params ?? null;
    } catch {
      return null; // it is not there now
    }
  }
}
