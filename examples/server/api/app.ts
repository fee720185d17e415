/** The HTTP side: OpenAI's API and Anthropic's Messages over one engine. */

import { randomUUID } from 'node:crypto';
import fs from 'node:fs';
import fastify, { type FastifyInstance, type FastifyReply, type FastifyRequest } from 'fastify';
import { isForeign, isLoopback } from '../../../src/observe/dashboard/operatorAccess.ts';
import type { Answer, ServedEngine } from '../engine/index.ts';
import { ChatTemplate, type Decoder } from '../engine/text/index.ts';
import type { AccessLog } from './accessLog.ts';
import { type AnswerName, ChunkBodies, type Kind, wholeBody } from './answerBodies.ts';
import { ApiError, answerBroken, asApiError } from './apiError.ts';
import { EventStream } from './eventStream.ts';
import { parseBody } from './fields.ts';
import type { Handoffs } from './handoffs.ts';
import { streamMessage, wholeMessage } from './messageBodies.ts';
import { countedTokens, messageRequest } from './messageRequest.ts';
import type { MetricsPage } from './metricsText.ts';
import { chatRequest, completionRequest, type ModelText, noSuchModel, type Wanted } from './requestBodies.ts';

export interface AppOptions {
  /** Name of the model in requests and answers. */
  readonly model: string;
  readonly metrics: MetricsPage;
  /** Tenant of each API key. Without keys, every client is the tenant `local`. */
  readonly apiKeys?: ReadonlyMap<string, string>;
  /** Header that names the tenant of each request, where a gateway alone reaches this server. Default: the key does. */
  readonly tenantHeader?: string;
  /** Requests that may wait; further ones are refused with 429. Default 256. */
  readonly maxWaiting?: number;
  /** Largest body of a request. Default 1 MiB. */
  readonly bodyBytesMax?: number;
  /** How long a client may leave a full stream unread. Default 60 s. */
  readonly patienceMs?: number;
  /** After this time without text a stream says that it is alive. Default 15 s. */
  readonly keepAliveMs?: number;
  /** What this server does with `kv_transfer_params`. Default: it refuses them. */
  readonly handoffs?: Handoffs;
  /** Receives errors that clients are not told of. */
  readonly log?: (line: string) => void;
  /** Where a line goes for each request that ended. Default: nowhere. */
  readonly accessLog?: AccessLog;
  /**
   * Origins whose pages may call the API and read its answers, or `*` for all. Default: none, and browsers
   * keep other pages away.
   */
  readonly allowedOrigins?: readonly string[];
}

/** Where Anthropic's clients call, and its errors have their shape. */
const messagesPath = '/v1/messages';
/** Headers in which clients of the two APIs look for the name of a request. */
const requestIdNames = ['x-request-id', 'request-id'] as const;
/** How long a request may take to come, headers and body. */
const requestMs = 60_000;

