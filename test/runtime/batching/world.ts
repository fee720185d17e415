/**
 * A scheduler on a manager with the jobs in the test's hands. Keys name blocks by small numbers: requests
 * with the same leading numbers share blocks. Every call is followed by an audit of both.
 */

import type { SchedulerConfig } from '../../../src/runtime/batching/config.ts';
import { ManagerPort } from '../../../src/runtime/batching/kvPort.ts';
import {
  FinishReason,
  finishReasonNames,
  type ServingRequest,
} from '../../../src/runtime/batching/request.ts';
import { Scheduler } from '../../../src/runtime/batching/scheduler.ts';
import type { SchedulerSink } from '../../../src/runtime/batching/schedulerSink.ts';
import {
  BlockKeys,
  ExternalKeys,
  KVManager,
  type ManagerConfig,
  Outcome,
  type Transfer,
} from '../../../src/runtime/index.ts';

const source = new ExternalKeys({ tenant: 'test', epoch: 0 });

export function keysOf(blocks: readonly number[]): BlockKeys {
  const keys = new BlockKeys(blocks.length + 1);
  source.hashBlocks(blocks, 0, keys);
  return keys;
}

export interface WorldConfig extends SchedulerConfig {
  readonly blockTokens?: number;
  readonly hbmBlocks?: number;
  readonly ddrBlocks?: number;
  readonly landingBlocks?: number;
  /** Jobs end at once. Default true. */
  readonly isInstant?: boolean;
  readonly sink?: SchedulerSink;
  readonly manager?: Partial<ManagerConfig>;
}

export class World {
  readonly manager: KVManager;
  readonly scheduler: Scheduler;
  readonly jobs: Transfer[] = [];
  readonly finished: Record<string, string> = {};
  readonly outputs: Record<string, number> = {};
  now = 0;
  readonly #isInstant: boolean;

  constructor(config: WorldConfig = {}) {
    const { blockTokens, hbmBlocks, ddrBlocks, landingBlocks, isInstant, sink, manager, ...scheduling } =
      config;
    this.manager = new KVManager({
      unitBytes: [1],
      hbm: { capacityBytes: hbmBlocks ?? 16, landingBytes: landingBlocks ?? 0 },
      ...(ddrBlocks === undefined ? {} : { ddr: { capacityBytes: ddrBlocks } }),
      maxJobs: 256,
      ...manager,
    });
    this.#isInstant = isInstant ?? true;
    const port = new ManagerPort(this.manager, {
      blockTokens: blockTokens ?? 4,
      afterCall: () => this.#carryOut(),
    });
    this.scheduler = new Scheduler(scheduling, port, sink ?? null);
  }

  add(id: string, promptTokens: number, maxOutputTokens: number, rest: Partial<ServingRequest> = {}): void {
    this.scheduler.add({ id, promptTokens, maxOutputTokens, keys: new BlockKeys(), ...rest }, this.now);
    this.audit();
  }

  /** Plans a step: tokens of each request, as `[from, to)`. */
  plan(opensMost?: number): Record<string, [number, number]> {
    const plan = this.scheduler.step(this.now, opensMost);
    this.audit();
    const planned: Record<string, [number, number]> = {};
    for (let seat = plan.first(); seat !== -1; seat = plan.next(seat)) {
      const from = plan.from(seat);
      planned[plan.request(seat).id] = [from, from + plan.tokensOf(seat)];
    }
    return planned;
  }

  end(...stopped: string[]): string[] {
    this.now++;
    const { finished, reasons, outputTokens } = this.scheduler.stepEnded({ stopped }, this.now);
    this.audit();
    for (const [i, { id }] of finished.entries()) {
      this.finished[id] = finishReasonNames[reasons[i]];
      this.outputs[id] = outputTokens[i];
    }
    return finished.map(({ id }) => id);
  }

  /** Plans and computes a step. */
  step(): Record<string, [number, number]> {
    const planned = this.plan();
    if (Object.keys(planned).length > 0) this.end();
    return planned;
  }

  /** Steps until every request has ended. */
  finish(limit = 1000): void {
    for (let i = 0; this.scheduler.size > 0; i++) {
      if (i === limit) throw new Error(`requests are left after ${limit} steps`);
      this.step();
      this.settle();
    }
  }

  /** Takes over the jobs that the manager has issued since. */
  issued(): Transfer[] {
    const fresh: Transfer[] = [];
    for (let job = this.manager.nextJob(); job !== 0; job = this.manager.nextJob()) {
      fresh.push(this.manager.transfer(job));
    }
    this.jobs.push(...fresh);
    return fresh;
  }

  endJob(job: Transfer, outcome: Outcome = Outcome.LOADED): void {
    this.jobs.splice(this.jobs.indexOf(job), 1);
    this.manager.complete(job.job, outcome, this.now);
    this.audit();
  }

  /** Ends all jobs, including jobs that follow from them. */
  settle(outcome: Outcome = Outcome.LOADED): void {
    for (this.issued(); this.jobs.length > 0; this.issued()) this.endJob(this.jobs[0], outcome);
  }

  audit(): void {
    this.scheduler.checkIntegrity();
    this.manager.checkIntegrity();
  }

  #carryOut(): void {
    if (!this.#isInstant) return;
    for (let job = this.manager.nextJob(); job !== 0; job = this.manager.nextJob()) {
      this.manager.complete(job, Outcome.LOADED, this.now);
    }
  }
}

export { FinishReason };
