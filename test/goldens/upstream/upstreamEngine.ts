/**
 * A model of upstream's batch formation and step loop over one tier (reference commit f90a1e3a), written from
 * its description and for comparison only. A request that gives way starts over from its prompt.
 */

import type { BatchedRequest } from '../../../src/sim/latency/latencyModel.ts';
import { request as scheduled } from '../../sim/latency/setups.ts';
import { priorityOf } from '../schedulerRun.ts';
import type { StepTrace, TraceRequest } from '../stepTrace.ts';
import type { PlannedStep, StepState, TraceEngine } from '../traceLoop.ts';
import { type Repairs, UpstreamStore } from './upstreamStore.ts';

interface Req {
  readonly raw: TraceRequest;
  readonly priority: number;
  progress: number;
  newTokens: number;
  computed: number;
}

export class UpstreamEngine implements TraceEngine {
  readonly #trace: StepTrace;
  readonly #repairs: Repairs;
  readonly #store: UpstreamStore;
  #waiting: Req[] = [];
  #running: Req[] = [];
  #preemptions = 0;
  #done = 0;
  /** Ids of the requests to which the last step did this, in order. */
  readonly last: Record<'admitted' | 'preempted' | 'leftOut' | 'started' | 'finished', string[]> = {
    admitted: [],
    preempted: [],
    leftOut: [],
    started: [],
    finished: [],
  };

  /** @param store a store other than the one of one tier */
  constructor(trace: StepTrace, repairs: Repairs, store?: UpstreamStore) {
    this.#trace = trace;
    this.#repairs = repairs;
    this.#store = store ?? new UpstreamStore(trace.config.blocks, trace.config.block_size, repairs);
  }

  enqueue(raw: TraceRequest): void {
    this.#waiting.push({ raw, priority: priorityOf(raw.slo), progress: 0, newTokens: 0, computed: 0 });
  }

  get waitingCount(): number {
    return this.#waiting.length;
  }

  get runningCount(): number {
    return this.#running.length;
  }

  get preemptions(): number {
    return this.#preemptions;
  }

  get store(): UpstreamStore {
    return this.#store;
  }

