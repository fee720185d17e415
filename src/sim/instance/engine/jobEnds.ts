/**
 * How the manager's jobs end. Without lower tiers, or with loads that are billed to the step, every job ends
 * in the call that issued it; otherwise what moves ends when the links have carried it, on the simulation's
 * clock. There are no bytes to go wrong, so every job ends well.
 */

import { type KVManager, Outcome } from '../../../runtime/index.ts';
import type { JobRoute } from '../../../runtime/manager/views/describe.ts';
import type { StateVisitor } from '../../../runtime/snapshot/index.ts';
import { Tier } from '../../../runtime/tier/tier.ts';
import type { JobId } from '../../../runtime/transfer/jobTable.ts';
import { Flights, type LinkModel, type Timeline } from '../../driver/index.ts';
import type { EngineConfig, LoadTiming } from './engineConfig.ts';

export class JobEnds {
  /** Null where jobs end at once. */
  readonly flights: Flights<JobId> | null;
  /** To be called after each call of the manager that may have made jobs. */
  readonly afterCall: (nowUs: number) => void;
  readonly #manager: KVManager;
  readonly #timeline: Timeline;
  readonly #loads: LoadTiming;
  readonly #countsLoads: boolean;
  /** Of the job that is looked at. */
  readonly #route: JobRoute = { from: null, to: Tier.HBM, bytes: 0, keys: new Uint32Array(0), keyAt: -1 };
  /** Blocks that came up from lower tiers and no step has paid for yet. */
  #unbilledBlocks = 0;

  /** @param links of deferred loads; null where loads take no time of their own */
  constructor(manager: KVManager, config: EngineConfig, links: LinkModel | null, timeline: Timeline) {
    this.#manager = manager;
    this.#timeline = timeline;
    this.#loads = config.loads;
    this.#countsLoads = config.loads.kind === 'billed' && config.lowerTiers.length > 0;
    this.flights = links === null ? null : new Flights(links, timeline);
    this.afterCall = this.flights === null ? this.#endAll.bind(this) : this.#carry.bind(this);
  }

  /** What the step that begins now pays for blocks that came up before it, in microseconds. */
  bill(): number {
    if (this.#loads.kind !== 'billed' || this.#unbilledBlocks === 0) return 0;
    const { baseUs, usPerBlock } = this.#loads;
    const billedUs = this.#unbilledBlocks * Math.trunc(baseUs + usPerBlock);
    this.#unbilledBlocks = 0;
    return billedUs;
  }

  /** A flight is due. */
  land(flight: number): void {
    const job = this.flights?.land(flight) ?? null;
    if (job === null) return;
    const { nowUs } = this.#timeline;
    this.#manager.complete(job, Outcome.LOADED, nowUs);
    this.#carry(nowUs);
  }

  visitState(visitor: StateVisitor): void {
    this.flights?.visitState(visitor);
    this.#unbilledBlocks = visitor.number(this.#unbilledBlocks);
  }

  #endAll(nowUs: number): void {
    const manager = this.#manager;
    for (let job = manager.nextJob(); job !== 0; job = manager.nextJob()) {
      if (this.#countsLoads && this.#isReload(job)) this.#unbilledBlocks++;
      manager.complete(job, Outcome.LOADED, nowUs);
    }
  }

  /** Seals end at once, with a digest that names the key; what moves goes over the links. */
  #carry(nowUs: number): void {
    const manager = this.#manager;
    const flights = this.flights as Flights<JobId>;
    const route = this.#route;
    let moves = false;
    for (let job = manager.nextJob(); job !== 0; job = manager.nextJob()) {
      manager.route(job, route);
      if (route.from === null) {
        const { keys, keyAt: at } = route;
        const digestLo = (keys[at] ^ keys[at + 2]) >>> 0;
        manager.complete(job, Outcome.LOADED, nowUs, digestLo, (keys[at + 1] ^ keys[at + 3]) >>> 0);
      } else {
        flights.add(job, route);
        moves = true;
      }
    }
    if (moves) flights.depart();
  }

  #isReload(job: JobId): boolean {
    this.#manager.route(job, this.#route);
    const { from, to } = this.#route;
    return from !== null && to === Tier.HBM && from !== Tier.HBM;
  }
}
