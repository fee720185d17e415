/**
 * The servers behind a gateway: whether each is well, what it reports, and which instance of the control plane it is. A
 * server that began anew has an empty cache, so it is another instance from then on; numbers are never used again.
 *
 *     unseen --polled well--> up <--polled well-- down        draining: up, and nothing new goes there
 *                              +--a connection or two polls failed--^
 */

import http from 'node:http';
import https from 'node:https';
import { runningClock } from '../backends/runningClock.ts';
import { configError, TierKVError } from '../runtime/errors.ts';
import { oneOf } from '../runtime/options.ts';
import { CacheBook } from './blockNews.ts';
import type { KVEvent, KVEventSubscription } from './events/index.ts';
import type { PromptCutter } from './prompts.ts';
import type { ReportRecord, Tell } from './records.ts';
import {
  type BackendMetrics,
  beganAnew,
  METRICS_BYTES_MOST,
  movedNames,
  NAME_MOST,
  ownReport,
  readMetrics,
  reportOf,
} from './reports.ts';
import { type BackendRole, backendRoles } from './twoLegs.ts';

export interface BackendConfig {
  /** `http://host:port`, or https, perhaps with a path before `/v1`. */
  readonly url: string;
  /** Name in decisions and figures. Default: host and port. */
  readonly id?: string;
  /** Key that the gateway shows to it in place of the client's. */
  readonly apiKey?: string;
  /** What it computes: all of a request, prompts for others, or outputs of such prompts. Default `monolithic`. */
  readonly role?: BackendRole;
  /** Where it publishes KV events in vLLM's format, such as `tcp://10.0.0.7:5557`. Without it nothing is known of its cache but by what was sent there. */
  readonly events?: string;
  /** Where it sends missed events again. */
  readonly eventsReplay?: string;
}

interface PollConfig {
  /** Between two polls of a backend. */
  readonly intervalMs: number;
  /** Longest answer to one. */
  readonly timeoutMs: number;
  /** Blocks of each tier of a backend that does not say, HBM first. */
  readonly capacityBlocks: readonly number[];
  readonly blockTokens: number;
  readonly maxSequences: number;
  readonly cutter: PromptCutter;
  /** Which policies read how many blocks move between tiers; each server must report it then. */
  readonly movedReaders: readonly string[];
}

type BackendState = 'unseen' | 'up' | 'down';

/** Polls running that must fail before a backend that answered is down. */
const FAILURES_DOWN = 2;

export class Backend {
  readonly id: string;
  readonly role: BackendRole;
  readonly url: URL;
  readonly apiKey: string | undefined;
  readonly agent: http.Agent;
  state: BackendState = 'unseen';
  isDraining = false;
  /** Its number in the control plane, -1 while it has none. */
  instance = -1;
  /** Names of what it serves, each with the model that an adapter belongs to. */
  models: ReadonlyMap<string, { readonly parent: string }> = new Map();
  capacityBlocks: readonly number[] = [];
  /** Null for one without metrics, undefined before that is known. */
  metrics: BackendMetrics | null | undefined;
  report: ReportRecord | undefined;
  /** Time of the last good report in milliseconds of the process; 0 before. */
  reportedMs = 0;
  /** Requests that are with it, and milliseconds of their recent answers. */
  inFlight = 0;
  recentTtftMs = 0;
  recentTpotMs = 0;
  readonly eventSource: Pick<BackendConfig, 'events' | 'eventsReplay'>;
  /** Where its KV events come from; undefined without. */
  subscription: KVEventSubscription | undefined;
  /** What it said of its cache; undefined before, and for a server without KV events. */
  book: CacheBook | undefined;
  /** When it last said that all before counts for nothing, in milliseconds of the process. */
  clearedMs: number = -Infinity;
  readonly counts = { requests: 0, failures: 0, lies: 0, restarts: 0 };
  lastError = '';
  failures = 0;
  /** What a policy needs of it and it does not report; undefined for nothing. */
  lacks: string | undefined;

