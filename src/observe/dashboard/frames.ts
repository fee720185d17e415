/**
 * Frames of the dashboard, moment by moment. A frame has totals and states of one moment, so that any two of them give
 * the rates between them, and a frame that is missing costs nothing but detail; beside that it has the events since the
 * frame before it: evictions, returns, requests that ended. Live, a clock asks for frames; from a log, the log's own
 * time does.
 */

import { tierName } from '../../runtime/index.ts';
import type { BlockNews, CacheMeasures, SequenceStory } from '../metrics/cacheMeasures.ts';
import type { ValueHistogram } from '../metrics/histogram.ts';
import type { RequestMeasures, RequestMoments } from '../metrics/requestMeasures.ts';

/** Seconds without a use: below the first a block is hot, below the second warm, else cold. */
const temperatureSeconds: readonly [hot: number, warm: number] = [10, 60];

/** Slots of a tier that are looked at for a frame: enough for shares within two percent, some 50 us. */
const SLOTS_MOST = 2048;
/** Most events of each kind that a frame has since the one before. */
const NEWS_MOST = 16;
/** Tenants that a tier shows by name. */
const TENANTS_SHOWN = 8;

interface FrameTier {
  readonly capacity: number;
  readonly resident: number;
  readonly held: number;
  readonly cached: number;
  readonly leaving: number;
  readonly blocks: number;
  /** Shares of the blocks that lookups find there: hot, warm, cold. */
  readonly temperatures: readonly [number, number, number];
  /** Bytes by tenant, the largest first; what is left belongs to others. */
  readonly tenants: readonly (readonly [tenant: string, bytes: number])[];
  readonly hits: number;
  readonly evicted: number;
  readonly dropped: number;
  readonly returned: number;
  /** Counts of gaps between uses, by bucket. */
  readonly gaps: readonly number[];
}

interface FrameLink {
  readonly from: number;
  readonly to: number;
  readonly bytes: number;
  readonly busySeconds: number;
  readonly inFlight: number;
}

interface FrameRequest {
  readonly id: string;
  readonly tenant: string;
  /** When it came in, in seconds. */
  readonly at: number;
  readonly promptTokens: number;
  readonly blocks: number;
  readonly foundByTier: readonly number[];
  readonly recomputed: number;
  readonly returned: number;
  /** Milliseconds of its parts: lookup, wait for room, loads, prefill, decode; -1 for what it did not come to. */
  readonly parts: readonly number[];
  readonly totalMs: number;
  readonly how: string;
}

interface FrameBlock {
  readonly at: number;
  readonly tier: number;
  readonly key: string;
  readonly tenant: string;
  /** Evicted: since its last use. Returned: since it was dropped. Seconds; -1 where it is not known. */
  readonly seconds: number;
  readonly wentTo: number;
}

export interface DashboardFrame {
  /** Seconds of the runtime's clock. */
  readonly at: number;
  readonly tiers: readonly FrameTier[];
  readonly links: readonly FrameLink[];
  readonly misses: number;
  readonly choseLoad: number;
  readonly choseRecompute: number;
  readonly running: number;
  readonly waiting: number;
  readonly ended: number;
  readonly tokens: number;
  readonly evictions: readonly FrameBlock[];
  readonly returns: readonly FrameBlock[];
  readonly requests: readonly FrameRequest[];
}

/** The constant part of the dashboard. */
export interface DashboardHead {
  readonly mode: 'live' | 'log';
  readonly title: string;
  /** A log to which lines are still added. */
  readonly isWritten?: boolean;
  readonly tiers: readonly string[];
  readonly policy: string;
  /** Upper bounds of the buckets of gaps, in seconds. */
  readonly gapBounds: readonly number[];
  readonly temperatureSeconds: readonly [number, number];
  /** Measured limits of links in bytes a second, such as `ddrToHbm`; the page takes the best it has seen for others. */
  readonly limits: Readonly<Record<string, number>>;
  /** A sentence on what is not shown; empty where everything is. */
  readonly note: string;
}

/** Source of frames. A log has no requests, only sequences. */
interface FrameSource {
  readonly cache: CacheMeasures;
  readonly requests?: RequestMeasures | undefined;
  queue(): { readonly running: number; readonly waiting: number };
  owners(): ReadonlyMap<string, number>;
}

