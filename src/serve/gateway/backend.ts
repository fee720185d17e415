/** One server behind a gateway: its address, what is known of it, and how it is asked. Its pool decides what becomes of it. */

import http from 'node:http';
import https from 'node:https';
import { runningClock } from '../../backends/runningClock.ts';
import { configError } from '../../runtime/errors.ts';
import * as is from '../../runtime/kinds.ts';
import type { CacheBook } from './blockNews.ts';
import type { KVEventSubscription } from './events/subscriber.ts';
import type { ReportRecord, RoutableWhy } from './records.ts';
import { type BackendMetrics, METRICS_BYTES_MOST } from './reports.ts';
import { Beginnings, type HeldAttempt, ServerStanding } from './standing.ts';
import { type BackendRole, backendRoles } from './twoLegs.ts';

/** One server behind a gateway. */
export interface BackendConfig {
  /** `http://host:port`, or https, perhaps with a path before `/v1`. */
  readonly url: string;
  /** Name in decisions and figures. Default: host and port. */
  readonly id?: string;
  /** Key that the gateway shows to it in place of the client's. */
  readonly apiKey?: string;
  /**
   * Work that the server does: all of a request, prompts for others, or outputs of such prompts. Default `monolithic`.
   */
  readonly role?: BackendRole;
  /** Where its metrics are, such as `http://10.0.0.7:9000/metrics`. Default: `/metrics` of its `url`. */
  readonly metrics?: string;
  /** Key that is shown there. Default: `apiKey`. */
  readonly metricsKey?: string;
  /** Where it publishes KV events in vLLM's format, such as `tcp://10.0.0.7:5557`. Without it nothing is known of its cache but by what was sent there. */
  readonly events?: string;
  /** Where it sends missed events again. */
  readonly eventsReplay?: string;
}

type BackendState = 'unseen' | 'up' | 'down';

export class Backend {
  readonly id: string;
  readonly role: BackendRole;
  readonly url: URL;
  readonly apiKey: string | undefined;
  readonly metricsUrl: string | undefined;
  readonly #metricsKey: string | undefined;
  readonly agent: http.Agent;
  state: BackendState = 'unseen';
  isDraining = false;
  readonly standing: ServerStanding = new ServerStanding();
  readonly beginnings: Beginnings = new Beginnings();
  /** Since when it is known to be silent, in milliseconds of the running clock; Infinity while it says anything. */
  silentMs: number = Infinity;
  /** The one request of its trial, while it is there. */
  tried: HeldAttempt | undefined;
  /** The last state that decisions were told. */
  toldRoutable = false;
  /** Since when it is down, in milliseconds of the running clock. */
  downMs: number = Infinity;
  polls = 0;
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
  /** The server's reports of its cache; undefined before the first, and for a server without KV events. */
  book: CacheBook | undefined;
  /** When it last said that all before counts for nothing, in milliseconds of the process. */
  clearedMs: number = -Infinity;
  readonly counts = { requests: 0, failures: 0, lies: 0, restarts: 0 };
  lastError = '';
  failures = 0;
  /** A figure that a policy needs and this server does not report; undefined where nothing is missing. */
  lacks: string | undefined;

  /** @throws TKV_CONFIG for an address that cannot be one */
  constructor({ url, id, apiKey, role, metrics, metricsKey, events, eventsReplay }: BackendConfig) {
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
    this.role = is.oneOf<BackendRole>(backendRoles).read(role ?? 'monolithic', `role of ${this.id}`);
    this.apiKey = apiKey;
    if (metrics !== undefined && !(URL.canParse(metrics) && /^https?:$/.test(new URL(metrics).protocol))) {
      throw configError('metrics', `of ${this.id} is "${metrics}"`, 'Write http://host:port/metrics.');
    }
    this.metricsUrl = metrics;
    this.#metricsKey = metricsKey;
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

  /** The model that it serves; '' for several models, since it is then asked for all. */
  get model(): string {
    const bases = [...this.models].filter(([, { parent }]) => parent === '').map(([name]) => name);
    return bases.length === 1 ? bases[0] : '';
  }

  /** Why new requests may not go there; undefined where they may. */
  get unroutable(): RoutableWhy | undefined {
    if (!this.isUp) return 'down';
    if (this.isDraining) return 'draining';
    if (this.standing.state === 'ejected') return 'ejected';
    return this.standing.state === 'onTrial' && this.tried !== undefined ? 'onTrial' : undefined;
  }

  /** Whether new requests may go there. */
  get isRoutable(): boolean {
    return this.unroutable === undefined;
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

  /** Begins a question at an address of its own. */
  #elsewhere(address: string): http.ClientRequest {
    const url = new URL(address);
    const key = this.#metricsKey ?? this.apiKey;
    const headers = key === undefined ? {} : { authorization: `Bearer ${key}` };
    return (url.protocol === 'https:' ? https : http).request(url, { headers, agent: false });
  }

  /** A small text from it, by a path or an address. Status 0 with a reason where there was no answer. */
  async get(path: string, timeoutMs: number): Promise<{ readonly status: number; readonly text: string }> {
    const headers = this.apiKey === undefined ? {} : { authorization: `Bearer ${this.apiKey}` };
    return new Promise((resolve) => {
      // polls are few: a connection of its own each, so that none is used that the backend has closed
      const request = path.startsWith('/') ? this.request('GET', path, headers, true) : this.#elsewhere(path);
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
