/**
 * A gateway's reports: to clients whether it is well; to its operator its figures for Prometheus and its backends with
 * the age of each signal; and, for the holder of its key, the drain of a backend.
 */

import type { IncomingMessage, ServerResponse } from 'node:http';
import type { MetricSource } from '../../observe/metrics/metric.ts';
import { MetricText } from '../../observe/metrics/pageText.ts';
import type { BackendPool } from './backends.ts';
import type { ShadowCounts } from './shadowCounts.ts';

/** Figures of a gateway since its start. */
export interface GatewayCounts {
  requests: number;
  completed: number;
  /** Answers of backends that are errors, passed on. */
  backendErrors: number;
  /** Requests whose body is not a JSON object. */
  invalid: number;
  rejected: number;
  unroutable: number;
  failed: number;
  retries: number;
  clientsLeft: number;
  brokenAnswers: number;
  /** Chats that the model's template did not render, so that their keys are the gateway's own. Without a template none counts. */
  chatsByText: number;
  /** Prompts that a server counted otherwise than the tokenizer here: keys of their blocks may not be the server's. */
  promptsMiscounted: number;
  /** Requests whose prompt one server computed for another, and those where it failed to. */
  prefills: number;
  prefillsFailed: number;
  /** Decisions that a rule took in the place of a policy, by slot and kind. */
  readonly fallbacks: Map<string, number>;
  /** Answers whose reason for their end is not known, by that reason; they are in another count too. */
  readonly unknownEnds: Map<string, number>;
  /** Requests that were refused before they had a number, by the code of their error; they are in no other count. */
  readonly refused: Map<string, number>;
}

export function countMore(counts: Map<string, number>, name: string): void {
  counts.set(name, (counts.get(name) ?? 0) + 1);
}

export interface StatusSource extends MetricSource {
  readonly pool: BackendPool;
  readonly counts: GatewayCounts;
  readonly shadows: ShadowCounts;
  /** Prompts that were not found in a cache, by the reason. */
  readonly measures: { readonly misses: ReadonlyMap<string, object> };
  readonly openRequests: number;
  readonly openConnections: number;
  /** The policies in force, in words. */
  readonly policy: string;
  /** How prompts are cut: `tokenizer` or `text`. */
  readonly tokenisation: string;
  /** How chats become one text: `template` or `text`. */
  readonly chats: string;
  /** Whether prompts of two tenants share no block. */
  readonly tenantsApart: boolean;
  /** Notes on the policies for the operator. */
  readonly notes: readonly string[];
  /** Records that log and trace lost. */
  readonly losses: readonly string[];
}

/** Whether any backend can take requests. */
export function sendHealth({ pool }: Pick<StatusSource, 'pool'>, response: ServerResponse): void {
  const isWell = pool.backends.some(({ isRoutable }) => isRoutable);
  send(response, isWell ? 200 : 503, { status: isWell ? 'ok' : 'no backend' });
}

/** The pages of an operator. Who may see them is decided before (operators.ts). */
export class GatewayStatus {
  readonly #source: StatusSource;
  readonly #metrics: readonly MetricText[];

  constructor(source: StatusSource) {
    this.#source = source;
    this.#metrics = source.measured.map((each) => new MetricText(each, each.name, {}));
  }

  /** @param holdsKey whether the request shows the admin key */
  serve(path: string, request: IncomingMessage, response: ServerResponse, holdsKey: boolean): void {
    if (path === '/health') {
      sendHealth(this.#source, response);
      return;
    }
    if (path === '/metrics') {
      response.writeHead(200, { 'content-type': 'text/plain; version=0.0.4; charset=utf-8' });
      response.end(`${this.#metrics.map((each) => each.text()).join('\n')}\n`);
      return;
    }
    if (path === '/gateway/status' && request.method === 'GET') {
      send(response, 200, statusOf(this.#source));
      return;
    }
    const parts = /^\/gateway\/backends\/([^/]+)\/(drain|resume)$/.exec(path);
    const backend = parts === null ? undefined : this.#source.pool.find(decoded(parts[1]));
    if (parts !== null && request.method === 'POST' && backend !== undefined) {
      if (!holdsKey) {
        const message = 'The admin key is needed. Start with one, and send it.';
        send(response, 403, { error: { message, code: 'forbidden' } });
        return;
      }
      this.#source.pool.drain(backend, parts[2] === 'drain');
      send(response, 200, backendStatus(backend));
      return;
    }
    const known = this.#source.pool.backends.map(({ id }) => id).join(', ');
    const message = `There is GET /metrics, GET /gateway/status and POST /gateway/backends/ID/drain or resume. Backends: ${known}.`;
    send(response, 404, { error: { message, code: 'not_found' } });
  }
}

/** A name from a path; as it stands where it is not well written. */
function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

function send(response: ServerResponse, status: number, body: object): void {
  response.writeHead(status, { 'content-type': 'application/json' });
  response.end(`${JSON.stringify(body, null, 1)}\n`);
}

type ListedBackend = BackendPool['backends'][number];

function backendStatus(backend: ListedBackend): object {
  const { id, state, isDraining, instance, report, reportedMs, counts, inFlight, subscription, book } =
    backend;
  return {
    id,
    role: backend.role,
    state: isDraining && state === 'up' ? 'draining' : state,
    standing: backend.standing.state,
    ejections: backend.standing.ejections,
    instance,
    models: [...backend.models.keys()],
    capacityBlocks: backend.capacityBlocks,
    inFlight,
    signals: {
      source: backend.metrics === null ? 'what the gateway sees' : '/metrics',
      ageMs: reportedMs === 0 ? -1 : Math.round(performance.now() - reportedMs),
      ...report,
    },
    // each signal with its age: of what lies in its caches, when it last said something
    kvEvents:
      subscription === undefined
        ? null
        : {
            ageMs:
              subscription.counts.lastReceivedAtMs === null
                ? -1
                : Math.max(0, Date.now() - subscription.counts.lastReceivedAtMs),
            ...subscription.counts,
            lastNumber: String(subscription.counts.lastNumber ?? ''),
            ...book?.counts,
          },
    counts,
    lastError: backend.lastError,
  };
}

function statusOf(source: StatusSource): object {
  const { counts, pool, shadows, policy, tokenisation, chats, tenantsApart, notes, losses, openRequests } =
    source;
  const { openConnections, measures } = source;
  return {
    policy,
    tokenisation,
    chats,
    tenantsApart,
    openRequests,
    openConnections,
    ...counts,
    fallbacks: Object.fromEntries(counts.fallbacks),
    unknownEnds: Object.fromEntries(counts.unknownEnds),
    refused: Object.fromEntries(counts.refused),
    cacheMisses: [...measures.misses.values()],
    shadows: shadows.tallies,
    notes,
    losses,
    backends: pool.backends.map(backendStatus),
  };
}
