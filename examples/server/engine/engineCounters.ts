/** What the engine has done so far, and how long it took: counters that only grow, and histograms. */

import type { Answer, FinishReason } from './answer.ts';

export class Histogram {
  readonly bounds: readonly number[];
  /** By bound, then above all of them. */
  readonly counts: number[];
  sum = 0;

  constructor(bounds: readonly number[]) {
    this.bounds = bounds;
    this.counts = new Array<number>(bounds.length + 1).fill(0);
  }

  observe(value: number): void {
    if (!Number.isFinite(value)) return;
    const at = this.bounds.findIndex((bound) => value <= bound);
    this.counts[at === -1 ? this.bounds.length : at]++;
    this.sum += value;
  }
}

/** Seconds. */
const bounds = [0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120];

const longBounds = [...bounds, 300, 600, 1800, 3600];

export class EngineCounters {
  promptTokens = 0;
  generationTokens = 0;
  /** Tokens of prompts whose KV was found. */
  cachedTokens = 0;
  readonly finished: Record<FinishReason, number> = { stop: 0, length: 0, cancelled: 0, error: 0 };
  readonly timeToFirstToken: Histogram = new Histogram(bounds);
  readonly interTokenLatency: Histogram = new Histogram(bounds);
  readonly endToEnd: Histogram = new Histogram(bounds);
  readonly queueTime: Histogram = new Histogram(bounds);
  readonly prefillTime: Histogram = new Histogram(bounds);
  readonly decodeTime: Histogram = new Histogram(bounds);
  /** Of blocks in HBM. */
  readonly blockLifetime: Histogram = new Histogram(longBounds);
  readonly blockIdleBeforeEvict: Histogram = new Histogram(longBounds);
  readonly blockReuseGap: Histogram = new Histogram(longBounds);

  noteToken({ times }: Answer, nowMs: number): void {
    this.generationTokens++;
    if (Number.isNaN(times.firstTokenMs)) {
      times.firstTokenMs = nowMs;
      this.timeToFirstToken.observe((nowMs - times.arrivedMs) / 1000);
    } else {
      this.interTokenLatency.observe((nowMs - times.lastTokenMs) / 1000);
    }
    times.lastTokenMs = nowMs;
  }

  noteEnd({ times, finish }: Answer): void {
    if (finish !== undefined) this.finished[finish]++;
    this.endToEnd.observe((times.endedMs - times.arrivedMs) / 1000);
    this.queueTime.observe((times.firstStepMs - times.arrivedMs) / 1000);
    this.prefillTime.observe((times.firstTokenMs - times.firstStepMs) / 1000);
    this.decodeTime.observe((times.endedMs - times.firstTokenMs) / 1000);
  }
}
