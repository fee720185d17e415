/** A runtime that is watched: its measures, ready to be exported and shown. There is one a runtime, however often it is asked for. */

import type { KVRuntime } from '../../embed/kvRuntime.ts';
import { configError } from '../../runtime/errors.ts';
import * as is from '../../runtime/kinds.ts';
import { checkInputs, type Kinds, optionTable } from '../../runtime/options.ts';
import type { TierName } from '../../runtime/tier/tier.ts';
import { CacheMeasures } from './cacheMeasures.ts';
import { metrics } from './catalogue.ts';
import { type MeasuredMetric, type MetricSource, measuredOf, type Watched } from './metric.ts';
import { RequestMeasures } from './requestMeasures.ts';

/** Options of `watchRuntime`. */
export interface WatchOptions {
  /** Tenants that are told apart by name; later ones are `other`. Default 20; 0 names none. */
  readonly tenants?: number | undefined;
}

/** A label of each is a series of each metric in a database: some thousand are its end. */
const TENANTS_MOST = 1000;

const watchOptionsTable = optionTable(
  { tenants: is.optional(is.integer(0, TENANTS_MOST)) } satisfies Kinds<WatchOptions>,
  'TKV_CONFIG',
);

const TENANTS_DEFAULT = 20;

/** Counts of a runtime that is watched. */
export class RuntimeWatch implements Watched, MetricSource {
  readonly kv: KVRuntime;
  readonly manager: KVRuntime['manager'];
  readonly cache: CacheMeasures;
  readonly requests: RequestMeasures;
  readonly blockTokens: number;
  readonly blockBytes: number;
  readonly tenantsMost: number;
  readonly measured: readonly MeasuredMetric[] = measuredOf(metrics, this);
  /** The tier that runtimes share; undefined where none is on. */
  readonly #shared: TierName | undefined;
  readonly #stop: () => void;

  constructor(kv: KVRuntime, tenantsMost: number) {
    checkInputs({ kv, tenantsMost }, { kv: is.fields({ begin: is.func() }), tenantsMost: is.number() });
    this.kv = kv;
    this.manager = kv.manager;
    this.blockTokens = kv.layout.blockTokens;
    this.blockBytes = kv.layout.blockBytes;
    this.tenantsMost = tenantsMost;
    const { shared, tiers } = kv.stores;
    this.#shared = shared === undefined ? undefined : [...tiers.keys()][shared.position];
    this.cache = new CacheMeasures(kv.manager);
    this.requests = new RequestMeasures(this.cache, tenantsMost);
    try {
      this.#stop = kv.observe({ requests: this.requests });
    } catch (error) {
      this.cache.close();
      throw error;
    }
  }

  scheduler(): ReturnType<Watched['scheduler']> {
    const { lastScheduler } = this.kv;
    if (lastScheduler === undefined || lastScheduler.isClosed) return undefined;
    return { running: lastScheduler.runningCount, waiting: lastScheduler.waitingCount };
  }

  get devicesLost(): number {
    return this.kv.devicesLost;
  }

  get devicePresent(): boolean {
    return this.kv.devicePresent;
  }

  get waitingForRoom(): number {
    return this.kv.room.waiting;
  }

  breaker(): ReturnType<Watched['breaker']> {
    const tier = this.#shared;
    if (tier === undefined) return undefined;
    const { state, leftOut } = this.kv.describe()[tier] ?? {};
    if (state !== 'closed' && state !== 'onTrial' && state !== 'open') return undefined;
    return { tier, state, openings: Number(leftOut) };
  }

  owners(): ReadonlyMap<string, number> {
    return this.kv.tenantOwners;
  }

  /** Watches no longer. What was counted stays. */
  close(): void {
    this.#stop();
    this.cache.close();
    watches.delete(this.kv);
  }
}

const watches: WeakMap<KVRuntime, RuntimeWatch> = new WeakMap();

/**
 * Watches the runtime from now on, at a cost of well under a microsecond a block. Called again it gives the same watch.
 * @throws TKV_CONFIG for options that are wrong, or differ from the options that the runtime is watched with; TKV_STATE
 * for a runtime that was closed before it was watched
 */
export function watchRuntime(kv: KVRuntime, options: WatchOptions = {}): RuntimeWatch {
  checkInputs({ kv, options }, { kv: is.fields({ begin: is.func() }), options: is.optional(is.object()) });
  const { tenants } = watchOptionsTable.read(options);
  const known = watches.get(kv);
  if (known === undefined) {
    const watch = new RuntimeWatch(kv, tenants ?? TENANTS_DEFAULT);
    watches.set(kv, watch);
    return watch;
  }
  if (tenants !== undefined && tenants !== known.tenantsMost) {
    const problem = `is ${tenants}, and the runtime is watched with ${known.tenantsMost} already`;
    throw configError('tenants', problem, 'Give the same number, or close the watch first.');
  }
  return known;
}
