/**
 * Events of a manager's blocks, counted by tier: finds, loads, stores, evictions, and how long blocks stay, rest and
 * come back. It watches a live manager and one that repeats a decision log alike, since all it knows comes by
 * `ManagerObserver` and the manager's clock. Memory is bounded by the manager's tables and by the constants below.
 */

import {
  type KVManager,
  keyToHex,
  type ManagerObserver,
  Outcome,
  outcomeNames,
  type TierName,
  tierName,
} from '../../runtime/index.ts';
import { blockBounds, transferBounds, ValueHistogram } from './histogram.ts';

/** Blocks that were dropped and are remembered, to see which come back: 40 bytes each and an entry of a map. */
const GHOSTS_MOST = 65_536;
/** Evictions and returns that are kept for the dashboard. */
const RECENT_MOST = 256;
/** Sequences that ended and are kept for the dashboard. */
const STORIES_MOST = 200;
/** Sequences that are open and followed: beyond, the oldest is no longer followed. */
const OPEN_STORIES_MOST = 4096;

/** Counts of one tier, in blocks unless a name says otherwise. */
export class TierMeasures {
  readonly tier: TierName;
  hitBlocks = 0;
  hitTokens = 0;
  /** Blocks and tokens that came up from here. */
  loadBlocks = 0;
  loadTokens = 0;
  loadBytes = 0;
  /** Seconds that loads from here took, one by one. */
  readonly loadSeconds: ValueHistogram = new ValueHistogram(transferBounds);
  /** Failed loads by outcome. */
  readonly loadFailures: Float64Array = new Float64Array(outcomeNames.length);
  /** Blocks and tokens that were written here from above. */
  storeBlocks = 0;
  storeTokens = 0;
  storeBytes = 0;
  readonly storeSeconds: ValueHistogram = new ValueHistogram(transferBounds);
  readonly storeFailures: Float64Array = new Float64Array(outcomeNames.length);
  loadsLate = 0;
  storesLate = 0;
  evictedBlocks = 0;
  evictedTokens = 0;
  droppedBlocks = 0;
  /** Dropped blocks that a request asked for again while they were remembered. */
  returnedBlocks = 0;
  readonly returnedAfterSeconds: ValueHistogram = new ValueHistogram(blockBounds);
  /** From when lookups find a block here until they do not. */
  readonly residenceSeconds: ValueHistogram = new ValueHistogram(blockBounds);
  /** Since its last use, when it is evicted from here. */
  readonly idleSeconds: ValueHistogram = new ValueHistogram(blockBounds);
  /** From one use to the next, of a block found here. */
  readonly reuseGapSeconds: ValueHistogram = new ValueHistogram(blockBounds);

  constructor(tier: TierName) {
    this.tier = tier;
  }
}

/** A link from a tier to another one, by their positions. */
class LinkMeasures {
  readonly from: number;
  readonly to: number;
  bytes = 0;
  inFlight = 0;
  #busyUs = 0;
  #sinceUs = 0;

  constructor(from: number, to: number) {
    this.from = from;
    this.to = to;
  }

  began(nowUs: number): void {
    if (this.inFlight++ === 0) this.#sinceUs = nowUs;
  }

  ended(nowUs: number): void {
    if (--this.inFlight === 0) this.#busyUs += nowUs - this.#sinceUs;
  }

  /** Microseconds in which something was on the link. */
  busyUs(nowUs: number): number {
    return this.#busyUs + (this.inFlight > 0 ? Math.max(0, nowUs - this.#sinceUs) : 0);
  }
}

/** A block that was evicted, or came back after it was dropped. */
export interface BlockNews {
  readonly atUs: number;
  readonly tier: number;
  /** 32 hexadecimal digits. */
  readonly key: string;
  readonly owner: number;
  /** Since its last use before, in microseconds; -1 where it is not known. */
  readonly idleUs: number;
  /** `-1`: it was dropped. Otherwise the tier that it went to, or that has it anyway. */
  readonly wentTo: number;
}

/** The outcome of a sequence, in blocks unless a field says otherwise. */
export interface SequenceStory {
  readonly sequence: number;
  readonly owner: number;
  readonly openedUs: number;
  /** -1 while it is open. */
  closedUs: number;
  readonly blocks: number;
  readonly foundByTier: number[];
  recomputed: number;
  /** Blocks that it asked for and that had been dropped before. */
  returned: number;
}

