/**
 * The scheduler and the manager on the requests of a step trace: one tier, every job ends at once, and step
 * times are those of the model that the traces were made with. Gives a row for each step, in the form of the
 * traces.
 */

import type { SchedulerConfig } from '../../src/runtime/batching/config.ts';
import { ManagerPort } from '../../src/runtime/batching/kvPort.ts';
import { FinishReason } from '../../src/runtime/batching/request.ts';
import { Scheduler } from '../../src/runtime/batching/scheduler.ts';
import { Granularity, unitSpec } from '../../src/runtime/geometry/box.ts';
import {
  type BlockKeys,
  KeyChain,
  KVManager,
  kvLayout,
  BlockKeys as MakeBlockKeys,
  Outcome,
} from '../../src/runtime/index.ts';
import type { BatchedRequest } from '../../src/sim/latency/latencyModel.ts';
import { request as scheduled } from '../sim/latency/setups.ts';
import type { StepTrace, TraceRequest } from './stepTrace.ts';
import type { PlannedStep, StepState, TraceEngine } from './traceLoop.ts';

export interface GoldenRequest {
  readonly id: string;
  readonly promptTokens: number;
  readonly maxOutputTokens: number;
  readonly priority: number;
  readonly arrivalUs: number;
  readonly keys: BlockKeys;
  readonly outputTokens: number;
}

const sloPriorities: Readonly<Record<string, number>> = {
  critical: 4,
  standard: 3,
  batch: -1,
  sheddable: -2,
  background: -3,
};

/** Lower is more urgent: the distance from the most urgent class. */
export function priorityOf(slo: string): number {
  return 4 - (sloPriorities[slo] ?? 3);
}

export function keysOf(tokens: readonly number[], blockTokens: number): BlockKeys {
  const layout = kvLayout({ layers: 1, kvHeads: 1, headDim: 1, dtype: 'f32', blockTokens });
  const unit = unitSpec(layout, { granularity: Granularity.BLOCK });
  const secretKey = new Uint8Array(32);
  const keys = new MakeBlockKeys();
  new KeyChain({ secretKey, tenant: '', epoch: 0, model: 'golden', layout, unit }).hashBlocks(
    tokens,
    0,
    keys,
  );
  return keys;
}

export function goldenRequest(raw: TraceRequest, blockTokens: number): GoldenRequest {
  return {
    id: raw.id,
    promptTokens: raw.input.length,
    maxOutputTokens: raw.output.length,
    priority: priorityOf(raw.slo),
    arrivalUs: raw.arrival,
    keys: keysOf([...raw.input, ...raw.output], blockTokens),
    outputTokens: raw.output.length,
  };
}

export function schedulerConfigOf(trace: StepTrace): SchedulerConfig {
  const { config } = trace;
  return {
    maxBatchedTokens: config.max_num_batched_tokens,
    maxSequences: config.max_num_seqs,
    longPrefillTokens: config.long_prefill_threshold,
    maxModelTokens: config.max_model_len,
    queueOrder: config.scheduler || 'fcfs',
    victimRule: config.preemption || 'fcfs',
    publish: 'whenPlanned',
  };
}

/**
 * A manager whose jobs end at once, and the scheduler's port to it. Without blocks in host memory there is
 * one tier.
 */
export function instantTiers(
  blocks: number,
  blockTokens: number,
  hostBlocks = 0,
): { manager: KVManager; port: ManagerPort } {
  const manager = new KVManager({
    unitBytes: [1],
    hbm: { capacityBytes: blocks },
    ...(hostBlocks > 0 ? { ddr: { capacityBytes: hostBlocks } } : {}),
    eviction: { policy: 'lru' }, // as upstream
    maxJobs: 2 * (blocks + hostBlocks),
  });
  const afterCall = (nowUs: number): void => {
    for (let job = manager.nextJob(); job !== 0; job = manager.nextJob()) {
      manager.complete(job, Outcome.LOADED, nowUs);
    }
  };
  return { manager, port: new ManagerPort(manager, { blockTokens, afterCall }) };
}