export function headOf(
  cache: CacheMeasures,
  head: Pick<DashboardHead, 'mode' | 'title' | 'limits' | 'note' | 'isWritten'>,
): DashboardHead {
  const { manager } = cache;
  const { policy, ...parameters } = manager.config.eviction;
  const given = Object.entries(parameters).map(([name, value]) => `${name} ${String(value)}`);
  return {
    ...head,
    tiers: manager.inspect.tiers.map((tier) => tierName(tier)),
    policy: [policy, ...given].join(', '),
    gapBounds: cache.tiers[0].reuseGapSeconds.bounds,
    temperatureSeconds,
  };
}

export class FrameMaker {
  readonly #source: FrameSource;
  #evictions = 0;
  #returns = 0;
  readonly #ended: FrameRequest[] = [];
  readonly #stop: () => void;

  constructor(source: FrameSource) {
    this.#source = source;
    const { cache, requests } = source;
    this.#evictions = cache.evictions.total;
    this.#returns = cache.returns.total;
    if (requests === undefined) {
      const closed = (story: SequenceStory): void =>
        this.#keep(fromStory(story, this.#tenantOf(story.owner)));
      cache.onClose.add(closed);
      this.#stop = () => void cache.onClose.delete(closed);
    } else {
      const ended = (request: Readonly<RequestMoments>): void => this.#keep(fromRequest(request, cache));
      requests.onEnd.add(ended);
      this.#stop = () => void requests.onEnd.delete(ended);
    }
  }

  close(): void {
    this.#stop();
  }

