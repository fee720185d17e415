/**
 * How long requests take, part by part: keys and lookup, wait for room, loads, prefill, decode. A request is followed from
 * the moment in which the runtime hears of it; what it waited before, in a queue of the server, is the server's to tell.
 * Tenants come by name, up to a bound: the others are one.
 */

import type { AskedRequest, RequestObserver, RequestWatch } from '../../embed/observability.ts';
import type { SequenceId } from '../../runtime/index.ts';
import type { CacheMeasures, SequenceStory } from './cacheMeasures.ts';
import { requestBounds, tokenBounds, ValueHistogram } from './histogram.ts';

/** Requests that ended and are kept for the dashboard. */
const RECENT_MOST = 200;

/** Stands for all tenants beyond the bound. */
export const OTHER_TENANTS = 'other';

/** The times of a request, in microseconds of the runtime's clock; -1 for what it did not come to. */
export interface RequestMoments {
  readonly id: string | undefined;
  readonly tenant: string;
  readonly promptTokens: number;
  readonly askedUs: number;
  hashedUs: number;
  placedUs: number;
  filledUs: number;
  prefilledUs: number;
  lastTokenUs: number;
  endedUs: number;
  /** Empty until it has ended. */
  how: string;
  cachedTokens: number;
  tokens: number;
  /** The value of `RequestMeasures.surroundings` at arrival. */
  readonly surroundings: unknown;
  /** The request's story in the cache; undefined where the cache was not followed. */
  story: SequenceStory | undefined;
}

/** Counts of one tenant's requests and tokens. */
export class TenantMeasures {
  requests = 0;
  promptTokens = 0;
  cachedTokens = 0;
  tokens = 0;
}

export class RequestMeasures implements RequestObserver {
  readonly timeToFirstToken: ValueHistogram = new ValueHistogram(requestBounds);
  readonly interTokenLatency: ValueHistogram = new ValueHistogram(requestBounds);
  readonly endToEnd: ValueHistogram = new ValueHistogram(requestBounds);
  readonly queueTime: ValueHistogram = new ValueHistogram(requestBounds);
  readonly loadTime: ValueHistogram = new ValueHistogram(requestBounds);
  readonly prefillTime: ValueHistogram = new ValueHistogram(requestBounds);
  readonly decodeTime: ValueHistogram = new ValueHistogram(requestBounds);
  /** Tokens of ended requests, a value each. */
  readonly promptLength: ValueHistogram = new ValueHistogram(tokenBounds);
  readonly answerLength: ValueHistogram = new ValueHistogram(tokenBounds);
  promptTokens = 0;
  cachedTokens = 0;
  tokens = 0;
  /** Requests that have asked and not ended. */
  open = 0;
  /** Open requests without room so far. */
  waiting = 0;
  /** Ended requests by how they ended. */
  readonly ended: Map<string, number> = new Map();
  /** Tenants by name; `OTHER_TENANTS` stands for all beyond the bound. */
  readonly tenants: Map<string, TenantMeasures> = new Map();
  /** Told of each request when it has ended. */
  readonly onEnd: Set<(request: Readonly<RequestMoments>) => void> = new Set();
  /** Asked when a request comes in: what it came in from. */
  surroundings: (() => unknown) | null = null;
  readonly #cache: CacheMeasures;
  readonly #tenantsMost: number;
  readonly #recent: RequestMoments[] = [];
  readonly #open: Set<RequestMoments> = new Set();

  /** @param tenantsMost tenants that are told apart */
  constructor(cache: CacheMeasures, tenantsMost: number) {
    this.#cache = cache;
    this.#tenantsMost = tenantsMost;
  }