/** Owners, by which of them asked. */
interface OwnerMeasures {
  readonly askedBlocks: Float64Array;
  readonly foundBlocks: Float64Array;
  readonly sequences: Float64Array;
}

interface Ghost {
  readonly droppedUs: number;
  readonly tier: number;
  readonly owner: number;
  readonly idleUs: number;
}

export class CacheMeasures {
  readonly manager: KVManager;
  /** Fastest first. */
  readonly tiers: readonly TierMeasures[];
  /** Links over which something was sent so far. */
  readonly links: LinkMeasures[] = [];
  readonly owners: OwnerMeasures;
  missBlocks = 0;
  /** Blocks whose prefix a lower tier had and that were loaded, or computed all the same. */
  choseLoad = 0;
  choseRecompute = 0;
  /** The newest last. */
  readonly evictions: RecentNews = new RecentNews(RECENT_MOST);
  readonly returns: RecentNews = new RecentNews(RECENT_MOST);
  /** Sequences that have ended. */
  closed = 0;
  /** Told of each sequence that was followed, when it has ended. */
  readonly onClose: Set<(story: SequenceStory) => void> = new Set();
  readonly #linkAt: (LinkMeasures | undefined)[] = [];
  readonly #stop: () => void;
  /** Time of each content's last use plus 1; 0 for a content without a use since counting began. */
  readonly #usedUs: Float64Array;
  /** Time since which lookups find each replica, plus 1; 0 where that was before counting began. */
  readonly #publishedUs: Float64Array;
  /** Time at which the driver got each job, plus 1; 0 for a job that it had before counting began. */
  readonly #issuedUs: Float64Array;
  readonly #ghosts: Map<number, Ghost> = new Map();
  readonly #open: Map<number, SequenceStory> = new Map();
  readonly #ended: SequenceStory[] = [];
  #current: SequenceStory | undefined;
  #lastEviction: { readonly content: number; readonly idleUs: number } = { content: -1, idleUs: -1 };

  /**
   * @param watch subscribes the observer. Default: at the manager
   */
  constructor(
    manager: KVManager,
    watch: (blocks: ManagerObserver) => () => void = (blocks) => manager.observe(blocks),
  ) {
    this.manager = manager;
    this.tiers = manager.inspect.tiers.map((tier) => new TierMeasures(tierName(tier)));
    const { contents, replicas, jobs } = manager.inspect.tableSizes;
    this.#usedUs = new Float64Array(contents);
    this.#publishedUs = new Float64Array(replicas);
    this.#issuedUs = new Float64Array(jobs);
    const { owners } = manager.config;
    this.owners = {
      askedBlocks: new Float64Array(owners),
      foundBlocks: new Float64Array(owners),
      sequences: new Float64Array(owners),
    };
    this.#stop = watch(this.#observer());
  }

  /** Counts nothing from now on. */
  close(): void {
    this.#stop();
  }

