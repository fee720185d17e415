/** A candidate as a framework leaves it in a file. */

import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import path from 'node:path';
import { createInterface } from 'node:readline';
import type { Readable, Writable } from 'node:stream';
import { EvaluationService, type ServiceAnswer, type ServiceOptions } from '../../evolve/serve.ts';
import { defaultSummary } from '../../evolve/summary.ts';
import { readText } from '../../files/inputs.ts';
import { maxJsonValues, parseJson } from '../../runtime/boundedJson.ts';
import { configError, TierKVError } from '../../runtime/errors.ts';
import { type PoolLimits, SimulationEvaluator } from './evaluator.ts';
import { loadPlan } from './plans.ts';
import { openPolicy } from './run.ts';

/**
 * Parameters of `evaluate`: a bundle, or the text of one slot on top of the baseline. A file of any name but
 * `.wasm` and `.js` is a text: the JSON of a bundle or of a policy, or a Starlark program.
 * @throws TKV_IO where it cannot be read
 */
export function candidateOf(file: string, slot: string): object {
  const extension = path.extname(file);
  if (extension === '' || extension === '.wasm' || extension === '.js') {
    return { bundle: openPolicy(file, slot) };
  }
  const text = readText(file);
  return bundleOf(text) ?? { candidate: { [slot]: text } };
}

/** The bundle of a JSON text; undefined for a policy of one slot, and for what is no JSON. */
function bundleOf(text: string): object | undefined {
  let value: unknown;
  try {
    value = parseJson(text, (problem) => new TierKVError('TKV_INPUT', problem));
  } catch {
    return undefined;
  }
  return typeof value === 'object' && value !== null && !('type' in value) ? { bundle: value } : undefined;
}

// The same over HTTP, on this machine alone unless another host is named:
//
// - `POST /rpc`: a request as on stdio; `shutdown` calls off what runs and ends the server.
// - `POST /evaluate` with `{"candidate": {slot: text}, "example_id"?}`: score and side information, as GEPA's
//   evaluation server answers.
// - `GET /status`, `GET /task`: how it stands, and what a policy may do, as text.

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
      const message = `port ${port} of ${host} cannot be had: ${cause.message}. Name another with --http.`;
      reject(new TierKVError('TKV_IO', message, { field: '--http', cause }));
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
        body: { error: `there is no ${route}. See POST /rpc, POST /evaluate, GET /task` },
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
      body: { error: `there is no example ${JSON.stringify(example)} in the train suite` },
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
    return { json: parseJson(Buffer.concat(parts).toString('utf8'), error, maxJsonValues, 'is no JSON') };
  } catch (error) {
    return { status: 400, body: { error: error instanceof Error ? error.message : String(error) } };
  }
}

function send(response: ServerResponse, status: number, body: unknown): void {
  response.writeHead(status, { 'content-type': 'application/json' });
  response.end(`${JSON.stringify(body)}\n`);
}

//  `tierkv evaluate --serve`: the evaluator as a process that frameworks talk to.

export interface ServeOptions {
  /** Name or file of the plan. */
  readonly plan: string;
  /** Threads, time and heap of one simulation. */
  readonly limits: PoolLimits;
  readonly cacheFolder?: string;
  /** Over HTTP where given, 0 for any free port; else lines on stdio. */
  readonly http?: { readonly host: string; readonly port: number };
  /** Routing decisions of a candidate's worst case that are tried otherwise, for the summary. */
  readonly regrets: number;
}

/** A candidate may take as long as so many simulations at their limit. */
const CASES_IN_TURN = 4;

/** A summary of the case with the lowest score: what went wrong there, and why. */
function artifactsOf(
  evaluator: SimulationEvaluator,
  regrets: number,
): NonNullable<ServiceOptions['artifactsOf']> {
  return async (bundle, { cases = [], error }, suite) => {
    if (error !== undefined || cases.length === 0) return {};
    const worst = cases.reduce((a, b) => (b.score < a.score ? b : a));
    const explain = { summary: defaultSummary, regrets, level: 'minimal' } as const;
    const told = await evaluator.explain(bundle, suite, worst.id, explain);
    const summary = 'error' in told ? `There is no summary: ${told.error.message}` : told.explanation.summary;
    return { trace_summary: summary };
  };
}

function open({ plan, limits, cacheFolder, regrets }: ServeOptions): {
  evaluator: SimulationEvaluator;
  service: EvaluationService;
} {
  const evaluator = new SimulationEvaluator({
    plan: loadPlan(plan),
    limits,
    ...(cacheFolder === undefined ? {} : { cacheFolder }),
  });
  const service = new EvaluationService({
    evaluator,
    // its cases follow each other on the threads
    wallMs: limits.wallMs * CASES_IN_TURN,
    artifactsOf: artifactsOf(evaluator, regrets),
  });
  return { evaluator, service };
}

/** Ends with the input, `shutdown`, or the signal. */
export async function serve(options: ServeOptions, signal: AbortSignal): Promise<void> {
  const { evaluator, service } = open(options);
  try {
    const { http } = options;
    if (http === undefined) await serveLines(service, process.stdin, process.stdout, signal);
    else await overHttp(service, http, signal);
  } finally {
    await evaluator.close();
  }
}

/**
 * What SkyDiscover reads of one candidate, whatever becomes of it.
 * @throws TKV_CONFIG where not one candidate is named
 */
export async function answerOnce(
  options: ServeOptions,
  policies: readonly string[],
  slot: string,
  suite: string,
): Promise<Pick<ServiceAnswer, 'status' | 'combined_score' | 'metrics' | 'artifacts'>> {
  if (policies.length !== 1) {
    throw configError('policy', `is named ${policies.length} times`, 'Name the file of one candidate.');
  }
  const { evaluator, service } = open(options);
  try {
    const response = await service.handle({
      id: 1,
      method: 'evaluate',
      params: { ...candidateOf(policies[0], slot), suite: suite === 'test' ? 'validation' : suite },
    });
    if ('error' in response) throw configError('policy', response.error.message, 'See the message.');
    // `evaluate` is answered so
    const { status, combined_score, metrics, artifacts } = response.result as ServiceAnswer;
    return { status, combined_score, metrics, artifacts };
  } finally {
    await evaluator.close();
  }
}

async function overHttp(
  service: EvaluationService,
  { host, port }: { readonly host: string; readonly port: number },
  signal: AbortSignal,
): Promise<void> {
  const stop = new AbortController();
  const server = await serveHttp(service, host, port, () => stop.abort());
  const { port: bound } = server.address() as AddressInfo;
  process.stderr.write(`listening on http://${host}:${bound}\n`);
  const ended = AbortSignal.any([signal, stop.signal]);
  await new Promise<void>((resolve) => {
    if (ended.aborted) resolve();
    ended.addEventListener('abort', () => resolve(), { once: true });
  });
  service.close();
  server.closeAllConnections();
  await new Promise((resolve) => server.close(resolve));
}

// Requests and answers as lines of JSON. Answers come as they are ready, each with the id of its request.
// `shutdown`, or the end of the input, ends the loop once all that was asked is answered.

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
        request = parseJson(line, error, maxJsonValues, 'is no JSON');
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

export function isShutdown(request: unknown): boolean {
  return (
    typeof request === 'object' && request !== null && 'method' in request && request.method === 'shutdown'
  );
}
