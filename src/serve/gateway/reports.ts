/**
 * A backend's report in `/metrics`, under the names that vLLM gives its figures, as the control plane reads it. No
 * value is trusted: one that cannot be is refused with the whole text, and the report before stays, older by then.
 */

import { TierKVError } from '../../runtime/errors.ts';
import type { ReportRecord } from './records.ts';

/** Bytes of a text of metrics; vLLM's has some hundred thousand with all histograms of several models. */
export const METRICS_BYTES_MOST: number = 4 * 2 ** 20;
/** Letters of a name that goes into reports: what is longer would only fill logs. */
export const NAME_MOST = 256;
/** Longest time that a mean can be. */
const DAY_S = 86_400;
/** Requests that a backend can have in a queue or a batch. */
const REQUESTS_MOST = 1_000_000;

export interface BackendMetrics {
  readonly queueDepth: number;
  readonly batchSize: number;
  /** Share of HBM's blocks that hold KV of requests, from 0 to 1. */
  readonly usage: number;
  readonly preemptions: number;
  /** Tokens of the prefix cache since the start. */
  readonly hitTokens: number;
  readonly lookupTokens: number;
  readonly ttft: RunningMean;
  readonly tpot: RunningMean;
  readonly adapters: readonly string[];
  /** Blocks that went down from tier to tier, and that were brought up, since the start; null for a server that does not say. */
  readonly moved: { readonly down: number; readonly up: number } | null;
  /** Figures of `vllm:cache_config_info`; 0 where it has none. */
  readonly gpuBlocks: number;
  readonly blockTokens: number;
  /** When its process began, in seconds since 1970; 0 where it does not say. */
  readonly startedS: number;
}

/** Sum in seconds and count of a histogram. */
interface RunningMean {
  readonly sum: number;
  readonly count: number;
}

/** Where `moved` stands. vLLM tells bytes alone, and not what a block has. */
export const movedNames = ['tierkv_store_blocks_total', 'tierkv_load_blocks_total'] as const;

interface ReportedSample {
  readonly labels: string;
  readonly value: number;
}

/**
 * @param from the backend, for errors
 * @throws TKV_INPUT for a text that is not metrics, or that holds a value that cannot be
 */
export function readMetrics(text: string, from: string): BackendMetrics {
  const samples = samplesOf(text, from);
  const wrong = (name: string, value: number): TierKVError =>
    new TierKVError(
      'TKV_INPUT',
      `${from}: ${name} is ${value}, which cannot be. Mend the backend's metrics.`,
      {
        field: name,
      },
    );
  const sum = (names: readonly string[], most: number = Number.MAX_SAFE_INTEGER): number => {
    for (const name of names) {
      const found = samples.get(name);
      if (found === undefined) continue;
      let total = 0;
      for (const { value } of found) {
        if (!(value >= 0 && value <= most)) throw wrong(name, value);
        total += value;
      }
      return total;
    }
    return 0;
  };
  /** A share: the mean over engines side by side. */
  const share = (names: readonly string[]): number => {
    const name = names.find((each) => samples.has(each));
    if (name === undefined) return 0;
    return sum([name], 1) / (samples.get(name)?.length ?? 1);
  };
  const mean = (names: readonly string[]): RunningMean => {
    const name = names.find((each) => samples.has(`${each}_count`)) ?? names[0];
    const of = { sum: sum([`${name}_sum`]), count: sum([`${name}_count`]) };
    if (of.sum > of.count * DAY_S) throw wrong(`${name}_sum`, of.sum);
    return of;
  };
  const known = ['vllm:num_requests_running', 'vllm:num_requests_waiting'];
  if (!known.some((name) => samples.has(name))) {
    throw new TierKVError(
      'TKV_INPUT',
      `${from}: its metrics have none of ${known.join(', ')}. Use a server with them.`,
      {
        field: known[0],
      },
    );
  }
  const config = samples.get('vllm:cache_config_info') ?? [];
  const whole = (name: string): number =>
    config.reduce((total, { labels }) => total + (Number(labelOf(labels, name)) || 0), 0);
  const lookupTokens = sum(['vllm:prefix_cache_queries_total', 'vllm:gpu_prefix_cache_queries_total']);
  const hitTokens = sum(['vllm:prefix_cache_hits_total', 'vllm:gpu_prefix_cache_hits_total']);
  if (hitTokens > lookupTokens) throw wrong('vllm:prefix_cache_hits_total', hitTokens);
  const gpuBlocks = whole('num_gpu_blocks');
  const blockTokens = config.length === 0 ? 0 : whole('block_size') / config.length;
  return {
    queueDepth: Math.round(sum(['vllm:num_requests_waiting'], REQUESTS_MOST)),
    batchSize: Math.round(sum(['vllm:num_requests_running'], REQUESTS_MOST)),
    usage: share(['vllm:kv_cache_usage_perc', 'vllm:gpu_cache_usage_perc']),
    preemptions: Math.round(sum(['vllm:num_preemptions_total'])),
    hitTokens,
    lookupTokens,
    ttft: mean(['vllm:time_to_first_token_seconds']),
    tpot: mean([
      'vllm:inter_token_latency_seconds',
      'vllm:request_time_per_output_token_seconds',
      'vllm:time_per_output_token_seconds',
    ]),
    moved: movedNames.every((name) => samples.has(name))
      ? { down: sum([movedNames[0]]), up: sum([movedNames[1]]) }
      : null,
    adapters: adaptersOf(samples.get('vllm:lora_requests_info') ?? []),
    gpuBlocks: Number.isSafeInteger(gpuBlocks) && gpuBlocks > 0 && gpuBlocks < 2 ** 30 ? gpuBlocks : 0,
    blockTokens: Number.isSafeInteger(blockTokens) && blockTokens > 0 ? blockTokens : 0,
    startedS: sum(['process_start_time_seconds']),
  };
}

