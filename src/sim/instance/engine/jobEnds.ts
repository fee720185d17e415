/**
 * How the manager's jobs end. Without lower tiers, or with loads that are billed to the step, every job ends
 * in the call that issued it; otherwise the modeled driver says when, on the simulation's clock.
 */

import { type KVManager, Outcome, type Transfer } from '../../../runtime/index.ts';
import type { StateVisitor } from '../../../runtime/snapshot/index.ts';
import { type LinkModel, ModeledDriver, type Timeline } from '../../driver/index.ts';
import type { EngineConfig, LoadTiming } from './engineConfig.ts';

const HBM = 0;

export class JobEnds {
  /** Null where jobs end at once. */
  readonly driver: ModeledDriver | null;
  /** To be called after each call of the manager that may have made jobs. */
  readonly afterCall: (nowUs: number) => void;
  readonly #manager: KVManager;
  readonly #loads: LoadTiming;
  readonly #countsLoads: boolean;
  /** Blocks that came up from lower tiers and no step has paid for yet. */
  #unbilledBlocks = 0;

  /** @param links of deferred loads; null where loads take no time of their own */
  constructor(manager: KVManager, config: EngineConfig, links: LinkModel | null, timeline: Timeline) {
    this.#manager = manager;
    this.#loads = config.loads;
    this.#countsLoads = config.loads.kind === 'billed' && config.lowerTiers.length > 0;
    this.driver = links === null ? null : new ModeledDriver(manager.config, links, timeline);
    this.afterCall = this.driver === null ? this.#endAll.bind(this) : this.#carry.bind(this);
    this.driver?.onEnd(({ job, outcome, digestLo, digestHi }) => {
      manager.complete(job, outcome, timeline.nowUs, digestLo, digestHi);
      this.#carry(timeline.nowUs);
    });
  }

  /** What the step that begins now pays for blocks that came up before it, in microseconds. */
  bill(): number {
    if (this.#loads.kind !== 'billed' || this.#unbilledBlocks === 0) return 0;
    const { baseUs, usPerBlock } = this.#loads;
    const billedUs = this.#unbilledBlocks * Math.trunc(baseUs + usPerBlock);
    this.#unbilledBlocks = 0;
    return billedUs;
  }

  visitState(visitor: StateVisitor): void {
    this.driver?.visitState(visitor);
    this.#unbilledBlocks = visitor.number(this.#unbilledBlocks);
  }

  #endAll(nowUs: number): void {
    const manager = this.#manager;
    for (let job = manager.nextJob(); job !== 0; job = manager.nextJob()) {
      if (this.#countsLoads && isReload(manager.transfer(job))) this.#unbilledBlocks++;
      manager.complete(job, Outcome.LOADED, nowUs);
    }
  }

  /** Seals end at once; what moves goes to the driver. */
  #carry(nowUs: number): void {
    const manager = this.#manager;
    const driver = this.driver as ModeledDriver;
    const moves: Transfer[] = [];
    for (let job = manager.nextJob(); job !== 0; job = manager.nextJob()) {
      const transfer = manager.transfer(job);
      if (transfer.source === null) {
        const { outcome, digestLo, digestHi } = driver.endAtOnce(transfer);
        manager.complete(job, outcome, nowUs, digestLo, digestHi);
      } else {
        moves.push(transfer);
      }
    }
    if (moves.length > 0) driver.submit(moves);
  }
}

function isReload({ source, target }: Transfer): boolean {
  return source !== null && target.tier === HBM && source.tier !== HBM;
}
