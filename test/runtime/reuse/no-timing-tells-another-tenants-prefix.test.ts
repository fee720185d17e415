/**
 * The timing channel, as a statistic. A victim's prompt is cached, or another one of the same length is; an
 * observer sends the prompt and sees how long its request takes. Time is work counted: tokens computed,
 * transfers started and bytes moved for it, with the noise of other tenants. So no load of the machine
 * reaches the verdict. The area under the ROC curve is the chance that a slower request is one of a prompt
 * that was not cached: 0.5 tells nothing.
 */

import { describe, expect, it } from 'vitest';
import { CrossRequestKVCache } from '../../../src/embed/crossRequestKVCache.ts';
import { KeyChain, KVManager, kvLayout, Outcome } from '../../../src/runtime/index.ts';
import { SeededRandom } from '../../../src/testing/index.ts';

const blockTokens = 4;
const layout = kvLayout({ layers: 1, kvHeads: 1, headDim: 1, dtype: 'f32', blockTokens });
const seed = Number(process.env.TIERKV_SEED ?? 1);

interface Trial {
  readonly isCached: boolean;
  readonly work: number;
}

class Server {
  readonly manager: KVManager;
  readonly cache: CrossRequestKVCache;
  readonly #owners: Map<string, number> = new Map();
  readonly #chains: Map<string, KeyChain> = new Map();
  #now = 0;
  #requests = 0;

  constructor(enableTenantIsolation: boolean) {
    this.manager = new KVManager({
      unitBytes: [1],
      hbm: { capacityBytes: 40 },
      ddr: { capacityBytes: 60 },
      owners: 16,
    });
    this.cache = new CrossRequestKVCache(this.manager, {
      blockTokens,
      enableTenantIsolation,
      keysOf: (tenant) => this.#chainOf(tenant),
      ownerOf: (tenant) => this.#ownerOf(tenant),
      nowUs: () => this.#now,
    });
  }

  /** Serves a prompt to its end. @returns the work that it was */
  serve(tenant: string, tokens: readonly number[]): number {
    const id = `r${++this.#requests}`;
    this.#now++;
    const { matchedTokens } = this.cache.tryReuse(id, tokens, tenant);
    let transfers = this.#carryOut();
    expect(this.cache.allocate(id, tokens.length)).toBe(true);
    transfers += this.#carryOut();
    this.cache.commit(id, tokens, null, true, tenant);
    this.#carryOut();
    this.cache.release(id);
    this.#carryOut();
    return 10 * (tokens.length - matchedTokens) + 7 * transfers;
  }

  /** Ends all transfers. @returns how many there were, seals apart */
  #carryOut(): number {
    let count = 0;
    for (let job = this.manager.nextJob(); job !== 0; job = this.manager.nextJob()) {
      if (this.manager.transfer(job).kind !== 'seal') count++;
      this.manager.complete(job, Outcome.LOADED, this.#now);
    }
    return count;
  }

  #ownerOf(tenant: string): number {
    const known = this.#owners.get(tenant) ?? this.#owners.size + 1;
    this.#owners.set(tenant, known);
    return known;
  }

  #chainOf(tenant: string): KeyChain {
    const known =
      this.#chains.get(tenant) ??
      new KeyChain({ secretKey: new Uint8Array(16), tenant, epoch: 0, model: 'm', layout });
    this.#chains.set(tenant, known);
    return known;
  }
}

/** @param observer tenant who probes what `victim` may have sent */
function observe(observer: string, enableTenantIsolation: boolean, count: number): Trial[] {
  const random = new SeededRandom(seed);
  const server = new Server(enableTenantIsolation);
  const trials: Trial[] = [];
  let next = 0;
  const prompt = (): number[] => {
    const from = (next += 1000);
    return Array.from({ length: 17 }, (_, i) => from + i);
  };
  const noise = (): void => {
    for (let i = random.below(4); i > 0; i--) {
      const from = 7 * random.below(30);
      const tokens = Array.from({ length: 5 + random.below(40) }, (_, j) => from + j);
      server.serve(`bystander ${random.below(3)}`, tokens);
    }
  };
  for (let i = 0; i < count; i++) {
    const probe = prompt();
    const isCached = random.chance(0.5);
    server.serve('victim', isCached ? probe : prompt());
    noise();
    trials.push({ isCached, work: server.serve(observer, probe) });
    noise();
  }
  return trials;
}

/** The chance that a trial without the prefix took more work than one with it; ties count half. */
function areaUnderCurve(trials: readonly Trial[]): number {
  const cached = trials.filter(({ isCached }) => isCached);
  const others = trials.filter(({ isCached }) => !isCached);
  let wins = 0;
  for (const { work: slow } of others) {
    for (const { work } of cached) wins += slow > work ? 1 : slow === work ? 0.5 : 0;
  }
  return wins / (cached.length * others.length);
}

describe(`whether a prompt is cached (seed ${seed})`, () => {
  it('cannot be told by another tenant', () => {
    const trials = observe('observer', true, 1200);
    expect(new Set(trials.map(({ work }) => work)).size, 'there is noise to be told from').toBeGreaterThan(5);
    const area = areaUnderCurve(trials);
    expect(Math.max(area, 1 - area)).toBeLessThanOrEqual(0.55);
  });

  it('can be told within the tenant, and where isolation is off: the test sees what there is to see', () => {
    // a difference that is there shows in few trials
    expect(areaUnderCurve(observe('victim', true, 300))).toBeGreaterThan(0.9);
    expect(areaUnderCurve(observe('observer', false, 300))).toBeGreaterThan(0.9);
  });
});