  /** @throws TKV_CONFIG for an address that cannot be one */
  constructor({ url, id, apiKey, role, events, eventsReplay }: BackendConfig) {
    if (!URL.canParse(url) || !/^https?:$/.test(new URL(url).protocol)) {
      throw configError('backend', `is "${url}"`, 'Write http://host:port.');
    }
    this.url = new URL(url);
    if (this.url.search !== '' || this.url.hash !== '' || this.url.username !== '') {
      throw configError('backend', `is "${url}"`, 'Write http://host:port, without a query or a name.');
    }
    if (/\/v1\/?$/.test(this.url.pathname)) {
      throw configError('backend', `is "${url}"`, 'Leave out /v1: the paths of clients begin with it.');
    }
    this.id = id ?? this.url.host;
    // it is a header of each answer, which takes no other letters
    if (!/^[\x21-\x7e]{1,128}$/.test(this.id)) {
      const remedy = 'Use up to 128 letters of ASCII without spaces.';
      throw configError('backend', `has the name ${JSON.stringify(this.id.slice(0, 128))}`, remedy);
    }
    this.role = oneOf<BackendRole>(`role of ${this.id}`, role ?? 'monolithic', backendRoles);
    this.apiKey = apiKey;
    this.eventSource = {
      ...(events === undefined ? {} : { events }),
      ...(eventsReplay === undefined ? {} : { eventsReplay }),
    };
    const options = { keepAlive: true, maxFreeSockets: 256, noDelay: true };
    this.agent = this.url.protocol === 'https:' ? new https.Agent(options) : new http.Agent(options);
  }

  get isUp(): boolean {
    return this.state === 'up';
  }

  /** What it serves; '' for several models, of which it is asked for all. */
  get model(): string {
    const bases = [...this.models].filter(([, { parent }]) => parent === '').map(([name]) => name);
    return bases.length === 1 ? bases[0] : '';
  }

  /** Whether new requests may go there. */
  get isRoutable(): boolean {
    return this.isUp && !this.isDraining;
  }

  /** Begins a request to it. @param path as the client wrote it @param isFresh on a connection of its own */
  request(
    method: string,
    path: string,
    headers: http.OutgoingHttpHeaders,
    isFresh: boolean = false,
  ): http.ClientRequest {
    const { protocol, hostname, port, pathname } = this.url;
    const open = protocol === 'https:' ? https.request : http.request;
    const base = pathname.replace(/\/$/, '');
    return open({
      hostname,
      port,
      method,
      path: `${base}${path}`,
      headers,
      agent: isFresh ? false : this.agent,
    });
  }

  /** A small text from it. Status 0 with a reason where there was no answer. */
  async get(path: string, timeoutMs: number): Promise<{ readonly status: number; readonly text: string }> {
    const headers = this.apiKey === undefined ? {} : { authorization: `Bearer ${this.apiKey}` };
    return new Promise((resolve) => {
      // polls are few: a connection of its own each, so that none is used that the backend has closed
      const request = this.request('GET', path, headers, true);
      const end = (status: number, text: string): void => {
        cancel();
        resolve({ status, text });
        request.destroy();
      };
      const late = (): void => end(0, `no answer to ${path} within ${timeoutMs} ms`);
      const cancel = runningClock.alarm(timeoutMs, late, true);
      request.on('error', (error) => end(0, error.message));
      request.on('response', (response) => {
        const chunks: Buffer[] = [];
        let bytes = 0;
        response.on('data', (chunk: Buffer) => {
          bytes += chunk.length;
          if (bytes > METRICS_BYTES_MOST)
            end(0, `the answer to ${path} is longer than ${METRICS_BYTES_MOST} bytes`);
          else chunks.push(chunk);
        });
        response.on('error', (error) => end(0, error.message));
        response.on('end', () => {
          cancel();
          resolve({ status: response.statusCode ?? 0, text: Buffer.concat(chunks).toString('utf8') });
        });
      });
      request.end();
    });
  }
}

export class BackendPool {
  readonly backends: readonly Backend[];
  readonly #config: PollConfig;
  readonly #tell: Tell;
  readonly #timers = new Map<Backend, NodeJS.Timeout>();
  readonly #byInstance = new Map<number, Backend>();
  #instances = 0;
  #closed = false;

  /** @throws TKV_CONFIG with the backend at fault */
  constructor(backends: readonly BackendConfig[], config: PollConfig, tell: Tell) {
    if (backends.length === 0)
      throw configError('backends', 'has no address', 'Name one: --backend http://host:port.');
    this.backends = backends.map((each) => new Backend(each));
    const ids = this.backends.map(({ id }) => id);
    const twice = ids.find((id, i) => ids.indexOf(id) !== i);
    if (twice !== undefined) throw configError('backends', `has ${twice} twice`, 'Name each backend once.');
    const has = (role: BackendRole): boolean => this.backends.some((each) => each.role === role);
    if (has('prefill') && !has('decode') && !has('monolithic')) {
      throw configError(
        'backends',
        'compute prompts alone, and none the outputs',
        'Name one with the role decode.',
      );
    }
    if (has('decode') && !has('prefill')) {
      throw configError(
        'backends',
        'has the role decode, and none prefill',
        'Name one with the role prefill.',
      );
    }
    this.#config = config;
    this.#tell = tell;
  }

