/** A manager with its jobs in the test's hands: what is asked of the driver, and its ends, one by one. */

import {
  type DecisionSink,
  KVManager,
  type ManagerConfig,
  Outcome,
  type Sequence,
  type Transfer,
} from '../../../src/runtime/index.ts';

export class World {
  readonly manager: KVManager;
  readonly jobs: Transfer[] = [];
  now = 0;

  constructor(config: Partial<ManagerConfig> = {}, sink: DecisionSink | null = null) {
    this.manager = new KVManager({ unitBytes: [1], hbm: { capacityBytes: 8 }, ...config }, sink);
  }

  /** Keys of a chain: word 0 names the chain up to there. */
  keys(...ids: number[]): Uint32Array {
    return Uint32Array.from(ids.flatMap((id) => [id, 1, 2, 3]));
  }

  /** Takes over what the manager issued since. */
  issued(): Transfer[] {
    const fresh: Transfer[] = [];
    for (let job = this.manager.nextJob(); job !== 0; job = this.manager.nextJob()) {
      fresh.push(this.manager.transfer(job));
    }
    this.jobs.push(...fresh);
    return fresh;
  }

  end(transfer: Transfer, outcome: Outcome = Outcome.LOADED, digest = 0): void {
    this.jobs.splice(this.jobs.indexOf(transfer), 1);
    this.manager.complete(transfer.job, outcome, this.now, digest, 0);
    this.manager.checkIntegrity();
  }

  /** Carries out everything until nothing is left to do. */
  settle(): void {
    for (this.issued(); this.jobs.length > 0; this.issued()) this.end(this.jobs[0]);
    this.manager.checkIntegrity();
  }

  /** Computes and caches a chain, then lets it go. */
  cache(...ids: number[]): void {
    const sequence = this.compute(...ids);
    this.manager.release(sequence, this.now);
    this.settle();
  }

  /** Opens a sequence and computes what it does not find. */
  compute(...ids: number[]): Sequence {
    const keys = this.keys(...ids);
    const sequence = this.manager.open(keys, ids.length, this.now);
    this.manager.load(sequence, this.now);
    this.settle();
    this.manager.allocate(sequence, sequence.matched, ids.length, this.now);
    this.settle();
    for (let i = sequence.matched; i < ids.length; i++)
      this.manager.seal(sequence, i, i + 1, keys, i * 4, 16, this.now);
    this.settle();
    return sequence;
  }
}
