/**
 * The servers behind a gateway: whether each is well, what it reports, and which instance of the control plane it is. A
 * server that began anew has an empty cache, so it is another instance from then on; numbers are never used again.
 *
 *     unseen --polled well--> up <--polled well-- down        draining: up, and nothing new goes there
 *                              +--a connection or two polls failed--^
 *
 * A server is well where its `/health` says so, or where it has no such page and lists its models. What its `/metrics` answer
 * says nothing of health: many servers have none. One that is well and does not serve is ejected (standing.ts).
 *
 * After a gap in what a server says, it may be another process at the same address. It counts as one, with an empty cache,
 * unless the time at which its process began says that it is the same.
 */

import { runningClock } from '../../backends/runningClock.ts';
import { configError, TierKVError } from '../../runtime/errors.ts';
import { Backend, type BackendConfig } from './backend.ts';
import { CacheBook } from './blockNews.ts';
import type { KVEvent } from './events/wire.ts';
import type { PromptCutter } from './prompts.ts';
import type { Tell } from './records.ts';
import {
  type BackendMetrics,
  beganAnew,
  isSameProcess,
  movedNames,
  NAME_MOST,
  ownReport,
  readMetrics,
  reportOf,
} from './reports.ts';
import type { Beginnings, HeldAttempt } from './standing.ts';
import type { BackendRole } from './twoLegs.ts';

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
  /** Whether it is asked which blocks of a prompt lie at a server. */
  readonly findsPrompts: boolean;
  /** Which policies read how many blocks move between tiers; each server must report it then. */
  readonly movedReaders: readonly string[];
}

/** Polls running that must fail before a backend that answered is down. */
const FAILURES_DOWN = 2;
/** Polls between two questions for the metrics of a server that had none. */
const POLLS_WITHOUT_METRICS = 20;
/** How long a server must have been down, or known to be silent, before what it holds is asked for elsewhere. */
const HELD_MS_MOST = 5000;
/** Between two looks at who is silent, who is to be tried again. */
const WATCH_MS = 250;

export class BackendPool {
  readonly backends: readonly Backend[];
  readonly #config: PollConfig;
  readonly #tell: Tell;
  readonly #timers = new Map<Backend, NodeJS.Timeout>();
  readonly #byInstance = new Map<number, Backend>();
  #instances = 0;
  #closed = false;
  #watch: NodeJS.Timeout | undefined;

  /** @throws TKV_CONFIG with the backend at fault */
  constructor(backends: readonly BackendConfig[], config: PollConfig, tell: Tell) {
    if (backends.length === 0)
      throw configError('backends', 'has no address', 'Name one, as http://host:port.');
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
    this.#watch = setInterval(() => this.#look(), WATCH_MS).unref();
  }

  async close(): Promise<void> {
    this.#closed = true;
    clearInterval(this.#watch);
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

  /** Resolves a request's model: an adapter of a model, or a model itself. */
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
    const { subscribeKVEvents } = await import('./events/subscriber.ts');
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
      // from now on it does not tell what its cache loses
      if (!this.#closed) this.news(backend, [{ type: 'cleared', reason: 'gap', medium: null }]);
    });
  }