/** Samples by name. */
function samplesOf(text: string, from: string): ReadonlyMap<string, readonly ReportedSample[]> {
  const samples = new Map<string, ReportedSample[]>();
  let lines = 0;
  for (const line of text.split('\n')) {
    if (line === '' || line.startsWith('#')) continue;
    const parts = /^([a-zA-Z_:][\w:]*)(\{.*\})?[ \t]+([^ \t]+)/.exec(line);
    if (parts === null) {
      const shown = line.slice(0, 40);
      throw new TierKVError(
        'TKV_INPUT',
        `${from}: "${shown}" is not a line of metrics. Mend the backend's metrics.`,
        {
          field: '/metrics',
        },
      );
    }
    lines++;
    const [, name, labels = '', value] = parts;
    const list = samples.get(name);
    const sample = { labels, value: Number(value.replace('+Inf', 'Infinity').replace('-Inf', '-Infinity')) };
    if (list === undefined) samples.set(name, [sample]);
    else list.push(sample);
  }
  if (lines === 0) {
    throw new TierKVError('TKV_INPUT', `${from}: its metrics are empty. Mend the backend's metrics.`, {
      field: '/metrics',
    });
  }
  return samples;
}

function labelOf(labels: string, name: string): string | undefined {
  return new RegExp(`[{,]\\s*${name}="([^"]*)"`).exec(labels)?.[1];
}

function adaptersOf(samples: readonly ReportedSample[]): string[] {
  const names = new Set<string>();
  for (const { labels } of samples) {
    for (const name of labelOf(labels, 'running_lora_adapters')?.split(',') ?? []) {
      const short = name.trim();
      if (short !== '' && short.length <= NAME_MOST) names.add(short);
    }
  }
  return [...names].sort().slice(0, 256);
}

/** Whether the process behind the metrics is another one than before: its counters went back. */
export function beganAnew(before: BackendMetrics, now: BackendMetrics): boolean {
  return (
    now.startedS !== before.startedS ||
    now.lookupTokens < before.lookupTokens ||
    now.ttft.count < before.ttft.count ||
    now.preemptions < before.preemptions
  );
}

/** Whether the process behind the metrics is surely the one of before. */
export function isSameProcess(before: BackendMetrics, now: BackendMetrics): boolean {
  return now.startedS > 0 && !beganAnew(before, now);
}

/** Microseconds of the mean of what came between two reports; the mean before where nothing came. */
function recentUs(before: RunningMean | undefined, now: RunningMean, otherwiseUs: number): number {
  const count = now.count - (before?.count ?? 0);
  const sum = now.sum - (before?.sum ?? 0);
  return count > 0 && sum >= 0 ? Math.round((sum / count) * 1e6) : otherwiseUs;
}

/** The gateway's own measurements, for a backend without metrics. */
interface OwnFigures {
  readonly recentTtftUs: number;
  readonly recentTpotUs: number;
  readonly inFlight: number;
}

/**
 * The report of a backend.
 * @param before the metrics of the report before it, and that report
 */
export function reportOf(
  now: BackendMetrics,
  before: { readonly metrics: BackendMetrics; readonly report: ReportRecord } | undefined,
  capacityBlocks: readonly number[],
  blockTokens: number,
  maxSequences: number,
): ReportRecord {
  const used = Math.round(now.usage * capacityBlocks[0]);
  const lower = capacityBlocks.slice(1);
  return {
    queueDepth: now.queueDepth,
    batchSize: now.batchSize,
    maxBatch: maxSequences,
    preemptions: now.preemptions,
    usedBlocks: [used, ...lower.map(() => 0)],
    freeBlocks: [capacityBlocks[0] - used, ...lower],
    hitBlocks: now.hitTokens / blockTokens,
    lookupBlocks: now.lookupTokens / blockTokens,
    offloadedBlocks: now.moved?.down ?? 0,
    reloadedBlocks: now.moved?.up ?? 0,
    recentTtftUs: recentUs(before?.metrics.ttft, now.ttft, before?.report.recentTtftUs ?? 0),
    recentTpotUs: recentUs(before?.metrics.tpot, now.tpot, before?.report.recentTpotUs ?? 0),
    adapters: now.adapters,
  };
}

/** The report of a backend that has no metrics, from what the gateway saw of it. */
export function ownReport(
  { recentTtftUs, recentTpotUs, inFlight }: OwnFigures,
  capacityBlocks: readonly number[],
  maxSequences: number,
): ReportRecord {
  return {
    queueDepth: Math.max(0, inFlight - maxSequences),
    batchSize: Math.min(inFlight, maxSequences),
    maxBatch: maxSequences,
    preemptions: 0,
    usedBlocks: capacityBlocks.map(() => 0),
    freeBlocks: [...capacityBlocks],
    hitBlocks: 0,
    lookupBlocks: 0,
    offloadedBlocks: 0,
    reloadedBlocks: 0,
    recentTtftUs,
    recentTpotUs,
    adapters: [],
  };
}
