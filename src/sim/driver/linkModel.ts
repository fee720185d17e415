/**
 * How long a link takes: one transfer after the other in each direction, each for a base time plus its bytes
 * over the bandwidth; and between its last byte and the moment at which its end is known a delay, in which
 * the link carries others already. While the opposite direction is busy too, each has a share of its own
 * bandwidth.
 */

import { requireFinite, requireFraction, requirePositive } from '../../runtime/errors.ts';
import type { StateVisitor } from '../../runtime/snapshot/index.ts';
import { linkName, type Tier } from '../../runtime/tier/tier.ts';

export interface LinkProfile {
  /** Time that each transfer takes of the link, beside its bytes. */
  readonly baseLatencyUs: number;
  readonly bandwidthBytesPerS: number;
  /** What a transfer that travels alone takes longer. Default 0. */
  readonly delayUs?: number;
  /**
   * Share of its own bandwidth that a direction has while the opposite one is busy, above 0 and at most 1.
   * Default 1.
   */
  readonly bothWaysShare?: number;
  /**
   * Transfers that are submitted at once go as one copy of at most so many bytes, and end together. Default
   * 0: each ends by itself.
   */
  readonly batchBytes?: number;
}

/** Profiles by direction, under names such as `hbmToDdr`. */
export type LinkProfiles = { readonly [link: string]: LinkProfile };

export class LinkModel {
  readonly #profiles: LinkProfiles;
  readonly #fallback: LinkProfile;
  readonly #freeAtUs: Map<string, number> = new Map();

  /**
   * @throws TKV_CONFIG for a bandwidth that is not positive and finite, or a latency or share out of its
   * range
   */
  constructor(profiles: LinkProfiles, fallback: LinkProfile) {
    for (const [name, profile] of Object.entries({ ...profiles, fallback })) {
      requirePositive(`links.${name}.bandwidthBytesPerS`, profile.bandwidthBytesPerS);
      requireFinite(`links.${name}.baseLatencyUs`, profile.baseLatencyUs);
      requireFinite(`links.${name}.delayUs`, profile.delayUs ?? 0);
      const share = profile.bothWaysShare ?? 1;
      requirePositive(`links.${name}.bothWaysShare`, requireFraction(`links.${name}.bothWaysShare`, share));
      requireFinite(`links.${name}.batchBytes`, profile.batchBytes ?? 0);
    }
    this.#profiles = profiles;
    this.#fallback = fallback;
  }

  /** How long the link is busy with a transfer while nobody comes the other way, in integer microseconds. */
  transferUs(from: Tier, to: Tier, bytes: number): number {
    return busyUs(this.#profileOf(linkName(from, to)), bytes, 1);
  }

  /** When the end of a transfer that is ready at `nowUs` is known, in integer microseconds. */
  endUs(from: Tier, to: Tier, bytes: number, nowUs: number): number {
    const name = linkName(from, to);
    const profile = this.#profileOf(name);
    const start = Math.max(nowUs, this.#freeAtUs.get(name) ?? 0);
    const contended = (this.#freeAtUs.get(linkName(to, from)) ?? 0) > start;
    const end = start + busyUs(profile, bytes, contended ? (profile.bothWaysShare ?? 1) : 1);
    this.#freeAtUs.set(name, end);
    return end + Math.ceil(profile.delayUs ?? 0);
  }

  /** Bytes of transfers that end together when they are submitted at once; 0 where each ends by itself. */
  batchBytes(from: Tier, to: Tier): number {
    return this.#profileOf(linkName(from, to)).batchBytes ?? 0;
  }

  /** When the link of that name has carried what it was given, 0 before the first. */
  freeAtUs(name: string): number {
    return this.#freeAtUs.get(name) ?? 0;
  }

  #profileOf(name: string): LinkProfile {
    return this.#profiles[name] ?? this.#fallback;
  }

  visitState(visitor: StateVisitor): void {
    visitor.value(
      () => [...this.#freeAtUs],
      (saved) => {
        this.#freeAtUs.clear();
        for (const [link, freeAtUs] of saved) this.#freeAtUs.set(link, freeAtUs);
      },
    );
  }
}

function busyUs({ baseLatencyUs, bandwidthBytesPerS }: LinkProfile, bytes: number, share: number): number {
  return Math.ceil(baseLatencyUs + (bytes * 1e6) / (bandwidthBytesPerS * share));
}
