/** Upstream's operation traces of stores with lower tiers, on the models of those stores. */

import type { UpstreamStore } from '../upstream/upstreamStore.ts';
import type { ChainStore } from './chainStore.ts';
import type { MirrorStore } from './mirrorStore.ts';

export interface TieredOperation {
  readonly op: 'admit' | 'extend' | 'release' | 'mirror+clock+poll+consume';
  readonly req: string;
  readonly start: number;
  readonly end: number;
  readonly pi: number;
  readonly input?: readonly number[];
  readonly output?: readonly number[];
  readonly cached?: readonly number[] | null;
  readonly batch: readonly string[] | null;
  readonly clock: number;
  readonly ok?: boolean;
  readonly latency?: number;
  readonly deferred?: readonly string[] | null;
  readonly state: Readonly<Record<string, unknown>>;
}

const short = (hash: string): string => hash.slice(0, 8);

/** The state of a store under the names of the traces. */
export function mirrorState(store: MirrorStore): Record<string, unknown> {
  const { cpuHits, mirrored, cpuEvictions, pendingLatency, missesBelow, hitRate, thrashing } = store;
  return {
    ...store.state(),
    cpu_lru: store.cpuLru.map(short),
    pending_latency: pendingLatency,
    cpu_hits: cpuHits,
    cpu_miss: missesBelow,
    mirrored,
    cpu_evictions: cpuEvictions,
    hit_rate: hitRate,
    thrash: thrashing,
  };
}

export function chainState(store: ChainStore): Record<string, unknown> {
  const { host, reloads, promotions, promotionsFailed, mirrorSkipped, deferrals, missesBelow } = store;
  return {
    ...store.state(),
    cpu_lru: host.lru.map(short),
    cpu_blocks: host.blocks.map(([key, refs]) => [short(key), refs]),
    cpu_evictions: host.evictions,
    cpu_evictable: host.lru.length,
    secondary_keys: store.secondaryKeys,
    promotions,
    promotions_failed: promotionsFailed,
    reloads,
    mirror_skipped: mirrorSkipped,
    deferrals,
    miss: missesBelow,
    deferred: store.deferred,
  };
}

interface Known {
  readonly input: readonly number[];
  readonly tokens: readonly number[];
}

/** Runs the operations as they were recorded. @returns what each answers, under the names of the trace */
export class OperationReplay {
  readonly #store: UpstreamStore;
  readonly #requests = new Map<string, Known>();

  constructor(store: UpstreamStore) {
    this.#store = store;
  }

  next({ op, req, start, end, pi, input, output, batch, clock }: TieredOperation): Record<string, unknown> {
    const store = this.#store;
    switch (op) {
      case 'admit': {
        const prompt = input ?? [];
        this.#requests.set(req, { input: prompt, tokens: [...prompt, ...(output ?? [])] });
        const cached = store.cached(prompt);
        const ok = store.allocate(req, prompt.slice(start, end), cached, true, { prompt, start });
        return { cached, ok };
      }
      case 'extend': {
        const { input: prompt, tokens } = this.#requests.get(req) as Known;
        const ok = store.allocate(req, tokens.slice(start, end), [], pi < prompt.length, { prompt, start });
        return { ok };
      }
      case 'release':
        store.release(req);
        return {};
      default: {
        store.mirror((batch ?? []).map((id) => [id, this.#requests.get(id)?.input.length ?? 0] as const));
        store.setClock(clock);
        store.poll(clock);
        return { latency: store.consumeLatency() };
      }
    }
  }
}