  /** Sequences that are open, then the ones that ended last, the newest first in both. */
  stories(most: number): SequenceStory[] {
    return [...[...this.#open.values()].reverse(), ...[...this.#ended].reverse()].slice(0, most);
  }

  /** The story of a sequence that is open; undefined for one that is not followed. */
  story(sequence: number): SequenceStory | undefined {
    return this.#open.get(sequence);
  }

  /** Microseconds since the last use of the content; -1 where it was not used since this began. */
  idleUs(content: number): number {
    return this.#usedUs[content] === 0
      ? -1
      : Math.max(0, this.manager.inspect.nowUs - this.#usedUs[content] + 1);
  }

  #observer(): ManagerObserver {
    const { manager, tiers } = this;
    return {
      opened: (sequence, owner, keys, blocks, matched) => {
        const story: SequenceStory = {
          sequence,
          owner,
          openedUs: manager.inspect.nowUs,
          closedUs: -1,
          blocks,
          foundByTier: new Array<number>(tiers.length).fill(0),
          recomputed: 0,
          returned: 0,
        };
        this.#current = story;
        this.#open.set(sequence, story);
        if (this.#open.size > OPEN_STORIES_MOST) this.#open.delete(this.#open.keys().next().value ?? -1);
        this.missBlocks += blocks - matched;
        this.owners.askedBlocks[owner] += blocks;
        this.owners.foundBlocks[owner] += matched;
        this.owners.sequences[owner]++;
        if (this.#ghosts.size > 0) this.#lookForReturns(keys, matched, blocks, story);
      },
      found: (content, tier) => {
        const measures = tiers[tier];
        measures.hitBlocks++;
        measures.hitTokens += manager.inspect.contentTokens(content);
        if (this.#current !== undefined) this.#current.foundByTier[tier]++;
        const used = this.#usedUs[content];
        if (used !== 0) measures.reuseGapSeconds.observe((manager.inspect.nowUs + 1 - used) / 1e6);
        this.#usedUs[content] = manager.inspect.nowUs + 1;
      },
      sealed: (content) => {
        this.#usedUs[content] = manager.inspect.nowUs + 1;
      },
      recomputed: (sequence, blocks) => {
        this.choseRecompute += blocks;
        const story = this.#open.get(sequence);
        if (story !== undefined) story.recomputed += blocks;
      },
      closed: (sequence) => this.#close(sequence),
      published: (replica) => {
        this.#publishedUs[replica] = manager.inspect.nowUs + 1;
      },
      unpublished: (replica, _content, tier) => {
        const since = this.#publishedUs[replica];
        if (since !== 0) tiers[tier].residenceSeconds.observe((manager.inspect.nowUs + 1 - since) / 1e6);
        this.#publishedUs[replica] = 0;
      },
      evicted: (_replica, content, tier) => {
        const idleUs = this.idleUs(content);
        tiers[tier].evictedBlocks++;
        tiers[tier].evictedTokens += manager.inspect.contentTokens(content);
        if (idleUs >= 0) tiers[tier].idleSeconds.observe(idleUs / 1e6);
        this.#lastEviction = { content, idleUs };
      },
      demoted: (content, tier, lower) => this.#noteEviction(content, tier, lower),
      dropped: (content, tier) => {
        tiers[tier].droppedBlocks++;
        this.#noteEviction(content, tier, -1);
        this.#remember(content, tier);
      },
      forgotten: (content) => {
        this.#usedUs[content] = 0;
      },
      issued: (row, from, to) => {
        if (from === -1 || from === to) return;
        this.#issuedUs[row] = manager.inspect.nowUs + 1;
        this.#link(from, to).began(manager.inspect.nowUs);
      },
      ended: (row, from, to, bytes, outcome, givenUp) => {
        if (from === -1 || from === to) return;
        this.#transferred(row, from, to, bytes, outcome, givenUp);
      },
      overdue: (_row, from, to) => {
        if (from === -1 || from === to) return;
        if (from > to) {
          tiers[from].loadsLate++;
          tiers[from].loadFailures[Outcome.TIMED_OUT]++;
        } else {
          tiers[to].storesLate++;
          tiers[to].storeFailures[Outcome.TIMED_OUT]++;
        }
      },
    };
  }

  #transferred(
    row: number,
    from: number,
    to: number,
    bytes: number,
    outcome: Outcome,
    givenUp: boolean,
  ): void {
    const { manager, tiers } = this;
    const link = this.#link(from, to);
    const issuedUs = this.#issuedUs[row];
    this.#issuedUs[row] = 0;
    if (issuedUs !== 0) link.ended(manager.inspect.nowUs);
    const seconds = issuedUs === 0 ? undefined : (manager.inspect.nowUs + 1 - issuedUs) / 1e6;
    const isLoad = from > to;
    const measures = isLoad ? tiers[from] : tiers[to];
    if (outcome !== Outcome.LOADED || givenUp) {
      if (!givenUp) (isLoad ? measures.loadFailures : measures.storeFailures)[outcome]++;
      return;
    }
    link.bytes += bytes;
    const tokens = manager.inspect.jobTokens(row);
    if (isLoad) {
      measures.loadBlocks++;
      measures.loadTokens += tokens;
      measures.loadBytes += bytes;
      if (seconds !== undefined) measures.loadSeconds.observe(seconds);
      if (to === 0) this.choseLoad++;
    } else {
      measures.storeBlocks++;
      measures.storeTokens += tokens;
      measures.storeBytes += bytes;
      if (seconds !== undefined) measures.storeSeconds.observe(seconds);
    }
  }

  #link(from: number, to: number): LinkMeasures {
    const at = from * this.tiers.length + to;
    let link = this.#linkAt[at];
    if (link === undefined) {
      link = new LinkMeasures(from, to);
      this.#linkAt[at] = link;
      this.links.push(link);
    }
    return link;
  }

  #close(sequence: number): void {
    this.closed++;
    const story = this.#open.get(sequence);
    if (story === undefined) return;
    this.#open.delete(sequence);
    story.closedUs = this.manager.inspect.nowUs;
    this.#ended.push(story);
    if (this.#ended.length > 2 * STORIES_MOST) this.#ended.splice(0, STORIES_MOST);
    for (const told of this.onClose) told(story);
  }

  #noteEviction(content: number, tier: number, wentTo: number): void {
    const { manager } = this;
    const idleUs = this.#lastEviction.content === content ? this.#lastEviction.idleUs : -1;
    this.evictions.push(
      { atUs: manager.inspect.nowUs, tier, owner: manager.inspect.contentOwner(content), idleUs, wentTo },
      manager.inspect.contentKey(content),
    );
  }

  #remember(content: number, tier: number): void {
    const { manager } = this;
    const key = manager.inspect.contentKey(content);
    const ghosts = this.#ghosts;
    ghosts.set(ghostKey(key, 0), {
      droppedUs: manager.inspect.nowUs,
      tier,
      owner: manager.inspect.contentOwner(content),
      idleUs: this.idleUs(content),
    });
    if (ghosts.size > GHOSTS_MOST) ghosts.delete(ghosts.keys().next().value ?? -1);
  }

  #lookForReturns(keys: Uint32Array, matched: number, blocks: number, story: SequenceStory): void {
    const { manager, tiers } = this;
    for (let i = matched; i < blocks; i++) {
      const at = ghostKey(keys, i * 4);
      const ghost = this.#ghosts.get(at);
      if (ghost === undefined) continue;
      this.#ghosts.delete(at);
      story.returned++;
      tiers[ghost.tier].returnedBlocks++;
      tiers[ghost.tier].returnedAfterSeconds.observe((manager.inspect.nowUs - ghost.droppedUs) / 1e6);
      this.returns.push(
        {
          atUs: manager.inspect.nowUs,
          tier: ghost.tier,
          owner: ghost.owner,
          idleUs: manager.inspect.nowUs - ghost.droppedUs,
          wentTo: -1,
        },
        keys.subarray(i * 4, i * 4 + 4),
      );
    }
  }
}

