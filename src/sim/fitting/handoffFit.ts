/** The simulator's link between prefill and decode instances, from hand-offs that were measured. */

import { TierKVError } from '../../runtime/errors.ts';
import * as is from '../../runtime/kinds.ts';
import { checkInputs } from '../../runtime/options.ts';
import type { HandoffConfig } from '../cluster/handoffs.ts';
import { fitLink } from '../latency/capacity.ts';

/** Measurements of one hand-off. */
export interface MeasuredHandoff {
  /** `taken` where the prompt was whole. */
  readonly outcome: string;
  /** Blocks that came. */
  readonly taken: number;
  readonly bytes: number;
  /** Milliseconds from the call to its end. */
  readonly ms: number;
}

export interface HandoffFit extends Required<HandoffConfig> {
  /** Hand-offs that it was made of. */
  readonly handoffs: number;
  /** Median of |predicted / measured - 1| over them. */
  readonly error: number;
}

/** Fewer say too little. */
const HANDOFFS_MIN = 4;

/**
 * Base latency and bandwidth of a transfer of one hand-off, by least relative squares over the time from the claim to
 * the last block. Take hand-offs of prompts that were computed before they were fetched: others waited for computing.
 * @throws TKV_INPUT where fewer than four whole hand-offs of two sizes are among them
 */
export function fitHandoffs(measured: readonly MeasuredHandoff[]): HandoffFit {
  checkInputs({ measured }, { measured: is.list(is.fields({ ms: is.number(), outcome: is.text() })) });
  const whole = measured.filter(({ outcome, taken, ms }) => outcome === 'taken' && taken > 0 && ms > 0);
  const sizes = new Set(whole.map(({ bytes }) => bytes));
  if (whole.length < HANDOFFS_MIN || sizes.size < 2) {
    throw new TierKVError(
      'TKV_INPUT',
      `there are ${whole.length} whole hand-offs of ${sizes.size} sizes, and a fit needs ${HANDOFFS_MIN} of 2. Hand ` +
        'prompts of several lengths off, and measure again.',
      { field: 'handoffs' },
    );
  }
  const samples = whole.map(({ bytes, ms }) => ({ bytes, latencyUs: ms * 1000 }));
  const { baseLatencyUs, bandwidthBytesPerS } = fitLink(samples);
  const errors = samples
    .map(({ bytes, latencyUs }) =>
      Math.abs((baseLatencyUs + (bytes * 1e6) / bandwidthBytesPerS) / latencyUs - 1),
    )
    .sort((a, b) => a - b);
  return {
    baseLatencyUs,
    bandwidthBytesPerS,
    granularity: 'stream',
    pipelined: true,
    missingOnly: true,
    handoffs: whole.length,
    error: errors[Math.floor(errors.length / 2)],
  };
}
