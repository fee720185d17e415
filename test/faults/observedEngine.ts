/** The real engine, with every submit and end reported to an observer. */

import type { StagingSlots } from '../../src/backends/engine/stagedBatch.ts';
import { type StoresByTier, TransferEngine } from '../../src/backends/engine/transferEngine.ts';
import type { Completion, EndListener, IssuedJobs, Transfer } from '../../src/runtime/index.ts';
import { issuedJobs } from '../../src/runtime/tier/driver.ts';

export interface EngineObserver {
  submitted(transfers: readonly Transfer[]): void;
  ended(end: Completion): void;
  passed(nowUs: number): void;
}

export class ObservedEngine extends TransferEngine {
  readonly #observer: EngineObserver;

  constructor(
    stores: StoresByTier,
    staging: StagingSlots | null,
    clockMs: () => number,
    observer: EngineObserver,
  ) {
    super(stores, staging, clockMs);
    this.#observer = observer;
  }

  override submit(jobs: IssuedJobs): void {
    const transfers: Transfer[] = [];
    for (let job = jobs.nextJob(); job !== 0; job = jobs.nextJob()) transfers.push(jobs.transfer(job));
    if (transfers.length > 0) this.#observer.submitted(transfers);
    super.submit(issuedJobs(transfers));
  }

  override onEnd(listener: EndListener): void {
    super.onEnd((end) => {
      this.#observer.ended(end);
      listener(end);
    });
  }

  override expire(): void {
    this.#observer.passed(this.nowUs());
    super.expire();
  }
}