/** 53 bits of a key: enough to tell some ten thousand keys apart. */
function ghostKey(words: Uint32Array, at: number): number {
  return words[at] * 2 ** 21 + (words[at + 1] >>> 11);
}

/** The newest of what happened to blocks, in arrays of numbers: a thousand evictions a second make no garbage. */
class RecentNews {
  readonly #most: number;
  readonly #numbers: Float64Array;
  readonly #keys: Uint32Array;
  /** How many there were so far. */
  total = 0;

  constructor(most: number) {
    this.#most = most;
    this.#numbers = new Float64Array(most * 5);
    this.#keys = new Uint32Array(most * 4);
  }

  push({ atUs, tier, owner, idleUs, wentTo }: Omit<BlockNews, 'key'>, key: Uint32Array): void {
    const at = this.total++ % this.#most;
    const numbers = this.#numbers;
    numbers[at * 5] = atUs;
    numbers[at * 5 + 1] = tier;
    numbers[at * 5 + 2] = owner;
    numbers[at * 5 + 3] = idleUs;
    numbers[at * 5 + 4] = wentTo;
    for (let word = 0; word < 4; word++) this.#keys[at * 4 + word] = key[word];
  }

  /** The newest first. */
  newest(most: number): BlockNews[] {
    const found: BlockNews[] = [];
    const count = Math.min(most, this.total, this.#most);
    for (let i = 1; i <= count; i++) {
      const at = (this.total - i) % this.#most;
      const [atUs, tier, owner, idleUs, wentTo] = this.#numbers.subarray(at * 5, at * 5 + 5);
      const key = keyToHex(this.#keys.subarray(at * 4, at * 4 + 4));
      found.push({ atUs, tier, owner, idleUs, wentTo, key });
    }
    return found;
  }
}