export function makeApp(engine: ServedEngine, options: AppOptions): FastifyInstance {
  const { model, apiKeys, maxWaiting = 256, bodyBytesMax = 2 ** 20, handoffs } = options;
  const { patienceMs = 60_000, keepAliveMs = 15_000, allowedOrigins = [] } = options;
  const log = options.log ?? (() => {});
  const text: ModelText = {
    name: model,
    tokenizer: engine.tokenizer,
    template: new ChatTemplate(engine.tokenizer.settings),
    contextTokens: engine.contextTokens,
    vocabulary: engine.vocabulary,
    without: engine.without,
    ...(handoffs === undefined ? {} : { legOf: (value: unknown) => handoffs.leg(value) }),
  };
  const created = Math.floor(Date.now() / 1000);
  const app = fastify({
    bodyLimit: bodyBytesMax,
    requestTimeout: requestMs,
    genReqId: () => `req_${randomUUID()}`,
    clientErrorHandler: answerBroken,
    frameworkErrors: (error, request, reply) => void sendError(error, request, reply), // such as a path that must be text and is not
    return503OnClosing: false, // the error below has the API's form
  });
  options.accessLog?.watch(app);
  let isStopping = false;
  app.addHook('preClose', (done) => {
    isStopping = true;
    done();
  });
  function sendError(error: unknown, { url, id }: FastifyRequest, reply: FastifyReply): FastifyReply {
    const known = asApiError(error);
    if (known.status >= 500 && !(error instanceof ApiError))
      log(error instanceof Error ? (error.stack ?? error.message) : String(error));
    if (known.status === 429) reply.header('retry-after', '1');
    const body = url.startsWith(messagesPath) ? { ...known.messageBody, request_id: id } : known.body;
    return reply.code(known.status).send(body);
  }

  app.addHook('onRequest', async (request, reply) => {
    for (const name of requestIdNames) reply.header(name, request.id);
    for (const [name, value] of Object.entries(crossOrigin(request, allowedOrigins)))
      reply.header(name, value);
    if (isStopping) {
      reply.header('connection', 'close');
      const message = 'The server is stopping, and takes no more requests. Send it later.';
      throw new ApiError(503, message, null, 'server_stopping');
    }
    const { method } = request;
    if (method === 'OPTIONS' && allowedOrigins.length > 0) return reply.code(204).send();
    if (!isShort(request, bodyBytesMax)) reply.header('connection', 'close');
    // Before anything of a body is read: a client without a key costs no more than the head of its request.
    if (method !== 'GET' && method !== 'HEAD') tenantOf(request);
    return undefined;
  });
  app.setErrorHandler((error, request, reply) => sendError(error, request, reply));
  app.setNotFoundHandler((request, reply) => {
    const message = `This server has no ${request.method} ${request.url}.`;
    return sendError(new ApiError(404, message), request, reply);
  });
  app.removeAllContentTypeParsers();
  app.addContentTypeParser('application/json', { parseAs: 'buffer' }, (_request, body, done) => {
    try {
      done(null, parseBody(body as Buffer));
    } catch (error) {
      done(error as ApiError);
    }
  });

  const tenantOf = (request: FastifyRequest): string => {
    const byKey = tenantOfKey(request);
    if (options.tenantHeader === undefined) return byKey;
    const named = request.headers[options.tenantHeader];
    if (typeof named === 'string' && named !== '') return named;
    const message = `The request has no ${options.tenantHeader}. Send it through the gateway of this server.`;
    throw new ApiError(401, message, null, 'no_tenant');
  };
  const tenantOfKey = (request: FastifyRequest): string => {
    if (apiKeys === undefined || apiKeys.size === 0) return 'local';
    const { authorization = '', 'x-api-key': own } = request.headers;
    const [, key = own] = /^Bearer +(\S+) *$/i.exec(authorization) ?? [];
    const tenant = typeof key === 'string' ? apiKeys.get(key) : undefined;
    if (tenant !== undefined) return tenant;
    throw new ApiError(
      401,
      'The API key is missing or unknown. Send authorization: Bearer KEY, or x-api-key: KEY.',
      null,
      'invalid_api_key',
    );
  };
  const hasTenants = (apiKeys?.size ?? 0) > 0 || options.tenantHeader !== undefined;
  const places = new WaitingPlaces(engine, maxWaiting, hasTenants);
  const submit = (request: FastifyRequest, wanted: Wanted): Answer[] => {
    const tenant = tenantOf(request);
    places.require(tenant, wanted.count);
    const answers = engine.submitSeveral({ ...wanted, tenant }, wanted.count);
    places.took(tenant, answers);
    options.accessLog?.note(request, { tenant, answers, stream: wanted.stream });
    return answers;
  };
  /** The requests are cancelled when their client leaves, or has left. */
  const submitUntilGone = (request: FastifyRequest, reply: FastifyReply, wanted: Wanted): Answer[] => {
    const running = submit(request, wanted);
    const cancel = (): void => {
      for (const each of running.toReversed()) engine.cancel(each); // the first would let the others begin
    };
    if (reply.raw.destroyed) cancel();
    reply.raw.on('close', cancel);
    return running;
  };
  const eventsOf = (request: FastifyRequest, reply: FastifyReply): EventStream => {
    reply.hijack();
    const ids = Object.fromEntries(requestIdNames.map((name) => [name, request.id]));
    const headers = { ...ids, ...crossOrigin(request, allowedOrigins) };
    return new EventStream(reply.raw, { headers, patienceMs, keepAliveMs });
  };
  const message = async (request: FastifyRequest, reply: FastifyReply): Promise<object | undefined> => {
    tenantOf(request);
    const wanted = messageRequest(request.body, text);
    const [running] = submitUntilGone(request, reply, wanted);
    const name = { id: `msg_${randomUUID().replaceAll('-', '')}`, model };
    if (wanted.stream) {
      await streamMessage(eventsOf(request, reply), name, running, wanted, cutError);
      return undefined;
    }
    const said = await running.text();
    const cut = cutError(running);
    if (cut !== undefined) throw cut;
    return wholeMessage(name, running, said, wanted);
  };
  const answer = async (
    kind: Kind,
    request: FastifyRequest,
    reply: FastifyReply,
  ): Promise<object | undefined> => {
    const tenant = tenantOf(request);
    const wanted = kind === 'chat' ? chatRequest(request.body, text) : completionRequest(request.body, text);
    const gone = new AbortController();
    reply.raw.on('close', () => gone.abort());
    const name: AnswerName = {
      id: `${kind === 'chat' ? 'chatcmpl' : 'cmpl'}-${randomUUID()}`,
      created: Math.floor(Date.now() / 1000),
      model,
    };
    const { leg, prompt } = wanted;
    if (handoffs !== undefined && leg === 'prefill') {
      const start = (): Answer => submit(request, wanted)[0];
      const { running, params, isWhole } = await handoffs.prefill(prompt, tenant, start, gone.signal);
      const cut = isWhole ? cutError(running) : undefined;
      if (cut !== undefined) throw cut;
      return { ...wholeBody(kind, name, [running], [''], engine.tokenizer), kv_transfer_params: params };
    }
    if (handoffs !== undefined && typeof leg === 'object') {
      await handoffs.receive(leg.decode, prompt, tenant, gone.signal);
    }
    const running = submitUntilGone(request, reply, wanted);
    if (!wanted.stream) {
      const texts = await Promise.all(running.map((each) => each.text()));
      const cut = running.map(cutError).find((error) => error !== undefined);
      if (cut !== undefined) throw cut;
      return wholeBody(kind, name, running, texts, engine.tokenizer);
    }
    await stream(eventsOf(request, reply), kind, name, running, wanted.includeUsage, engine.tokenizer);
    return undefined;
  };

  app.post('/v1/completions', (request, reply) => answer('completion', request, reply));
  app.post('/v1/chat/completions', (request, reply) => answer('chat', request, reply));
  app.post(messagesPath, message);
  app.post(`${messagesPath}/count_tokens`, (request) => {
    tenantOf(request);
    return { input_tokens: countedTokens(request.body, text) };
  });
  const description = { id: model, object: 'model', created, owned_by: 'tierkv' };
  app.get('/v1/models', (request) => {
    tenantOfKey(request);
    return { object: 'list', data: [description] };
  });
  app.get('/v1/models/*', (request) => {
    tenantOfKey(request);
    const { '*': name } = request.params as { '*': string };
    if (name === model) return description;
    throw noSuchModel(name, model);
  });
  app.get('/health', () => ({
    status: 'ok',
    running: engine.running,
    waiting: engine.size - engine.running,
  }));
  // A gateway before this server reads them. They name tenants: where there are any, by keys or by a header, the operators' port
  // alone has them, and the gateway is told where that is.
  if (!hasTenants) {
    app.get('/metrics', async ({ raw }, reply) => {
      if (isLoopback(raw.socket.remoteAddress ?? '') && isForeign(raw))
        throw new ApiError(403, "Metrics are not for clients of a proxy. Ask the operators' port.");
      return reply.type('text/plain; version=0.0.4; charset=utf-8').send(await options.metrics());
    });
  }
  app.get('/', (_request, reply) => {
    const page = fs.readFileSync(new URL('../chat.html', import.meta.url));
    return reply.type('text/html; charset=utf-8').send(page);
  });
  return app;
}

