/** What the engine has done so far: counters that only grow. How long it took is in the metrics of the runtime. */

import type { Answer, FinishReason } from './answer.ts';

export class EngineCounters {
  promptTokens = 0;
  generationTokens = 0;
  /** Tokens of prompts whose KV was found. */
  cachedTokens = 0;
  readonly finished: Record<FinishReason, number> = { stop: 0, length: 0, cancelled: 0, error: 0 };

  noteToken({ times }: Answer, nowMs: number): void {
    this.generationTokens++;
    if (Number.isNaN(times.firstTokenMs)) times.firstTokenMs = nowMs;
    times.lastTokenMs = nowMs;
  }

  noteEnd({ finish }: Answer): void {
    if (finish !== undefined) this.finished[finish]++;
  }
}