  /** It said something of its cache. */
  news(backend: Backend, events: readonly KVEvent[]): void {
    const { capacityBlocks, cutter } = this.#config;
    const capacity = backend.capacityBlocks.length > 0 ? backend.capacityBlocks : capacityBlocks;
    const book = (backend.book ??= new CacheBook(cutter, capacity, this.#config.findsPrompts));
    for (const event of events) {
      if (event.type === 'cleared' && event.medium === null) backend.clearedMs = performance.now();
      const inputs = book.take(event, backend.model, backend.instance);
      // before it is an instance, the book alone remembers
      if (backend.instance !== -1) for (const input of inputs) this.#tell(input);
    }
  }

  drain(backend: Backend, drains: boolean): void {
    backend.isDraining = drains;
    this.#tellRoutable(backend);
  }

  //  Requests that it has.

  /** A request goes there. @param giveUp ends it, so that it is asked for elsewhere */
  begin(backend: Backend, giveUp: HeldAttempt['giveUp']): HeldAttempt {
    const attempt: HeldAttempt = { sentMs: runningClock.nowMs(), heardMs: -1, isGivenUp: false, giveUp };
    backend.counts.requests++;
    backend.inFlight++;
    backend.beginnings.attempts.add(attempt);
    if (backend.standing.state === 'onTrial') {
      backend.tried = attempt;
      this.#tellRoutable(backend);
    }
    return attempt;
  }

  /** A byte of its answer came. */
  heard(backend: Backend, attempt: HeldAttempt): void {
    backend.beginnings.heard(attempt, runningClock.nowMs());
    backend.silentMs = Infinity;
  }

  /** It has ended. @param isGood whether the server did what was asked; undefined where the client left */
  end(backend: Backend, attempt: HeldAttempt, isGood: boolean | undefined): void {
    if (!backend.beginnings.attempts.delete(attempt)) return;
    backend.inFlight--;
    if (backend.tried === attempt) backend.tried = undefined;
    const isPatienceOver =
      isGood === undefined &&
      backend.beginnings.hasWaited(attempt, this.#beginningsOfOthers(backend), runningClock.nowMs());
    const isWell = attempt.isGivenUp ? undefined : isPatienceOver ? false : isGood;
    if (isWell !== undefined) {
      backend.standing.ended(isWell);
      const hasFailed = !isWell && (backend.standing.state === 'onTrial' || backend.standing.isSuspect);
      if (hasFailed) this.#eject(backend, 'its answers fail');
    }
    this.#tellRoutable(backend);
  }

  /** A server fails at what another one has answered: it is the server, and not the request. */
  blame(backend: Backend): void {
    backend.standing.ended(false);
    if (backend.standing.state === 'onTrial' || backend.standing.isSuspect) {
      this.#eject(backend, 'it fails at what others answer');
    }
  }

  /** Other servers for the same work that can be sent requests. */
  others(backend: Backend): readonly Backend[] {
    return this.backends.filter(
      (other) => other !== backend && other.isRoutable && other.role === backend.role,
    );
  }

  #beginningsOfOthers(backend: Backend): readonly Beginnings[] {
    return this.others(backend).map(({ beginnings }) => beginnings);
  }

  /** Gives it nothing for a while, unless nothing would be left to send requests to. */
  #eject(backend: Backend, why: string): void {
    const isEjected = backend.standing.state === 'ejected';
    if (isEjected || this.others(backend).every(({ standing }) => standing.state !== 'trusted')) return;
    backend.standing.eject(runningClock.nowMs());
    backend.lastError ||= why;
    this.#tellRoutable(backend);
  }

  /**
   * Does the work that only time shows: servers that are silent or due for a trial, and KV that a server that is down
   * still holds.
   */
  #look(): void {
    const nowMs = runningClock.nowMs();
    for (const backend of this.backends) {
      const { standing, beginnings } = backend;
      if (standing.dueMs <= nowMs && backend.isUp) {
        standing.tryAgain(nowMs);
        backend.tried = undefined;
        this.#tellRoutable(backend);
      }
      const others = this.others(backend);
      if (backend.isUp && standing.state !== 'ejected') {
        const isTried = standing.state === 'onTrial' && backend.tried !== undefined;
        const known = this.#beginningsOfOthers(backend);
        const isSilent = beginnings.isSilent(known, nowMs, standing.sinceMs, isTried ? 1 : undefined);
        if (isSilent) this.#silent(backend);
      }
      if (others.length === 0) continue;
      if (!backend.isUp && nowMs - backend.downMs >= HELD_MS_MOST) {
        for (const attempt of [...beginnings.attempts]) {
          if (Math.max(attempt.sentMs, attempt.heardMs) < backend.downMs)
            attempt.giveUp('the server is down');
        }
      }
      if (nowMs - backend.silentMs >= HELD_MS_MOST) this.#giveUpUnheard(backend, backend.silentMs);
    }
  }