  /** Tokens generated: the index counts the prompt, and one token less than there are. */
  generatedOf(id: string): number {
    const req = [...this.#running, ...this.#waiting].find(({ raw }) => raw.id === id);
    return req === undefined ? 0 : Math.max(0, req.progress - req.raw.input.length + 1);
  }

  abort(id: string): void {
    this.#waiting = this.#waiting.filter(({ raw }) => raw.id !== id);
    this.#running = this.#running.filter(({ raw }) => raw.id !== id);
    this.#store.release(id);
  }

  plan(nowUs: number): PlannedStep {
    this.#store.setClock(nowUs);
    this.last.admitted = [];
    this.last.preempted = [];
    this.last.leftOut = [];
    this.last.started = [];
    this.last.finished = [];
    this.#sortQueue();
    const before = this.#preemptions;
    let { left, preempted } = this.#planRunning();
    while (this.#repairs.emptySteps && preempted > 0 && left === this.#trace.config.max_num_batched_tokens) {
      ({ left, preempted } = this.#planRunning());
    }
    this.#store.poll(nowUs);
    const isEmptied = this.#repairs.emptySteps && this.#running.length === 0;
    if (before === this.#preemptions || isEmptied) this.#admit(left);
    const batch = this.#running.filter(({ newTokens }) => newTokens > 0).map(asScheduled);
    const transferUs = this.#store.consumeLatency();
    return { batch, waitq: this.#waiting.map(({ raw }) => raw.id), transferUs };
  }

  end(): StepState {
    for (const req of this.#running) {
      const wasPrefill = req.progress < req.raw.input.length;
      if (wasPrefill) req.progress = req.computed;
      else if (req.newTokens > 0) req.progress++;
      else if (!this.last.admitted.includes(req.raw.id)) this.last.leftOut.push(req.raw.id);
      const joinsFull = !wasPrefill && this.last.admitted.includes(req.raw.id);
      if ((wasPrefill || joinsFull) && req.progress === req.raw.input.length)
        this.last.started.push(req.raw.id);
    }
    this.#store.mirror(this.#running.map(({ raw }) => [raw.id, raw.input.length]));
    const { max_model_len: maxLength } = this.#trace.config;
    this.#running = this.#running.filter((req) => {
      const { input, output, id } = req.raw;
      const isComplete = req.progress >= input.length + Math.max(output.length, 1) - 1;
      if (!isComplete && !(maxLength > 0 && req.progress >= maxLength - 1)) return true;
      if (isComplete && !this.#repairs.lastToken && req.progress < input.length + output.length) {
        const from = { prompt: input, start: req.progress };
        this.#store.allocate(id, [output[req.progress - input.length]], [], false, from);
      }
      this.#store.release(id);
      this.last.finished.push(id);
      this.#done++;
      return false;
    });
    return {
      batch_after: this.#running.map(({ raw, progress, newTokens }) => [raw.id, progress, newTokens]),
      used: this.#store.used,
      hit_rate: this.#store.hitRate,
      preempt: this.#preemptions,
      done: this.#done,
      hasMore: this.#running.length + this.#waiting.length > 0,
    };
  }

  #sortQueue(): void {
    const ranks: Record<string, (req: Req) => number> = {
      'priority-fcfs': ({ priority }) => priority,
      sjf: ({ raw }) => raw.input.length,
      'reverse-priority': ({ priority }) => -priority,
    };
    const rank = ranks[this.#trace.config.scheduler];
    if (rank === undefined) return;
    this.#waiting.sort(
      (a, b) => rank(a) - rank(b) || a.raw.arrival - b.raw.arrival || (a.raw.id < b.raw.id ? -1 : 1),
    );
  }

  #planRunning(): { left: number; preempted: number } {
    const { config } = this.#trace;
    const before = this.#preemptions;
    let left = config.max_num_batched_tokens;
    for (const req of this.#running) req.newTokens = 0;
    for (let at = 0; at < this.#running.length && left > 0; at++) {
      const req = this.#running[at];
      const { input, output } = req.raw;
      const isPrefill = req.progress < input.length;
      let tokens = isPrefill ? this.#chunk(input.length - req.progress, left, req.progress) : 1;
      const isCapped = config.max_model_len > 0 && req.progress + 1 > config.max_model_len - 1;
      if (!isPrefill && (isCapped || output.length === 0)) tokens = 0;
      const all = isPrefill ? input : output;
      const from = isPrefill ? req.progress : req.progress - input.length;
      const place = { prompt: input, start: req.progress };
      while (!this.#store.allocate(req.raw.id, all.slice(from, from + tokens), [], isPrefill, place)) {
        const victim = this.#victim();
        const index = this.#running.indexOf(victim);
        if (index < at) at--;
        left += victim.newTokens;
        this.#preempt(victim);
        if (victim === req) return { left, preempted: this.#preemptions - before };
      }
      req.newTokens = tokens;
      req.computed = req.progress + tokens;
      left -= tokens;
    }
    return { left, preempted: this.#preemptions - before };
  }

  #victim(): Req {
    let victim = this.#running[this.#running.length - 1];
    if (this.#trace.config.preemption !== 'priority') return victim;
    for (const req of [...this.#running].reverse()) {
      const later = req.priority === victim.priority && req.raw.arrival > victim.raw.arrival;
      if (req.priority > victim.priority || later) victim = req;
    }
    return victim;
  }

  #preempt(req: Req): void {
    this.#preemptions++;
    this.last.preempted.push(req.raw.id);
    if (this.#repairs.neverComputed) this.#store.unpublishBehind(req.raw.id, req.progress);
    this.#running.splice(this.#running.indexOf(req), 1);
    this.#store.release(req.raw.id);
    Object.assign(req, { progress: 0, newTokens: 0, computed: 0 });
    this.#waiting.unshift(req);
  }

  #admit(budget: number): void {
    const { config } = this.#trace;
    let left = budget;
    let skipped = 0;
    while (this.#running.length < config.max_num_seqs && this.#waiting.length > skipped && left > 0) {
      const req = this.#waiting[skipped];
      const { input, id } = req.raw;
      if (this.#store.isDeferred(id)) {
        skipped++;
        continue;
      }
      const cached = this.#store.cached(input);
      const start = cached.length * config.block_size;
      const tokens = this.#chunk(input.length - start, left, start);
      const place = { prompt: input, start };
      if (!this.#store.allocate(id, input.slice(start, start + tokens), cached, true, place)) {
        if (!this.#store.isDeferred(id)) return;
        skipped++;
        continue;
      }
      this.#waiting.splice(skipped, 1);
      this.#running.push(req);
      this.last.admitted.push(id);
      left -= tokens;
      req.newTokens = tokens;
      req.computed = start + tokens;
    }
  }

  #chunk(lacking: number, left: number, from: number): number {
    const { long_prefill_threshold: threshold, max_model_len: maxLength } = this.#trace.config;
    const wanted = threshold > 0 ? Math.min(lacking, threshold) : lacking;
    return Math.min(wanted, left, maxLength > 0 ? Math.max(maxLength - 1 - from, 0) : wanted);
  }
}

function asScheduled({ raw, progress, newTokens }: Req): BatchedRequest {
  return scheduled(raw.input.length, progress, newTokens, raw.output.length);
}
