/**
 * When cached blocks of a tier go to the tier below, by a policy's name and its parameters:
 *
 *     lazy        only when their room is needed
 *     threshold   after each release, coldest first, while the tier is fuller than `share`: they move
 *     eager       as soon as they have no holder: they are copied and stay, so that evicting them is free
 *     intent      after each release, while the tier is fuller than `share`, the `ahead` blocks that would be
 *                 evicted next are copied and stay: the write is over by the time that their room is needed
 *
 * A copy is only ever made of a block that no lower tier has or awaits, and only where the tier below takes
 * it and the write budget allows it.
 */

import { configError, nearestName, requireFraction, requireInteger } from '../errors.ts';
import { requireChoice } from '../eviction/registry.ts';
import * as is from '../kinds.ts';
import { type Kinds, optionTable } from '../options.ts';
import type { StateVisitor } from '../snapshot.ts';
import type { JobId, JobTable } from '../tables/jobTable.ts';
import { JobQueue } from '../tier/driver.ts';

/** A policy as a configuration names it, with its parameters as plain data. */
export interface OffloadChoice {
  readonly policy: string;
  /** For `threshold` and `intent`: the share of the tier, 0 to 1, above which they act. Default 0.9. */
  readonly share?: number;
  /** For `intent`: how many blocks ahead of their eviction are copied. Default 64. */
  readonly ahead?: number;
}

export interface ResolvedOffload {
  readonly policy: OffloadPolicyName;
  readonly share: number;
  readonly ahead: number;
}

const parametersOf = {
  lazy: [],
  threshold: ['share'],
  eager: [],
  intent: ['share', 'ahead'],
} as const;
type OffloadPolicyName = keyof typeof parametersOf;

export const offloadPolicyNames: readonly string[] = Object.keys(parametersOf);

const SHARE_DEFAULT = 0.9;
const AHEAD_DEFAULT = 64;
const AHEAD_MAX = 4096;

/** @throws TKV_CONFIG naming the field under `field` that is not known or out of range */
export function resolveOffload(field: string, choice: OffloadChoice): ResolvedOffload {
  requireChoice(field, choice, offloadPolicyNames);
  const { policy, ...parameters } = choice;
  if (!isOffloadPolicy(policy)) throw unknown(`${field}.policy`, policy, offloadPolicyNames);
  const known: readonly string[] = parametersOf[policy];
  for (const name of Object.keys(parameters)) {
    if (!known.includes(name)) throw unknown(`${field}.${name}`, name, known);
  }
  return {
    policy,
    share: requireFraction(`${field}.share`, choice.share ?? SHARE_DEFAULT),
    ahead: requireInteger(`${field}.ahead`, choice.ahead ?? AHEAD_DEFAULT, 1, AHEAD_MAX),
  };
}

function isOffloadPolicy(name: string): name is OffloadPolicyName {
  return Object.hasOwn(parametersOf, name);
}

function unknown(field: string, name: string, known: readonly string[]): Error {
  const near = nearestName(String(name), known);
  const remedy =
    near !== undefined
      ? `Did you mean ${near}?`
      : known.length > 0
        ? `Known: ${known.join(', ')}.`
        : 'The policy takes no parameters: leave it out.';
  return configError(field, `is not known (${JSON.stringify(name)})`, remedy);
}

// How long blocks of one tier take on their way down: a running mean over the blocks that have arrived, and
// the age of the oldest one that has not. A tier whose blocks take long is bounded more tightly
// (residency.ts), so that no request waits for slots that leave slowly. Before the first block has arrived,
// the way from HBM counts as fast and every other way as slow.

/** Blocks that take longer than this hold up requests that wait for their slots. */
const SLOW_US = 50_000;
/** Share of the newest sample in the mean. */
const WEIGHT = 1 / 8;

export class Pace {
  readonly #jobs: JobTable;
  /**
   * Jobs under way in the order in which they were made; an ended job leaves when it comes to the front.
   */
  readonly #underWay: JobQueue = new JobQueue();
  #meanUs: number;

  /** @param tier position of the tier whose blocks leave, 0 for HBM */
  constructor(tier: number, jobs: JobTable) {
    this.#jobs = jobs;
    this.#meanUs = tier === 0 ? 0 : Number.POSITIVE_INFINITY;
  }

  began(job: JobId): void {
    this.#underWay.push(job);
  }

  ended(durationUs: number): void {
    this.#meanUs =
      this.#meanUs === Number.POSITIVE_INFINITY
        ? durationUs
        : this.#meanUs * (1 - WEIGHT) + durationUs * WEIGHT;
  }