/**
 * Places of requests that wait. With tenants, one that waits already takes at most as many as it leaves free to others: a flood of
 * one takes half of the places, a flood of two a third each, and a further tenant always finds some.
 */
class WaitingPlaces {
  readonly #engine: ServedEngine;
  readonly #most: number;
  readonly #hasTenants: boolean;
  /** Answers that had not begun when it was looked last, with their tenants. */
  readonly #waiting: Map<Answer, string> = new Map();

  constructor(engine: ServedEngine, most: number, hasTenants: boolean) {
    this.#engine = engine;
    this.#most = most;
    this.#hasTenants = hasTenants;
  }

  /** @throws ApiError where `count` more requests of the tenant may not wait */
  require(tenant: string, count: number): void {
    const waiting = this.#engine.size - this.#engine.running;
    const own = this.#hasTenants ? this.of(tenant) : 0;
    const share = Math.ceil((this.#most - Math.max(0, waiting - own)) / 2);
    const isFull = waiting + count - 1 >= this.#most;
    if (!isFull && (own === 0 || own + count <= share)) return;
    const who = isFull ? `${this.#most} requests` : `${own} requests of this key`;
    const why = isFull ? '' : ', and the other places are for other keys';
    throw new ApiError(429, `${who} wait already${why}. Try again later.`, null, 'rate_limit_exceeded');
  }

  took(tenant: string, answers: readonly Answer[]): void {
    if (this.#hasTenants) for (const answer of answers) this.#waiting.set(answer, tenant);
  }

  /** Requests of the tenant that have not begun. */
  of(tenant: string): number {
    let count = 0;
    for (const [answer, its] of this.#waiting) {
      const waits = answer.finish === undefined && Number.isNaN(answer.times.firstStepMs);
      if (!waits) this.#waiting.delete(answer);
      else if (its === tenant) count++;
    }
    return count;
  }
}

/**
 * Whether a body may be skipped where its request is refused, so that the client reads the answer and the connection stays. One
 * that is longer, or of unknown length, is not taken: the connection ends with the answer.
 */
function isShort({ headers }: FastifyRequest, most: number): boolean {
  return headers['transfer-encoding'] === undefined && Number(headers['content-length'] ?? 0) <= most;
}

/** Headers by which a browser lets a page of another origin call the API and read what comes back. */
function crossOrigin(request: FastifyRequest, allowed: readonly string[]): Record<string, string> {
  const { origin } = request.headers;
  if (allowed.length === 0) return {};
  const isAllowed = origin !== undefined && (allowed.includes('*') || allowed.includes(origin));
  if (!isAllowed) return { vary: 'origin' };
  const headers = {
    vary: 'origin',
    'access-control-allow-origin': origin,
    'access-control-expose-headers': 'x-request-id, request-id, retry-after',
  };
  if (request.method !== 'OPTIONS') return headers;
  return {
    ...headers,
    'access-control-allow-methods': 'GET, POST, OPTIONS',
    'access-control-allow-headers':
      request.headers['access-control-request-headers'] ?? 'authorization, content-type',
    'access-control-max-age': '600',
  };
}

/** The error in place of an answer that was cut: a client would take its part for the whole. */
function cutError({ finish, failure }: Answer): ApiError | undefined {
  if (finish === 'stop' || finish === 'length') return undefined;
  if (failure !== undefined) {
    return new ApiError(failure.isPassing ? 503 : 500, failure.message, null, failure.code);
  }
  const message = 'The server stopped before this answer was whole. Send the request again.';
  return new ApiError(503, message, null, 'server_stopping');
}

async function stream(
  events: EventStream,
  kind: Kind,
  name: AnswerName,
  answers: readonly Answer[],
  includeUsage: boolean,
  words: Decoder,
): Promise<void> {
  const choices = answers.map((answer, i) => new ChunkBodies(kind, name, includeUsage, i, answer, words));
  for (const chunks of choices) {
    const first = chunks.first();
    if (first !== undefined) await events.send(first);
  }
  const cuts = await Promise.all(
    answers.map(async (answer, i) => {
      for await (const text of answer) await events.send(choices[i].text(text));
      const cut = cutError(answer);
      if (cut === undefined) await events.send(choices[i].last(answer));
      return cut;
    }),
  );
  const cut = cuts.find((error) => error !== undefined);
  if (cut !== undefined) {
    await events.send(cut.body);
  } else {
    if (includeUsage) await events.send(choices[0].usage(answers));
    await events.send('[DONE]');
  }
  events.end();
}
