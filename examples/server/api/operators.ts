/**
 * What belongs to the operator of the server, at a port of its own that tenants are not told of: metrics, the dashboard, and
 * what became of hand-offs. They name tenants and prompts' sizes. The rule of `tierkv/observe` says who may read them: this
 * machine, and no proxy on it, or a client with the token.
 */

import fastify, { type FastifyInstance } from 'fastify';
import { OperatorAccess } from '../../../src/observe/dashboard/operatorAccess.ts';
import { type Dashboard, dashboard } from '../../../src/observe/index.ts'; // in your project: 'tierkv/observe'
import type { ServedEngine } from '../engine/index.ts';
import { ApiError } from './apiError.ts';
import type { Handoffs } from './handoffs.ts';
import type { MetricsPage } from './metricsText.ts';

export interface OperatorOptions {
  readonly model: string;
  readonly metrics: MetricsPage;
  /** Asked of every client, where it is given. */
  readonly token: string | undefined;
  readonly handoffs: Handoffs | undefined;
}

/** How long a request may take to come. */
const requestMs = 10_000;

export function makeOperators(engine: ServedEngine, options: OperatorOptions): FastifyInstance {
  const { model, metrics, token, handoffs } = options;
  const app = fastify({ requestTimeout: requestMs, return503OnClosing: false });
  app.removeAllContentTypeParsers(); // it only reads
  const access = new OperatorAccess({ token, what: 'This page' });
  // from the start, so that a page that is opened late shows what was before
  const board: Promise<Dashboard> = dashboard(engine.cache.kv, {
    base: '/dashboard',
    title: model,
    ...(token === undefined ? {} : { token }),
  });
  board.catch(() => undefined); // without its packages the server serves, and a request for the page is told which are missing
  app.addHook('onRequest', async ({ raw, url }, reply) => {
    if (/^\/dashboard(\/|\?|$)/.test(url)) return undefined; // it asks the same rule, and takes the token in its address
    const refusal = access.refusal(raw);
    if (refusal === undefined) return undefined;
    reply.header('connection', 'close');
    return reply.code(refusal.status).send(new ApiError(refusal.status, refusal.message).body);
  });
  app.setNotFoundHandler(({ method, url }, reply) =>
    reply.code(404).send(new ApiError(404, `The operators' port has no ${method} ${url}.`).body),
  );
  app.get('/handoffs', () => handoffs?.describe() ?? { role: null });
  app.get('/metrics', async (_request, reply) =>
    reply.type('text/plain; version=0.0.4; charset=utf-8').send(await metrics()),
  );
  app.get('/dashboard*', async (request, reply) => {
    const page = await board;
    reply.hijack(); // the page answers by itself, some of its requests for hours
    page.handle(request.raw, reply.raw);
  });
  app.addHook('preClose', async () => (await board.catch(() => undefined))?.close());
  return app;
}
