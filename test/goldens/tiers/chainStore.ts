/**
 * A model of upstream's offload chain, `--kv-offload-config` (reference commit f90a1e3a), for comparison only:
 * a CPU tier, whose blocks come up for nothing, and key sets below it that blocks come from through a transfer
 * station. A request that a secondary tier has blocks of waits for rounds of steps (D13).
 */

import type { AllocatedFrom } from '../upstream/upstreamStore.ts';
import { HostTier } from './hostTier.ts';
import { ReloadingStore } from './reloadingStore.ts';
import { type StationTier, TransferStation } from './transferStation.ts';

export interface ChainConfig {
  readonly cpuBlocks: number;
  readonly blockBytes: number;
  readonly promptOnly: boolean;
  readonly tiers: readonly StationTier[];
}

/** Keys of a run that one secondary tier has. */
interface Run {
  readonly keys: readonly string[];
  readonly tier: number;
}

interface Deferred extends Run {
  phase: 'retry' | 'promoting';
  resolved: boolean;
  recompute: boolean;
  readonly startUs: number;
}

/** Ticks after which a request that waits computes. */
const LONGEST_WAIT = 1e9;

export class ChainStore extends ReloadingStore {
  reloads = 0;
  promotions = 0;
  promotionsFailed = 0;
  mirrorSkipped = 0;
  deferrals = 0;
  readonly host: HostTier;
  readonly #config: ChainConfig;
  readonly #station: TransferStation;
  readonly #secondary: readonly Set<string>[];
  readonly #jobs = new Map<number, { readonly keys: readonly string[]; readonly writesTo: number }>();
  readonly #known = new Set<string>();
  readonly #deferred = new Map<string, Deferred>();
  #nowUs = 0;

  constructor(blocks: number, blockTokens: number, config: ChainConfig) {
    super(blocks, blockTokens);
    this.#config = config;
    this.host = new HostTier(config.cpuBlocks);
    this.#station = new TransferStation(config.tiers);
    this.#secondary = config.tiers.map(() => new Set());
  }

  /** Keys that each secondary tier has. */
  get secondaryKeys(): number[] {
    return this.#secondary.map(({ size }) => size);
  }