  /**
   * Listens to KV events where there are any, polls all of them once, and from then on each in its turn.
   * @throws TKV_CONFIG for an address of events that cannot be one, or without the packages for them
   */
  async start(): Promise<void> {
    for (const backend of this.backends) await this.#listen(backend);
    await Promise.all(this.backends.map((backend) => this.#poll(backend)));
  }

  async close(): Promise<void> {
    this.#closed = true;
    await Promise.all(this.backends.map(({ subscription }) => subscription?.close()));
    for (const timer of this.#timers.values()) clearTimeout(timer);
    for (const { agent } of this.backends) agent.destroy();
  }

  /** Whether some compute prompts for others. */
  get hasRoles(): boolean {
    return this.backends.some(({ role }) => role !== 'monolithic');
  }

  /** The backend that a decision named; undefined where it is gone. */
  of(instance: number): Backend | undefined {
    return this.#byInstance.get(instance);
  }

  find(id: string): Backend | undefined {
    return this.backends.find((backend) => backend.id === id);
  }

  /** What a request's model is: an adapter of a model, or a model itself. */
  resolve(name: string): { readonly model: string; readonly adapter: string; readonly isKnown: boolean } {
    for (const { models } of this.backends) {
      const found = models.get(name);
      if (found === undefined) continue;
      return found.parent === ''
        ? { model: name, adapter: '', isKnown: true }
        : { model: found.parent, adapter: name, isKnown: true };
    }
    return { model: name, adapter: '', isKnown: false };
  }

  /** A connection to it failed: nothing goes there until a poll finds it well. */
  failed(backend: Backend, why: string): void {
    backend.counts.failures++;
    backend.lastError = why;
    this.#down(backend);
  }

  async #listen(backend: Backend): Promise<void> {
    const { events: endpoint, eventsReplay: replayEndpoint } = backend.eventSource;
    if (endpoint === undefined) return;
    const { subscribeKVEvents } = await import('./events/index.ts');
    const subscription = await subscribeKVEvents({ endpoint, replayEndpoint });
    backend.subscription = subscription;
    const read = async (): Promise<void> => {
      for await (const { events } of subscription) {
        if (this.#closed) return;
        this.news(backend, events);
      }
    };
    read().catch((error: unknown) => {
      backend.lastError = `its KV events cannot be read: ${error instanceof Error ? error.message : String(error)}`;
    });
  }

  /** It said something of its cache. */
  news(backend: Backend, events: readonly KVEvent[]): void {
    const { capacityBlocks, cutter } = this.#config;
    const capacity = backend.capacityBlocks.length > 0 ? backend.capacityBlocks : capacityBlocks;
    const book = (backend.book ??= new CacheBook(cutter, capacity));
    for (const event of events) {
      if (event.type === 'cleared' && event.medium === null) backend.clearedMs = performance.now();
      const inputs = book.take(event, backend.model, backend.instance);
      // before it is an instance, the book alone remembers
      if (backend.instance !== -1) for (const input of inputs) this.#tell(input);
    }
  }

  drain(backend: Backend, drains: boolean): void {
    if (backend.isDraining === drains) return;
    backend.isDraining = drains;
    if (backend.instance !== -1 && backend.isUp) {
      this.#tell({ in: 'routable', instance: backend.instance, routable: !drains });
    }
  }

  #down(backend: Backend): void {
    if (!backend.isUp) return;
    const was = backend.isRoutable;
    backend.state = 'down';
    if (was) this.#tell({ in: 'routable', instance: backend.instance, routable: false });
  }

  async #poll(backend: Backend): Promise<void> {
    try {
      const metrics = await this.#ask(backend);
      if (this.#closed) return;
      await this.#well(backend, metrics);
      backend.failures = 0;
    } catch (error) {
      // also a fault of ours: it ends no gateway, and the next poll comes
      backend.lastError = error instanceof Error ? error.message : String(error);
      if (++backend.failures >= FAILURES_DOWN || backend.state === 'unseen') this.#down(backend);
    }
    if (this.#closed) return;
    const timer = setTimeout(() => void this.#poll(backend), this.#config.intervalMs);
    timer.unref();
    this.#timers.set(backend, timer);
  }

  /**
   * Whether it is well, and its metrics: null for a server without, undefined where they cannot be true.
   * @throws TKV_IO where it is not well
   */
  async #ask(backend: Backend): Promise<BackendMetrics | null | undefined> {
    const { timeoutMs } = this.#config;
    let metrics: BackendMetrics | null | undefined = null;
    if (backend.metrics !== null) {
      const { status, text } = await backend.get('/metrics', timeoutMs);
      if (status === 0) throw unwell(backend, text);
      if (status === 200) {
        try {
          metrics = readMetrics(text, backend.id);
          return metrics;
        } catch (error) {
          if (!(error instanceof TierKVError)) throw error;
          backend.counts.lies++;
          backend.lastError = error.message;
          metrics = undefined;
        }
      } else if (status >= 500) throw unwell(backend, `GET /metrics answers ${status}`);
    }
    const { status, text } = await backend.get('/health', timeoutMs);
    if (status === 0 || status >= 500) throw unwell(backend, text || `GET /health answers ${status}`);
    return metrics;
  }

  async #well(backend: Backend, metrics: BackendMetrics | null | undefined): Promise<void> {
    const before = backend.metrics;
    const isAnew = before !== null && before !== undefined && metrics && beganAnew(before, metrics);
    if (isAnew) {
      backend.counts.restarts++;
      // what is known is of the process before, unless the new one has told so already
      if (backend.clearedMs <= backend.reportedMs) backend.book = undefined;
      this.#gone(backend);
    }
    if (metrics !== undefined) this.#requireMoved(backend, metrics);
    if (backend.instance === -1) {
      const models = await this.#modelsOf(backend);
      if (this.#closed) return;
      this.#begin(backend, metrics ?? null, models);
    } else if (!backend.isUp) {
      backend.state = 'up';
      if (backend.isRoutable) this.#tell({ in: 'routable', instance: backend.instance, routable: true });
    }
    if (metrics === undefined) return; // what was known stays, and grows old
    const { blockTokens, maxSequences } = this.#config;
    const { capacityBlocks, report: last } = backend;
    const known = before && last && !isAnew ? { metrics: before, report: last } : undefined;
    const report =
      metrics === null
        ? ownReport(
            {
              recentTtftUs: Math.round(backend.recentTtftMs * 1000),
              recentTpotUs: Math.round(backend.recentTpotMs * 1000),
              inFlight: backend.inFlight,
            },
            capacityBlocks,
            maxSequences,
          )
        : reportOf(metrics, known, capacityBlocks, blockTokens, maxSequences);
    backend.metrics = metrics;
    backend.report = report;
    backend.reportedMs = performance.now();
    this.#tell({ in: 'report', instance: backend.instance, report });
  }

  /** A policy that reads what a server does not tell would decide by zeros. @throws TKV_IO */
  #requireMoved(backend: Backend, metrics: BackendMetrics | null): void {
    const [reader] = this.#config.movedReaders;
    if (reader === undefined || (metrics !== null && metrics.moved !== null)) return;
    backend.lacks = `its /metrics have no ${movedNames.join(' and no ')}, and ${reader}`;
    throw unwell(backend, backend.lacks);
  }

  #begin(backend: Backend, metrics: BackendMetrics | null, models: Backend['models']): void {
    backend.models = models;
    const told = this.#config.capacityBlocks;
    backend.capacityBlocks =
      metrics !== null && metrics.gpuBlocks > 0 ? [metrics.gpuBlocks, ...told.slice(1)] : told;
    backend.instance = this.#instances++;
    this.#byInstance.set(backend.instance, backend);
    backend.state = 'up';
    backend.report = undefined;
    this.#tell({
      in: 'backend',
      instance: backend.instance,
      id: backend.id,
      model: backend.model,
      ...(backend.role === 'monolithic' ? {} : { role: backend.role }),
      capacityBlocks: backend.capacityBlocks,
    });
    for (const input of backend.book?.all(backend.instance) ?? []) this.#tell(input);
    if (backend.isRoutable) this.#tell({ in: 'routable', instance: backend.instance, routable: true });
  }

  #gone(backend: Backend): void {
    this.#byInstance.delete(backend.instance);
    this.#tell({ in: 'gone', instance: backend.instance });
    backend.instance = -1;
    backend.report = undefined;
  }

  async #modelsOf(backend: Backend): Promise<Backend['models']> {
    const { status, text } = await backend.get('/v1/models', this.#config.timeoutMs);
    if (status !== 200) throw unwell(backend, status === 0 ? text : `GET /v1/models answers ${status}`);
    const wrong = unwell(backend, 'GET /v1/models does not answer a list of models');
    let list: unknown;
    try {
      list = (JSON.parse(text) as { data?: unknown } | null)?.data;
    } catch {
      throw wrong;
    }
    if (!Array.isArray(list)) throw wrong;
    const models = new Map<string, { parent: string }>();
    for (const each of list.slice(0, 1024) as unknown[]) {
      const { id, parent } = (each ?? {}) as { id?: unknown; parent?: unknown };
      if (typeof id === 'string' && id.length <= NAME_MOST)
        models.set(id, { parent: typeof parent === 'string' ? parent : '' });
    }
    return models;
  }
}

/** A running mean that forgets: an eighth of what is new. */
export function mixed(before: number, now: number): number {
  return before === 0 ? now : before + (now - before) / 8;
}

function unwell({ id }: Backend, why: string): TierKVError {
  return new TierKVError('TKV_IO', `backend ${id}: ${why}. See whether it runs.`, { path: id });
}
