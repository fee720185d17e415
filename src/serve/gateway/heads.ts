/**
 * Heads of messages between a client, the gateway and a backend: which headers go on, and errors as the client's API has them.
 *
 * Of a client's headers those go on that are known to be a client's to say. A server may do what another one says: fetch KV
 * from an address (`x-prefiller-host-port`, `x-kv-cache-source-host-port`), serve by another engine (`x-data-parallel-host-port`),
 * believe a name (`x-tenant-id`, `x_tenant_id`) or a session (`cookie`), and new ones come with each release.
 */

import type http from 'node:http';
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { BegunAnswer } from './answers.ts';
import { errorBody, speaksMessages } from './apis.ts';
import type { Backend } from './backend.ts';

/** Headers that belong to one connection. */
const hopByHop: ReadonlySet<string> = new Set([
  'connection',
  'keep-alive',
  'proxy-authenticate',
  'proxy-authorization',
  'proxy-connection',
  'te',
  'trailer',
  'transfer-encoding',
  'upgrade',
  'expect',
  'host',
  'content-length',
]);

export function sendError(
  response: ServerResponse,
  status: number,
  code: string,
  message: string,
  retryAfterS?: number,
): void {
  if (response.headersSent || response.destroyed) {
    response.destroy();
    return;
  }
  const body = JSON.stringify(errorBody(speaksMessages(response.req), status, code, message));
  response.writeHead(status, {
    'content-type': 'application/json',
    'content-length': Buffer.byteLength(body),
    ...(retryAfterS === undefined ? {} : { 'retry-after': String(retryAfterS) }),
  });
  response.end(body);
}

/** Names that a message says belong to its connection alone. */
function ownNames(connection: string | undefined): ReadonlySet<string> {
  return new Set((connection ?? '').split(',').map((name) => name.trim().toLowerCase()));
}

/** Headers of a client that go on to a backend. What is not among them does not. */
const clientHeaders: ReadonlySet<string> = new Set([
  'accept',
  'accept-language',
  'content-type',
  'user-agent',
  'x-request-id',
  'idempotency-key',
  'traceparent',
  'tracestate',
  // of the APIs that servers speak
  'openai-organization',
  'openai-project',
  'openai-beta',
  'anthropic-version',
  'anthropic-beta',
  // what a gateway behind this one decides by
  'x-session-id',
  'x-slo-class',
  'x-slo-ttft-ms',
  'x-request-timeout-ms',
  // a page of another origin: the server says what it allows
  'origin',
  'access-control-request-method',
  'access-control-request-headers',
]);

/** The key that a client shows: OpenAI's clients as `authorization`, Anthropic's in either place; of two the first counts. */
export function keyOf({ headers }: IncomingMessage): string | undefined {
  const key = /^Bearer +(\S+) *$/i.exec(headers.authorization ?? '')?.[1] ?? headers['x-api-key'];
  return typeof key === 'string' ? key : undefined;
}

/** Keys of clients, where these are the servers' matter. */
const keyHeaders: ReadonlySet<string> = new Set(['authorization', 'api-key', 'x-api-key']);

/**
 * Headers of a client as they go on to a backend.
 * @param tenant where API keys are the gateway's matter; undefined where clients are one tenant
 * @param more names that the operator lets through too
 */
export function forwardedHeaders(
  request: IncomingMessage,
  { apiKey }: Backend,
  tenant: string | undefined,
  more: ReadonlySet<string>,
): http.OutgoingHttpHeaders {
  const headers: http.OutgoingHttpHeaders = {};
  const named = ownNames(request.headers.connection);
  for (const [name, value] of Object.entries(request.headers)) {
    const isKey = keyHeaders.has(name) && tenant === undefined && apiKey === undefined;
    const goesOn = clientHeaders.has(name) || more.has(name) || name.startsWith('x-stainless-') || isKey;
    if (goesOn && !named.has(name)) headers[name] = value;
  }
  // a client does not say for itself whose cache it may read
  if (tenant !== undefined) headers['x-tenant-id'] = tenant;
  if (apiKey !== undefined) {
    headers.authorization = `Bearer ${apiKey}`;
    // servers of Anthropic's API look for it in either place
    if (speaksMessages(request)) headers['x-api-key'] = apiKey;
  }
  // what is packed could be neither checked nor counted
  headers['accept-encoding'] = 'identity';
  return headers;
}

/** The head of a backend's answer, to a client. */
export function sendHead(response: ServerResponse, { status, headers }: BegunAnswer, backend: string): void {
  const named = ownNames(headers.connection);
  for (const [name, value] of Object.entries(headers)) {
    const goesOn = (!hopByHop.has(name) || name === 'content-length') && !named.has(name);
    if (value !== undefined && goesOn && name !== 'x-request-id') response.setHeader(name, value);
  }
  response.setHeader('x-tierkv-backend', backend);
  response.writeHead(status);
}

/** A header of one value, printable and short; '' where it is left out or is not that. */
export function headerText(request: IncomingMessage, name: string): string {
  const value = request.headers[name];
  return typeof value === 'string' && /^[\x21-\x7e]{1,128}$/.test(value) ? value : '';
}

/** How long a client waits in milliseconds, at most the gateway's own limit: for the beginning of its answer, and for all of it. */
export interface ClientPatience {
  readonly beginMs: number;
  readonly wholeMs: number;
}

/**
 * Timeouts that a client sends: in our header, in milliseconds, or in the header of OpenAI's clients, in seconds, which
 * limits only the time until the answer begins.
 */
export function patienceOf(request: IncomingMessage, mostMs: number): ClientPatience {
  const within = (ms: number): number => (ms > 0 ? Math.min(mostMs, Math.max(1, Math.ceil(ms))) : mostMs);
  const wholeMs = within(Number(headerText(request, 'x-request-timeout-ms')));
  return {
    wholeMs,
    beginMs: Math.min(wholeMs, within(1000 * Number(headerText(request, 'x-stainless-timeout')))),
  };
}