  /** The frame of this moment. @param nowUs of the manager's clock */
  frame(nowUs: number): DashboardFrame {
    const { cache, requests } = this.#source;
    const named = this.#largestTenants();
    const { running, waiting } = this.#source.queue();
    const evictions = cache.evictions.newest(Math.min(NEWS_MOST, cache.evictions.total - this.#evictions));
    const returns = cache.returns.newest(Math.min(NEWS_MOST, cache.returns.total - this.#returns));
    this.#evictions = cache.evictions.total;
    this.#returns = cache.returns.total;
    return {
      at: nowUs / 1e6,
      tiers: cache.tiers.map((_, position) => this.#tier(position, named)),
      links: cache.links.map((link) => ({
        from: link.from,
        to: link.to,
        bytes: link.bytes,
        busySeconds: link.busyUs(nowUs) / 1e6,
        inFlight: link.inFlight,
      })),
      misses: cache.missBlocks,
      choseLoad: cache.choseLoad,
      choseRecompute: cache.choseRecompute,
      running,
      waiting,
      ended:
        requests === undefined
          ? cache.closed
          : [...requests.ended.values()].reduce((sum, each) => sum + each, 0),
      tokens: requests?.tokens ?? 0,
      evictions: evictions.map((news) => this.#block(news)),
      returns: returns.map((news) => this.#block(news)),
      requests: this.#ended.splice(0),
    };
  }

  #keep(request: FrameRequest): void {
    this.#ended.push(request);
    if (this.#ended.length > NEWS_MOST) this.#ended.shift();
  }

  #tier(position: number, named: readonly (readonly [string, number])[]): FrameTier {
    const { manager, tiers } = this.#source.cache;
    const usage = manager.inspect.usage(position);
    const measures = tiers[position];
    return {
      capacity: usage.capacityBytes,
      resident: usage.residentBytes,
      held: usage.heldBytes,
      cached: usage.cachedBytes,
      leaving: usage.leavingBytes,
      blocks: usage.slots.ready,
      temperatures: this.#temperatures(position),
      tenants: named
        .map(([tenant, owner]) => [tenant, manager.inspect.ownedBytes(owner, position)] as const)
        .filter(([, bytes]) => bytes > 0)
        .sort(([, a], [, b]) => b - a),
      hits: measures.hitBlocks,
      evicted: measures.evictedBlocks,
      dropped: measures.droppedBlocks,
      returned: measures.returnedBlocks,
      gaps: countsOf(measures.reuseGapSeconds),
    };
  }

  /** Looks at slots that lie equally far apart. */
  #temperatures(position: number): readonly [number, number, number] {
    const { cache } = this.#source;
    const { manager } = cache;
    const { slotLimit } = manager.config.tiers[position].shape;
    const stride = Math.max(1, Math.ceil(slotLimit / SLOTS_MOST));
    const counts: [number, number, number] = [0, 0, 0];
    const [hot, warm] = temperatureSeconds;
    for (let slot = 0; slot < slotLimit; slot += stride) {
      const content = manager.inspect.contentIn(position, slot);
      if (content === -1) continue;
      const idleUs = cache.idleUs(content);
      counts[idleUs < 0 || idleUs >= warm * 1e6 ? 2 : idleUs >= hot * 1e6 ? 1 : 0]++;
    }
    const all = counts[0] + counts[1] + counts[2];
    return all === 0 ? [0, 0, 0] : [counts[0] / all, counts[1] / all, counts[2] / all];
  }

  /** The largest tenants over all tiers together. */
  #largestTenants(): readonly (readonly [string, number])[] {
    const { cache } = this.#source;
    const owners = [...this.#source.owners()];
    if (owners.length <= TENANTS_SHOWN) return owners;
    const bytes = ([, owner]: readonly [string, number]): number =>
      cache.tiers.reduce((sum, _, position) => sum + cache.manager.inspect.ownedBytes(owner, position), 0);
    return owners
      .map((each) => [each, bytes(each)] as const)
      .sort(([, a], [, b]) => b - a)
      .slice(0, TENANTS_SHOWN)
      .map(([each]) => each);
  }

  #tenantOf(owner: number): string {
    for (const [tenant, number] of this.#source.owners()) if (number === owner) return tenant;
    return owner === 0 ? '' : `owner ${owner}`;
  }

  #block({ atUs, tier, key, owner, idleUs, wentTo }: BlockNews): FrameBlock {
    const seconds = idleUs < 0 ? -1 : idleUs / 1e6;
    return { at: atUs / 1e6, tier, key: key.slice(0, 12), tenant: this.#tenantOf(owner), seconds, wentTo };
  }
}

function countsOf({ counts }: ValueHistogram): number[] {
  return Array.from(counts);
}

function fromStory(story: SequenceStory, tenant: string): FrameRequest {
  return {
    id: `sequence ${story.sequence}`,
    tenant,
    at: story.openedUs / 1e6,
    promptTokens: -1,
    blocks: story.blocks,
    foundByTier: [...story.foundByTier],
    recomputed: story.recomputed,
    returned: story.returned,
    parts: [],
    totalMs: (story.closedUs - story.openedUs) / 1e3,
    how: 'closed',
  };
}

function fromRequest(request: Readonly<RequestMoments>, cache: CacheMeasures): FrameRequest {
  const { askedUs, hashedUs, placedUs, filledUs, prefilledUs, endedUs, story } = request;
  const part = (from: number, to: number): number => (from < 0 ? -1 : ((to < 0 ? endedUs : to) - from) / 1e3);
  return {
    id: request.id ?? `sequence ${story?.sequence ?? '-'}`,
    tenant: request.tenant,
    at: askedUs / 1e6,
    promptTokens: request.promptTokens,
    blocks: story?.blocks ?? 0,
    foundByTier: story === undefined ? cache.tiers.map(() => 0) : [...story.foundByTier],
    recomputed: story?.recomputed ?? 0,
    returned: story?.returned ?? 0,
    parts: [
      part(askedUs, hashedUs),
      part(hashedUs, placedUs),
      part(placedUs, filledUs),
      part(filledUs, prefilledUs),
      part(prefilledUs, endedUs),
    ],
    totalMs: (endedUs - askedUs) / 1e3,
    how: request.how,
  };
}

// Frames that are kept, within a bound.

/** Keeps the newest of what two frames tell of, and the moment of the second. */
function merged(first: DashboardFrame, second: DashboardFrame): DashboardFrame {
  const last = <T>(a: readonly T[], b: readonly T[]): T[] => [...a, ...b].slice(-NEWS_MOST);
  return {
    ...second,
    evictions: [...second.evictions, ...first.evictions].slice(0, NEWS_MOST),
    returns: [...second.returns, ...first.returns].slice(0, NEWS_MOST),
    requests: last(first.requests, second.requests),
  };
}

export class FrameHistory {
  readonly #most: number;
  #frames: DashboardFrame[] = [];

  /** @param most frames that are kept */
  constructor(most: number) {
    this.#most = most;
  }

  get frames(): readonly DashboardFrame[] {
    return this.#frames;
  }

  /** The oldest goes when there are too many. */
  push(frame: DashboardFrame): void {
    this.#frames.push(frame);
    if (this.#frames.length > this.#most) this.#frames.shift();
  }

  /** All of the time stays: of two neighbours one is left. @returns whether there were too many */
  thin(): boolean {
    if (this.#frames.length < this.#most) return false;
    const kept: DashboardFrame[] = [];
    for (let i = 0; i + 1 < this.#frames.length; i += 2)
      kept.push(merged(this.#frames[i], this.#frames[i + 1]));
    if (this.#frames.length % 2 === 1) kept.push(this.#frames[this.#frames.length - 1]);
    this.#frames = kept;
    return true;
  }
}