  /** `id:phase:resolved:recompute`, in order of the ids. */
  get deferred(): string[] {
    return [...this.#deferred]
      .sort(([a], [b]) => (a < b ? -1 : 1))
      .map(([id, { phase, resolved, recompute }]) => {
        return `${id}:${phase === 'retry' ? 0 : 1}:${resolved}:${recompute}`;
      });
  }

  override get thrashed(): number {
    return this.promotionsFailed;
  }

  override get offloads(): number {
    return this.promotions + this.promotionsFailed;
  }

  override setClock(nowUs: number): void {
    this.#nowUs = nowUs;
    for (const id of this.#station.poll(nowUs)) {
      const job = this.#jobs.get(id);
      this.#jobs.delete(id);
      for (const key of job?.keys ?? []) {
        if (job === undefined || job.writesTo === -1) this.host.complete(key);
        else {
          this.#secondary[job.writesTo].add(key);
          this.host.unpin(key);
        }
      }
    }
  }

  override mirror(batch: readonly (readonly [id: string, promptTokens: number])[]): void {
    const { promptOnly, blockBytes } = this.#config;
    for (const [id, promptTokens] of batch) {
      const own = (this.owned.get(id) ?? []).length;
      const offered = promptOnly ? Math.min(own, Math.floor(promptTokens / this.blockTokens)) : own;
      for (const key of this.hashesOf(id, offered)) {
        if (this.host.state(key) !== 'miss') this.host.touch(key);
        else if (!this.host.store(key)) this.mirrorSkipped++;
        else {
          for (const tier of this.#secondary.keys()) {
            this.host.pin(key);
            const job = this.#station.submit(this.#nowUs, tier, 'write', blockBytes);
            this.#jobs.set(job, { keys: [key], writesTo: tier });
          }
        }
      }
    }
  }

  override allocate(
    id: string,
    tokens: readonly number[],
    cached: readonly number[],
    isPrefill: boolean,
    from: AllocatedFrom = { prompt: [], start: 0 },
  ): boolean {
    if (!this.owned.has(id)) {
      const waits = this.#deferred.get(id);
      if (waits === undefined && this.#defers(id, this.tailOf(id, from.prompt, cached))) return false;
      if (waits !== undefined && !waits.resolved && !waits.recompute) return false;
    }
    const ok = super.allocate(id, tokens, cached, isPrefill, from);
    if (ok) this.#deferred.delete(id);
    return ok;
  }

  override poll(nowUs: number): void {
    this.setClock(nowUs);
    for (const [, waits] of [...this.#deferred].sort(([a], [b]) => (a < b ? -1 : 1))) {
      if (waits.resolved || waits.recompute) continue;
      const states = waits.keys.map((key) => this.host.state(key));
      const state = states.includes('miss') ? 'miss' : states.includes('pending') ? 'pending' : 'hit';
      if (state === 'hit') waits.resolved = true;
      if (waits.phase === 'retry') {
        for (const key of waits.keys) this.#known.add(key);
        waits.phase = 'promoting';
        if (state === 'miss') waits.recompute = !this.#promote(waits);
      } else if (state === 'miss') waits.recompute = true;
      if (!waits.resolved && nowUs - waits.startUs > LONGEST_WAIT) waits.recompute = true;
    }
  }

  override isDeferred(id: string): boolean {
    const waits = this.#deferred.get(id);
    return waits !== undefined && !waits.resolved && !waits.recompute;
  }

  protected override reload(keys: readonly string[]): number {
    const most = this.free.length;
    let reloaded = 0;
    for (const [i, key] of keys.entries()) {
      if (this.byHash.has(key)) continue;
      const state = this.host.state(key);
      if (state === 'pending') break;
      if (state === 'miss') {
        const run = this.#runAt(keys, i);
        if (run !== null) this.#promote(run);
        break;
      }
      if (reloaded >= most) break;
      this.writeFree(key);
      this.host.touch(key);
      this.reloads++;
      reloaded++;
    }
    return reloaded;
  }

  /** Whether a new request has to wait for blocks below. */
  #defers(id: string, keys: readonly string[]): boolean {
    for (const [i, key] of keys.entries()) {
      if (this.byHash.has(key)) continue;
      const state = this.host.state(key);
      if (state === 'hit') continue;
      const run = state === 'pending' ? { keys: [key], tier: -1 } : this.#runAt(keys, i);
      if (run === null) return false;
      const fires = run.tier !== -1 && run.keys.every((each) => this.#known.has(each));
      const waits: Deferred = {
        ...run,
        phase: run.tier === -1 || fires ? 'promoting' : 'retry',
        resolved: false,
        recompute: false,
        startUs: this.#nowUs,
      };
      if (fires) waits.recompute = !this.#promote(run);
      this.#deferred.set(id, waits);
      this.deferrals++;
      return true;
    }
    return false;
  }

  /** The keys from `i` on that only one and the same secondary tier has first; null for none. */
  #runAt(keys: readonly string[], i: number): Run | null {
    const tierOf = (key: string): number => this.#secondary.findIndex((has) => has.has(key));
    const tier = tierOf(keys[i]);
    if (tier === -1) return null;
    const rest = keys.slice(i);
    const end = rest.findIndex((key) => {
      return this.byHash.has(key) || this.host.state(key) !== 'miss' || tierOf(key) !== tier;
    });
    return { keys: end === -1 ? rest : rest.slice(0, end), tier };
  }

  #promote({ keys, tier }: Run): boolean {
    const granted = this.host.prepare(keys);
    if (granted.length === 0) {
      this.promotionsFailed++;
      return false;
    }
    this.promotions++;
    const bytes = granted.length * this.#config.blockBytes;
    this.#jobs.set(this.#station.submit(this.#nowUs, tier, 'read', bytes), { keys: granted, writesTo: -1 });
    return true;
  }
}