/** Blocks below HBM, and the bill that a step gets for those it reloads. */
export interface HostTier {
  readonly blocks: number;
  readonly reloadUsPerBlock: number;
}

/** The real scheduler on the real manager, as an engine of a trace. */
export class SchedulerEngine implements TraceEngine {
  /** Requests that ended at the model's length limit. */
  cappedCount = 0;
  readonly #trace: StepTrace;
  readonly #manager: KVManager;
  readonly #scheduler: Scheduler<GoldenRequest>;
  readonly #host: HostTier;
  /** Step in which each request sampled its first token. */
  readonly firstTokenStep: Map<string, number> = new Map();
  /** Tokens of prefills that were computed. */
  prefillTokens = 0;
  #steps = 0;
  #reloads = 0;
  #plan: [string, number, number][] = [];
  #done = 0;

  constructor(trace: StepTrace, config: SchedulerConfig = {}, host?: HostTier) {
    this.#host = host ?? { blocks: 0, reloadUsPerBlock: 0 };
    const { manager, port } = instantTiers(trace.config.blocks, trace.config.block_size, this.#host.blocks);
    this.#trace = trace;
    this.#manager = manager;
    this.#scheduler = new Scheduler({ ...schedulerConfigOf(trace), ...config }, port);
  }

  enqueue(raw: TraceRequest, nowUs: number): void {
    this.#scheduler.add(goldenRequest(raw, this.#trace.config.block_size), nowUs);
    this.#audit();
  }

  plan(nowUs: number): PlannedStep {
    const plan = this.#scheduler.step(nowUs);
    this.#audit();
    this.#plan = [];
    const batch: BatchedRequest[] = [];
    for (let seat = plan.first(); seat !== -1; seat = plan.next(seat)) {
      const { id, promptTokens, maxOutputTokens } = plan.request(seat);
      const [from, tokens] = [plan.from(seat), plan.tokensOf(seat)];
      this.#plan.push([id, from, tokens]);
      batch.push(scheduled(promptTokens, from, tokens, maxOutputTokens));
    }
    for (let seat = plan.firstPrefill(); seat !== -1; seat = plan.nextPrefill(seat)) {
      this.prefillTokens += plan.tokensOf(seat);
    }
    const waitq = this.#scheduler.waitingRequests().map(({ id }) => id);
    const before = this.#reloads;
    this.#reloads = this.#manager.inspect.counters.reloads.reduce((sum, reloads) => sum + reloads, 0);
    return { batch, waitq, transferUs: (this.#reloads - before) * this.#host.reloadUsPerBlock };
  }

  end(nowUs: number): StepState {
    const { finished, reasons, started } = this.#scheduler.stepEnded({}, nowUs);
    for (const { id } of started) {
      if (!this.firstTokenStep.has(id)) this.firstTokenStep.set(id, this.#steps);
    }
    this.#steps++;
    for (const reason of reasons) if (reason === FinishReason.CAPACITY) this.cappedCount++;
    this.#audit();
    this.#done += finished.length;
    const { hitBlocks, openedBlocks, preemptions } = this.#scheduler.counters;
    const running = this.#scheduler
      .runningRequests()
      .map(({ id }): [string, number, number] => [
        id,
        this.#scheduler.progress(id)?.computedTokens ?? -1,
        this.#plan.find(([planned]) => planned === id)?.[2] ?? 0,
      ]);
    return {
      batch_after: running,
      used: this.#manager.inspect.usage(0).heldBytes,
      hit_rate: hitBlocks + openedBlocks === 0 ? 0 : hitBlocks / (hitBlocks + openedBlocks),
      preempt: preemptions,
      done: this.#done,
      hasMore: this.#scheduler.size > 0,
    };
  }

  #audit(): void {
    this.#scheduler.checkIntegrity();
    this.#manager.checkIntegrity();
  }
}
