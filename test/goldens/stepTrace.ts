/** Step traces of upstream: one instance, event by event. `events` of other kinds than steps are not read. */

import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { gunzipSync } from 'node:zlib';

export interface TraceConfig {
  readonly blocks: number;
  readonly block_size: number;
  readonly max_num_seqs: number;
  readonly max_num_batched_tokens: number;
  readonly long_prefill_threshold: number;
  readonly max_model_len: number;
  readonly scheduler: string;
  readonly preemption: string;
}

export interface TraceRequest {
  readonly id: string;
  readonly arrival: number;
  readonly input: number[];
  readonly output: number[];
  readonly max_output_len: number;
  readonly slo: string;
}

/**
 * What is compared of a step: `batch_after` has [id, computed tokens, tokens of this step] of those still
 * running.
 */
export interface StepRow {
  readonly t: number;
  readonly batch_after: readonly (readonly [string, number, number])[];
  readonly waitq: readonly string[];
  readonly used: number;
  readonly hit_rate: number;
  readonly preempt: number;
  readonly done: number;
}

export interface StepTrace {
  readonly config: TraceConfig;
  readonly requests: readonly TraceRequest[];
  readonly rows: readonly StepRow[];
  readonly preemptions: number;
  readonly lengthCapped: number;
  readonly meanFirstTokenUs: number;
}

/** The trace in the folder, or undefined when it is not there. */
export function loadStepTrace(folder: URL, name: string): StepTrace | undefined {
  const plain = new URL(`steps-${name}.json`, folder);
  const packed = new URL(`steps-${name}.json.gz`, folder);
  if (existsSync(plain)) return parse(readFileSync(plain, 'utf8'));
  return existsSync(packed) ? parse(gunzipSync(readFileSync(packed)).toString('utf8')) : undefined;
}

export function stepTraceNames(folder: URL): string[] {
  if (!existsSync(folder)) return [];
  const names = readdirSync(folder).map((file) => /^steps-(.*)\.json(\.gz)?$/.exec(file)?.[1]);
  return names.filter((name) => name !== undefined).sort();
}

interface RawEvent {
  readonly ev: string;
  readonly t: number;
  readonly batch_after: [string, number, number][] | null;
  readonly waitq: string[] | null;
  readonly used: number;
  readonly hit_rate: number;
  readonly preempt: number;
  readonly done: number;
}

function parse(text: string): StepTrace {
  const raw = JSON.parse(text) as {
    config: TraceConfig;
    requests: TraceRequest[];
    events: RawEvent[];
    preemptions: number;
    length_capped: number;
    per_request: { ttft: number }[];
  };
  const rows = raw.events
    .filter(({ ev }) => ev === 'StepEvent')
    .map(({ t, batch_after, waitq, used, hit_rate, preempt, done }) => ({
      t,
      batch_after: batch_after ?? [],
      waitq: waitq ?? [],
      used,
      hit_rate,
      preempt,
      done,
    }));
  return {
    config: raw.config,
    requests: raw.requests,
    rows,
    preemptions: raw.preemptions,
    lengthCapped: raw.length_capped,
    meanFirstTokenUs: raw.per_request.reduce((sum, { ttft }) => sum + ttft, 0) / raw.per_request.length,
  };
}

/**
 * The first step in which two runs differ, with both rows, or undefined when they are equal to the last
 * digit.
 */
export function firstDifference(
  ours: readonly StepRow[],
  theirs: readonly StepRow[],
): { step: number; ours: StepRow | undefined; theirs: StepRow | undefined } | undefined {
  for (let step = 0; step < Math.max(ours.length, theirs.length); step++) {
    if (JSON.stringify(ours[step]) === JSON.stringify(theirs[step])) continue;
    return { step, ours: ours[step], theirs: theirs[step] };
  }
  return undefined;
}