  /** It says nothing, and gets nothing. Where it said nothing to the request of its trial either, it is hung. */
  #silent(backend: Backend): void {
    const wasTried = backend.standing.state === 'onTrial';
    this.#eject(backend, 'it does not answer');
    if (backend.standing.state !== 'ejected') return;
    backend.silentMs = Math.min(backend.silentMs, backend.standing.sinceMs);
    if (wasTried) this.#giveUpUnheard(backend, Infinity);
  }

  /** Asks elsewhere for requests that it was sent before then and has not begun to answer. */
  #giveUpUnheard({ beginnings }: Backend, beforeMs: number): void {
    for (const attempt of [...beginnings.attempts]) {
      const isUnheard = attempt.heardMs === -1 && attempt.sentMs < beforeMs;
      if (isUnheard) giveUp(attempt, 'the server does not answer');
    }
  }

  /** Tells the decisions whether requests may go there, where that has changed. */
  #tellRoutable(backend: Backend): void {
    const { instance, unroutable } = backend;
    const routable = unroutable === undefined;
    if (instance !== -1 && routable !== backend.toldRoutable) {
      backend.toldRoutable = routable;
      this.#tell({ in: 'routable', instance, routable, ...(routable ? {} : { why: unroutable }) });
    }
    if (routable || unroutable === 'ejected') return;
    // an outlier is better than nothing
    const left = this.backends.filter(({ role }) => role === backend.role);
    if (left.some(({ isRoutable }) => isRoutable)) return;
    for (const other of left) {
      if (!other.isUp || other.isDraining || other.standing.state === 'trusted') continue;
      other.standing.restore(runningClock.nowMs());
      this.#tellRoutable(other);
    }
  }

  #down(backend: Backend): void {
    if (!backend.isUp) return;
    backend.state = 'down';
    backend.downMs = runningClock.nowMs();
    this.#tellRoutable(backend);
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
    let { status, text } = await backend.get('/health', timeoutMs);
    if (status === 0 || status >= 500) throw unwell(backend, text || `GET /health answers ${status}`);
    if (status >= 400) {
      ({ status, text } = await backend.get('/v1/models', timeoutMs));
      if (status === 0 || status >= 500) throw unwell(backend, text || `GET /v1/models answers ${status}`);
    }
    // one that had none may have been told to since
    if (backend.metrics === null && backend.polls++ % POLLS_WITHOUT_METRICS !== 0) return null;
    const { status: has, text: page } = await backend.get(backend.metricsUrl ?? '/metrics', timeoutMs);
    if (has !== 200) {
      if (backend.metrics === undefined || backend.metrics === null) return null;
      backend.lastError = page !== '' && has === 0 ? page : `GET /metrics answers ${has}`;
      return undefined;
    }
    try {
      return readMetrics(page, backend.id);
    } catch (error) {
      if (!(error instanceof TierKVError)) throw error;
      backend.counts.lies++;
      backend.lastError = error.message;
      return undefined;
    }
  }

  async #well(backend: Backend, metrics: BackendMetrics | null | undefined): Promise<void> {
    const before = backend.metrics;
    const isAnew = before !== null && before !== undefined && metrics && beganAnew(before, metrics);
    // a gap in its news: nothing says that it is the process of before, unless its time of birth does
    const isDoubted = backend.state === 'down' && !(before && metrics && isSameProcess(before, metrics));
    if ((isAnew || isDoubted) && backend.instance !== -1) {
      backend.counts.restarts++;
      // what is known is of the process before, unless the new one has told so already
      if (backend.clearedMs <= backend.reportedMs) {
        backend.book = undefined;
        backend.subscription?.resync();
      }
      this.#gone(backend);
    }
    if (metrics !== undefined) this.#requireMoved(backend, metrics);
    if (backend.instance === -1) {
      const models = await this.#modelsOf(backend);
      if (this.#closed) return;
      this.#begin(backend, metrics ?? null, models);
    } else if (!backend.isUp) {
      backend.state = 'up';
      backend.downMs = Infinity;
      this.#tellRoutable(backend);
    }
    if (metrics === undefined) return; // what was known stays, and grows old
    const { blockTokens, maxSequences } = this.#config;
    const { capacityBlocks, report: last } = backend;
    const known = before && last && !isAnew && !isDoubted ? { metrics: before, report: last } : undefined;
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
    backend.downMs = Infinity;
    backend.standing.restore(runningClock.nowMs());
    backend.silentMs = Infinity;
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
    this.#tellRoutable(backend);
  }

  #gone(backend: Backend): void {
    this.#byInstance.delete(backend.instance);
    this.#tell({ in: 'gone', instance: backend.instance });
    backend.toldRoutable = false;
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

function giveUp(attempt: HeldAttempt, why: string): void {
  attempt.isGivenUp = true;
  attempt.giveUp(why);
}

/** A running mean that forgets: an eighth of what is new. */
export function mixed(before: number, now: number): number {
  return before === 0 ? now : before + (now - before) / 8;
}

function unwell({ id }: Backend, why: string): TierKVError {
  return new TierKVError('TKV_IO', `backend ${id}: ${why}. See whether it runs.`, { path: id });
}
