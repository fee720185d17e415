/**
 * Transports of the evaluation service: lines of JSON, and HTTP, by default for this machine alone. Both take the same
 * requests and give the same answers.
 */

import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import { createInterface } from 'node:readline';
import type { Readable, Writable } from 'node:stream';
import { maxJsonValues, parseJson } from '../../runtime/boundedJson.ts';
import { namedError, TierKVError } from '../../runtime/errors.ts';
import type { EvaluationService, ServiceAnswer } from '../evolve/serve.ts';

// HTTP:
//
// - `POST /rpc`: a request as on stdio; `shutdown` cancels running requests and ends the server.
// - `POST /evaluate` with `{"candidate": {slot: text}, "example_id"?}`: score and side information, as GEPA's
//   evaluation server answers.
// - `GET /status`: requests running and answered; `GET /task`: what a policy may do, as text.

const BODY_MAX = 4_000_000;

/**
 * @param stopped called once a request for `shutdown` is answered
 * @throws TKV_IO where the port cannot be had
 */
export async function serveHttp(
  service: EvaluationService,
  host: string,
  port: number,
  stopped: () => void = () => {},
): Promise<Server> {
  const server = createServer((request, response) => {
    answer(service, request).then(
      ({ status, body, isLast = false }) => {
        if (isLast) response.once('close', stopped);
        send(response, status, body);
      },
      (error: unknown) =>
        send(response, 500, { error: error instanceof Error ? error.message : String(error) }),
    );
  });
  await new Promise<void>((resolve, reject) => {
    server.once('error', (cause) => {
      const problem = `port ${port} of ${host} cannot be had: ${cause.message}`;
      reject(
        namedError(
          'TKV_IO',
          { field: 'http', cause },
          (name) => `${problem}. Name another with ${name('http')}.`,
        ),
      );
    });
    server.listen(port, host, resolve);
  });
  return server;
}

interface Reply {
  readonly status: number;
  readonly body: unknown;
  /** Whether the server ends after it. */
  readonly isLast?: boolean;
}

async function answer(service: EvaluationService, request: IncomingMessage): Promise<Reply> {
  const { pathname } = new URL(request.url ?? '/', 'http://localhost');
  const route = `${request.method} ${pathname}`;
  switch (route) {
    case 'GET /status':
      return reply(service, { method: 'status' });
    case 'GET /task':
      return reply(service, { method: 'describe' });
    case 'POST /rpc': {
      const body = await bodyOf(request);
      if ('status' in body) return body;
      return { status: 200, body: await service.handle(body.json), isLast: isShutdown(body.json) };
    }
    case 'POST /evaluate': {
      const body = await bodyOf(request);
      if ('status' in body) return body;
      return evaluateForGepa(service, body.json);
    }
    default:
      return {
        status: 404,
        body: { error: `${route} is not served. See POST /rpc, POST /evaluate, GET /task` },
      };
  }
}

async function reply(service: EvaluationService, request: object): Promise<Reply> {
  const response = await service.handle(request);
  return 'result' in response
    ? { status: 200, body: response.result }
    : { status: 400, body: { error: response.error.message } };
}

let asked = 0;

async function evaluateForGepa(service: EvaluationService, json: unknown): Promise<Reply> {
  const { candidate, example_id: example } = (json ?? {}) as { candidate?: unknown; example_id?: unknown };
  const params = { candidate, ...(example === undefined ? {} : { cases: [example] }) };
  const { status, body } = await reply(service, { id: `http-${++asked}`, method: 'evaluate', params });
  if (status !== 200) return { status, body };
  const result = body as ServiceAnswer;
  const [scenario] = result.per_scenario;
  if (example !== undefined && result.status === 'success' && scenario === undefined) {
    return {
      status: 400,
      body: { error: `example ${JSON.stringify(example)} is not in the train suite` },
    };
  }
  const score = example === undefined ? result.combined_score : (scenario?.score ?? 0);
  return { status: 200, body: { score, info: result, budget: null } };
}

async function bodyOf(request: IncomingMessage): Promise<Reply | { readonly json: unknown }> {
  const parts: Buffer[] = [];
  let size = 0;
  for await (const part of request) {
    size += (part as Buffer).length;
    if (size > BODY_MAX) return { status: 413, body: { error: `the body is over ${BODY_MAX} bytes` } };
    parts.push(part as Buffer);
  }
  try {
    const error = (problem: string): TierKVError => new TierKVError('TKV_INPUT', `the body ${problem}`);
    return { json: parseJson(Buffer.concat(parts).toString('utf8'), error, maxJsonValues, 'is not JSON') };
  } catch (error) {
    return { status: 400, body: { error: error instanceof Error ? error.message : String(error) } };
  }
}

function send(response: ServerResponse, status: number, body: unknown): void {
  response.writeHead(status, { 'content-type': 'application/json' });
  response.end(`${JSON.stringify(body)}\n`);
}

// Requests and answers as lines of JSON. Answers come in the order of their completion, each with the id of its request.
// `shutdown`, or the end of the input, ends the loop after the last answer.

const LINE_MAX = 4_000_000;

export async function serveLines(
  service: EvaluationService,
  input: Readable,
  output: Writable,
  signal?: AbortSignal,
): Promise<void> {
  const lines = createInterface({ input, crlfDelay: Infinity });
  const stop = (): void => lines.close();
  signal?.addEventListener('abort', stop, { once: true });
  const open = new Set<Promise<void>>();
  const write = (answer: unknown): void => {
    output.write(`${JSON.stringify(answer)}\n`);
  };
  const refuse = (message: string): void => write({ id: null, error: { code: 'TKV_INPUT', message } });
  try {
    for await (const line of lines) {
      if (line.trim() === '') continue;
      if (line.length > LINE_MAX) {
        refuse(`a request has more than ${LINE_MAX} characters. Send less.`);
        continue;
      }
      let request: unknown;
      try {
        const error = (problem: string): TierKVError => new TierKVError('TKV_INPUT', `a line ${problem}`);
        request = parseJson(line, error, maxJsonValues, 'is not JSON');
      } catch (error) {
        refuse(`${error instanceof Error ? error.message : String(error)}. Send one request a line.`);
        continue;
      }
      const task = service.handle(request).then(write);
      open.add(task);
      void task.finally(() => open.delete(task));
      if (isShutdown(request)) break;
    }
  } finally {
    signal?.removeEventListener('abort', stop);
    lines.close();
    if (signal?.aborted === true) service.close();
    await Promise.all(open);
  }
}

function isShutdown(request: unknown): boolean {
  return (
    typeof request === 'object' && request !== null && 'method' in request && request.method === 'shutdown'
  );
}
