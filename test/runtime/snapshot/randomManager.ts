/**
 * Managers in a random state: every eviction policy, one or two tiers, granular pools, quotas of tenants, hints, and jobs on
 * their way. The same seed gives the same one.
 */

import {
  evictionPolicyNames,
  type KVManager,
  type ManagerConfig,
  Outcome,
  type Sequence,
  type SequenceId,
} from '../../../src/runtime/index.ts';
import { SeededRandom } from '../../../src/testing/index.ts';

export function configOf(seed: number): ManagerConfig {
  const random = new SeededRandom(seed);
  const tier = (blocks: number): { capacityBytes: number; landingBytes: number } => ({
    capacityBytes: blocks,
    landingBytes: random.below(4),
  });
  return {
    unitBytes: random.chance(0.3) ? [1, 2] : [1],
    pageBytes: 2,
    hbm: tier(12 + 2 * random.below(6)),
    ...(random.chance(0.7) ? { ddr: tier(16) } : {}),
    eviction: { policy: evictionPolicyNames[seed % evictionPolicyNames.length] },
    owners: 3,
    maxJobs: 32,
    ...(random.chance(0.5) ? { transferDeadlineUs: 40 } : {}),
    offloadThreshold: random.chance(0.5) ? 0.6 : 1,
    useHalfLifeUs: 1000,
  };
}

/** Random calls: the same for two managers whose state is the same. */
export class Caller {
  readonly manager: KVManager;
  readonly #random: SeededRandom;
  readonly open: SequenceId[] = [];
  readonly jobs: number[] = [];
  now = 0;

  constructor(manager: KVManager, random: SeededRandom) {
    this.manager = manager;
    this.#random = random;
  }

  /** Another one that goes on from here on a manager of its own. */
  fork(manager: KVManager, seed: number): Caller {
    const fork = new Caller(manager, new SeededRandom(seed));
    fork.open.push(...this.open);
    fork.jobs.push(...this.jobs);
    fork.now = this.now;
    return fork;
  }

  call(): void {
    const { manager } = this;
    const random = this.#random;
    this.now += random.below(8);
    const keys = this.#chain();
    const blocks = keys.length / 4;
    switch (random.below(9)) {
      case 0:
      case 1:
        this.open.push(manager.open(keys, blocks, this.now, blocks, random.below(3)).id);
        break;
      case 2:
        this.#with((sequence) => manager.load(sequence, this.now));
        break;
      case 3:
        this.#with((sequence) => {
          const to = sequence.length + 1 + random.below(3);
          manager.allocate(sequence, sequence.length, to, this.now);
        });
        break;
      case 4:
        this.#with((sequence) => this.#seal(sequence));
        break;
      case 5:
        this.#with((sequence) => {
          manager.release(sequence, this.now);
          this.open.splice(this.open.indexOf(sequence.id), 1);
        });
        break;
      case 6:
        manager.tick(this.now);
        if (random.chance(0.2)) manager.setQuota(random.below(3), 0, random.below(5), this.now);
        break;
      case 7:
        this.#with((sequence) =>
          manager.retain(sequence, { priority: random.below(200) - 100, keepUntilUs: 0 }, this.now),
        );
        break;
      case 8:
        manager.evict(0, random.below(3), this.now);
    }
    this.#endJobs();
    manager.checkIntegrity();
  }

  /** What a manager is, as far as anybody can see. */
  look(): string {
    const { manager } = this;
    return JSON.stringify([
      manager.inspect.dump(),
      manager.inspect.counters,
      manager.inspect.disturbances,
      manager.inspect.nextDeadlineUs,
    ]);
  }

  #chain(): Uint32Array {
    const chain = this.#random.below(4);
    return Uint32Array.from(
      Array.from({ length: 1 + this.#random.below(6) }, (_, i) => [chain, i + 1, 2, 3]).flat(),
    );
  }

  #with(call: (sequence: Sequence) => void): void {
    if (this.open.length === 0) return;
    call(this.manager.inspect.sequence(this.open[this.#random.below(this.open.length)]) as Sequence);
  }

  /** Seals the first open block, if all before it are in place. */
  #seal(sequence: Sequence): void {
    for (let i = 0; i < sequence.length; i++) {
      if (this.manager.openBlock(sequence, i) === undefined) continue;
      const keys = Uint32Array.of(Number(sequence.id) % 4, i + 1, 2, 3);
      this.manager.seal(sequence, i, i + 1, keys, 0, 16, this.now);
      return;
    }
  }

  #endJobs(): void {
    const { manager } = this;
    const random = this.#random;
    for (let job = manager.nextJob(); job !== 0; job = manager.nextJob()) this.jobs.push(job);
    while (this.jobs.length > 0 && random.chance(0.7)) {
      const [job] = this.jobs.splice(random.below(this.jobs.length), 1);
      const outcome = random.chance(0.9) ? Outcome.LOADED : random.below(6);
      manager.complete(job as Parameters<KVManager['complete']>[0], outcome as Outcome, this.now, 7, 7);
    }
  }
}
