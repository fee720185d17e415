/** Servers that do what a test says, behind a real gateway: for what no well server does. */

import http, { type IncomingMessage, type ServerResponse } from 'node:http';
import net, { type AddressInfo, type Socket } from 'node:net';
import type { GatewayConfig } from '../../../src/serve/gateway/config.ts';
import { Gateway } from '../../../src/serve/gateway/gateway.ts';
import { portOfOurOwn } from '../../ports.ts';

export type Handler = (request: IncomingMessage, response: ServerResponse, body: string) => void;

export const wellMetrics: string = [
  '# TYPE vllm:num_requests_running gauge',
  'vllm:num_requests_running{model_name="m"} 1',
  'vllm:num_requests_waiting{model_name="m"} 2',
  'vllm:kv_cache_usage_perc{model_name="m"} 0.25',
  'vllm:prefix_cache_queries_total{model_name="m"} 160',
  'vllm:prefix_cache_hits_total{model_name="m"} 80',
  'vllm:cache_config_info{num_gpu_blocks="400",block_size="16"} 1',
  '',
].join('\n');

export class TestBackend implements AsyncDisposable {
  /** Bodies that it was sent. */
  readonly seen: { readonly body: string; readonly headers: http.IncomingHttpHeaders }[] = [];
  /** Requests whose connection broke before they were answered. */
  aborted = 0;
  metrics: string | ((response: ServerResponse) => void) = wellMetrics;
  health: string | ((response: ServerResponse) => void) = 'ok';
  handler: Handler;
  models: unknown = { data: [{ id: 'm' }] };
  readonly #server: http.Server;
  readonly #sockets = new Set<Socket>();

  private constructor(handler: Handler) {
    this.handler = handler;
    this.#server = http.createServer((request, response) => {
      if (request.url === '/metrics') {
        if (typeof this.metrics === 'string') response.end(this.metrics);
        else this.metrics(response);
        return;
      }
      if (request.url === '/health') {
        if (typeof this.health === 'string') response.end(this.health);
        else this.health(response);
        return;
      }
      if (request.url === '/v1/models') return void response.end(JSON.stringify(this.models));
      const chunks: Buffer[] = [];
      request.on('data', (chunk: Buffer) => chunks.push(chunk));
      request.on('end', () => {
        const body = Buffer.concat(chunks).toString();
        this.seen.push({ body, headers: request.headers });
        response.on('close', () => {
          if (!response.writableFinished) this.aborted++;
        });
        this.handler(request, response, body);
      });
    });
    this.#server.on('connection', (socket) => {
      this.#sockets.add(socket);
      socket.on('close', () => this.#sockets.delete(socket));
    });
  }

  static async open(handler: Handler, wanted?: number): Promise<TestBackend> {
    const backend = new TestBackend(handler);
    const port = wanted ?? (await portOfOurOwn()); // it may be killed and come back
    await new Promise<void>((resolve, reject) => {
      backend.#server.once('error', reject);
      backend.#server.listen(port, '127.0.0.1', resolve);
    });
    return backend;
  }

  get url(): string {
    return `http://127.0.0.1:${this.port}`;
  }

  get port(): number {
    return (this.#server.address() as AddressInfo).port;
  }

  /** As a killed process: connections break, and nothing listens. */
  async kill(): Promise<void> {
    const closed = new Promise((resolve) => this.#server.close(resolve));
    for (const socket of this.#sockets) socket.destroy();
    await closed;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (this.#server.listening) await this.kill();
  }
}

export const answer = (text: string): string =>
  JSON.stringify({
    object: 'text_completion',
    choices: [{ index: 0, text, finish_reason: 'stop' }],
    usage: { prompt_tokens: 20, completion_tokens: 3, prompt_tokens_details: { cached_tokens: 16 } },
  });

/** Answers with what it was asked, so that answers cannot be taken for each other. */
export const echo: Handler = (_request, response, body) => {
  const { prompt } = JSON.parse(body) as { prompt: string };
  response.setHeader('content-type', 'application/json');
  response.end(answer(`echo ${prompt}`));
};

/** The same, in a stream where that is asked for. */
export const streamedEcho: Handler = (request, response, body) => {
  const { prompt, stream } = JSON.parse(body) as { prompt: string; stream?: boolean };
  if (stream !== true) return echo(request, response, body);
  response.writeHead(200, { 'content-type': 'text/event-stream' });
  response.end(`data: ${answer(`echo ${prompt}`)}\n\ndata: [DONE]\n\n`);
};

/** A server of bytes, for answers that are no HTTP. */
export async function rawServer(
  talk: (socket: Socket, head: string) => void,
): Promise<net.Server & AsyncDisposable> {
  const sockets = new Set<Socket>();
  const server = net.createServer((socket) => {
    sockets.add(socket);
    socket.on('error', () => {});
    socket.once('data', (data) => talk(socket, data.toString('latin1')));
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return Object.assign(server, {
    [Symbol.asyncDispose]: async (): Promise<void> => {
      for (const socket of sockets) socket.destroy();
      await new Promise((resolve) => server.close(resolve));
    },
  });
}

export async function gatewayOf(
  backends: readonly { readonly url: string }[],
  config: Partial<GatewayConfig> = {},
): Promise<Gateway> {
  return Gateway.open({
    backends: backends.map(({ url }, i) => ({ url, id: `b${i}` })),
    port: 0,
    pollMs: 20,
    adminKey: 'admin',
    ...config,
    limits: { graceMs: 2000, ...config.limits },
  });
}

export async function ask(
  gateway: Gateway,
  prompt: string,
  more: object = {},
  headers: Record<string, string> = {},
  signal?: AbortSignal,
): Promise<Response> {
  return fetch(`${gateway.url}/v1/completions`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', ...headers },
    body: JSON.stringify({ model: 'm', prompt, ...more }),
    ...(signal === undefined ? {} : { signal }),
  });
}

export async function textOf(response: Response): Promise<string> {
  const body = (await response.json()) as { choices?: { text: string }[] };
  if (body.choices === undefined) throw new Error(`${response.status}: ${JSON.stringify(body)}`);
  return body.choices[0].text;
}

/** Waits until it holds; throws before the test is out of time, so that it says what it waited for. */
export async function until(holds: () => boolean, what: string): Promise<void> {
  for (let i = 0; !holds(); i++) {
    if (i > 12_000) throw new Error(`never: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
}

/** A page of the operators' port, for the holder of its key. */
export async function operatorPage(gateway: Gateway, path: string, method = 'GET'): Promise<Response> {
  return fetch(gateway.operatorUrl + path, { method, headers: { authorization: 'Bearer admin' } });
}