  isSlow(nowUs: number): boolean {
    let oldest = this.#underWay.peek();
    while (oldest !== 0 && !this.#jobs.isLive(oldest)) {
      this.#underWay.shift();
      oldest = this.#underWay.peek();
    }
    const ageUs = oldest === 0 ? 0 : nowUs - this.#jobs.madeAtUs[this.#jobs.rowOf(oldest)];
    return Math.max(this.#meanUs, ageUs) > SLOW_US;
  }

  visitState(visitor: StateVisitor): void {
    this.#underWay.visitState(visitor);
    this.#meanUs = visitor.number(this.#meanUs);
  }
}

// Whether a tier takes blocks at all. One that refuses several in a row, as a full disk or a lost server does, is not a place
// for demotion: what is sent there would be lost, and what makes room for it there too. It is tried again with one block
// after a while, and each time that it refuses this one too, after twice as long.

const REFUSED_MAX = 4;
const TRIED_AGAIN_US = 250_000;
const TRIED_AGAIN_US_MAX = 16_000_000;

export class Taker {
  #refused = 0;
  #waitUs = 0;
  #triedAgainAtUs = 0;

  /** Whether a block without a caller that asked for it may be sent there. */
  takes(nowUs: number): boolean {
    return this.#refused < REFUSED_MAX || nowUs >= this.#triedAgainAtUs;
  }

  /** A block is sent there. */
  began(nowUs: number): void {
    if (this.#refused < REFUSED_MAX || nowUs < this.#triedAgainAtUs) return;
    this.#waitUs = Math.min(2 * this.#waitUs, TRIED_AGAIN_US_MAX);
    this.#triedAgainAtUs = nowUs + this.#waitUs;
  }

  took(): void {
    this.#refused = 0;
  }

  refused(nowUs: number): void {
    if (this.#refused === REFUSED_MAX || ++this.#refused < REFUSED_MAX) return;
    this.#waitUs = TRIED_AGAIN_US;
    this.#triedAgainAtUs = nowUs + this.#waitUs;
  }

  visitState(visitor: StateVisitor): void {
    this.#refused = visitor.number(this.#refused);
    this.#waitUs = visitor.number(this.#waitUs);
    this.#triedAgainAtUs = visitor.number(this.#triedAgainAtUs);
  }
}

// Wear as a controlled quantity: how many bytes may be written to a tier for each byte that is later read
// from it. A bucket that begins with the tier's capacity, so that an empty tier fills, gains with each byte
// read and, if wanted, with time, and pays for each byte written. It never holds more than the capacity. What
// it cannot pay for is not written:
//
//    written  <=  capacity + bytesPerByteRead * read + bytesPerSecond * seconds
//
// Gain by time keeps a tier alive whose contents are no longer read; without it such a tier would stay as
// it is.

export interface WriteBudgetConfig {
  /** Bytes that may be written for each byte read back. */
  readonly bytesPerByteRead: number;
  /** Bytes that may be written in each second besides, such as a disk's rated endurance gives. Default 0. */
  readonly bytesPerSecond?: number;
}

const writeBudgets = optionTable(
  {
    bytesPerByteRead: is.finite(),
    bytesPerSecond: is.optional(is.finite()),
  } satisfies Kinds<WriteBudgetConfig>,
  'TKV_CONFIG',
);

export class WriteBudget {
  readonly #bytesPerByteRead: number;
  readonly #bytesPerUs: number;
  readonly #capacityBytes: number;
  #leftBytes: number;
  #lastUs = 0;

  constructor({ bytesPerByteRead, bytesPerSecond = 0 }: WriteBudgetConfig, capacityBytes: number) {
    this.#bytesPerByteRead = bytesPerByteRead;
    this.#bytesPerUs = bytesPerSecond / 1e6;
    this.#capacityBytes = capacityBytes;
    this.#leftBytes = capacityBytes;
  }

  canPay(bytes: number, nowUs: number): boolean {
    this.#gain((nowUs - this.#lastUs) * this.#bytesPerUs);
    this.#lastUs = nowUs;
    return this.#leftBytes >= bytes;
  }

  pay(bytes: number): void {
    this.#leftBytes -= bytes;
  }

  wasRead(bytes: number): void {
    this.#gain(bytes * this.#bytesPerByteRead);
  }

  #gain(bytes: number): void {
    this.#leftBytes = Math.min(this.#capacityBytes, this.#leftBytes + bytes);
  }

  visitState(visitor: StateVisitor): void {
    this.#leftBytes = visitor.number(this.#leftBytes);
    this.#lastUs = visitor.number(this.#lastUs);
  }
}

/** @throws TKV_CONFIG naming the field under `tier` */
export function checkedBudget(
  tier: string,
  budget: WriteBudgetConfig | undefined,
): WriteBudgetConfig | undefined {
  return budget === undefined ? undefined : writeBudgets.read(budget, `${tier}.writeBudget`);
}
