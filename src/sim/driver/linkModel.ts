/** How long a link takes: base latency plus bytes over bandwidth, one transfer after the other in each direction. */

import { requireFinite, requirePositive } from '../../runtime/errors.ts';
import { linkName, type Tier } from '../../runtime/tier.ts';

export interface LinkProfile {
  readonly baseLatencyUs: number;
  readonly bandwidthBytesPerS: number;
}

/** Profiles by direction, under names such as `hbmToDdr`. */
export type LinkProfiles = { readonly [link: string]: LinkProfile };

export class LinkModel {
  readonly #profiles: LinkProfiles;
  readonly #fallback: LinkProfile;
  readonly #freeAtUs: Map<string, number> = new Map();

  /** @throws TKV_CONFIG for a bandwidth that is not positive and finite or a latency that is negative */
  constructor(profiles: LinkProfiles, fallback: LinkProfile) {
    for (const [name, profile] of Object.entries({ ...profiles, fallback })) {
      requirePositive(`links.${name}.bandwidthBytesPerS`, profile.bandwidthBytesPerS);
      requireFinite(`links.${name}.baseLatencyUs`, profile.baseLatencyUs);
    }
    this.#profiles = profiles;
    this.#fallback = fallback;
  }

  /** How long the link is busy with a transfer, in integer microseconds. */
  transferUs(from: Tier, to: Tier, bytes: number): number {
    const { baseLatencyUs, bandwidthBytesPerS } = this.#profiles[linkName(from, to)] ?? this.#fallback;
    return Math.ceil(baseLatencyUs + (bytes * 1e6) / bandwidthBytesPerS);
  }

  /** When a transfer that is ready at `nowUs` ends; the link is busy until then. */
  endUs(from: Tier, to: Tier, bytes: number, nowUs: number): number {
    const name = linkName(from, to);
    const end = Math.max(nowUs, this.#freeAtUs.get(name) ?? 0) + this.transferUs(from, to, bytes);
    this.#freeAtUs.set(name, end);
    return end;
  }
}