  /** Requests that are open, then the ones that ended last, the newest first in both. */
  recent(most: number): readonly Readonly<RequestMoments>[] {
    const open = [...this.#open].reverse();
    return [...open.slice(0, most / 2), ...this.#recent.slice(-most).reverse()].slice(0, most);
  }

  asked({ id, tenant, promptTokens }: AskedRequest, nowUs: number): RequestWatch {
    const times: RequestMoments = {
      id,
      tenant: this.#nameOf(tenant),
      promptTokens,
      askedUs: nowUs,
      hashedUs: -1,
      placedUs: -1,
      filledUs: -1,
      prefilledUs: -1,
      lastTokenUs: -1,
      endedUs: -1,
      how: '',
      cachedTokens: 0,
      tokens: 0,
      surroundings: this.surroundings?.(),
      story: undefined,
    };
    this.open++;
    this.waiting++;
    this.promptTokens += promptTokens;
    const tenantMeasures = this.tenants.get(times.tenant) as TenantMeasures; // made by #nameOf
    tenantMeasures.requests++;
    tenantMeasures.promptTokens += promptTokens;
    this.#open.add(times);
    return new FollowedRequest(this, times, tenantMeasures);
  }

  storyOf(sequence: SequenceId): SequenceStory | undefined {
    return this.#cache.story(sequence);
  }

  /** The request of a `FollowedRequest` has ended. */
  keep(times: RequestMoments): void {
    this.#open.delete(times);
    this.#recent.push(times);
    if (this.#recent.length > 2 * RECENT_MOST) this.#recent.splice(0, RECENT_MOST);
    for (const told of this.onEnd) told(times);
  }

  #nameOf(tenant: string): string {
    if (this.tenants.has(tenant)) return tenant;
    const name = this.tenants.size < this.#tenantsMost ? tenant : OTHER_TENANTS;
    if (!this.tenants.has(name)) this.tenants.set(name, new TenantMeasures());
    return name;
  }
}

class FollowedRequest implements RequestWatch {
  readonly #all: RequestMeasures;
  readonly #times: RequestMoments;
  readonly #tenant: TenantMeasures;

  constructor(all: RequestMeasures, times: RequestMoments, tenant: TenantMeasures) {
    this.#all = all;
    this.#times = times;
    this.#tenant = tenant;
  }

  hashed(nowUs: number): void {
    this.#times.hashedUs = nowUs;
  }

  placed(nowUs: number): void {
    const times = this.#times;
    if (times.placedUs !== -1) return;
    times.placedUs = nowUs;
    this.#all.waiting--;
    this.#all.queueTime.observe((nowUs - times.askedUs) / 1e6);
  }

  filled(nowUs: number, cachedTokens: number, sequence: SequenceId): void {
    const times = this.#times;
    times.filledUs = nowUs;
    times.cachedTokens = cachedTokens;
    times.story = this.#all.storyOf(sequence);
    this.#all.cachedTokens += cachedTokens;
    this.#tenant.cachedTokens += cachedTokens;
    this.#all.loadTime.observe((nowUs - times.placedUs) / 1e6);
  }

  prefilled(nowUs: number): void {
    const times = this.#times;
    if (times.prefilledUs !== -1) return;
    times.prefilledUs = nowUs;
    times.lastTokenUs = nowUs;
    this.#countToken();
    this.#all.timeToFirstToken.observe((nowUs - times.askedUs) / 1e6);
    if (times.filledUs !== -1) this.#all.prefillTime.observe((nowUs - times.filledUs) / 1e6);
  }

  token(nowUs: number): void {
    const times = this.#times;
    if (times.prefilledUs === -1) {
      this.prefilled(nowUs);
      return;
    }
    this.#countToken();
    this.#all.interTokenLatency.observe((nowUs - times.lastTokenUs) / 1e6);
    times.lastTokenUs = nowUs;
  }

  ended(nowUs: number, how: string): void {
    const times = this.#times;
    if (times.endedUs !== -1) return;
    times.endedUs = nowUs;
    times.how = how;
    const all = this.#all;
    all.open--;
    if (times.placedUs === -1) all.waiting--;
    all.ended.set(how, (all.ended.get(how) ?? 0) + 1);
    all.endToEnd.observe((nowUs - times.askedUs) / 1e6);
    all.promptLength.observe(times.promptTokens);
    all.answerLength.observe(times.tokens);
    if (times.prefilledUs !== -1) all.decodeTime.observe((nowUs - times.prefilledUs) / 1e6);
    all.keep(times);
  }

  #countToken(): void {
    this.#times.tokens++;
    this.#all.tokens++;
    this.#tenant.tokens++;
  }
}
