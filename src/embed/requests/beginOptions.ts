/** What a request may ask for beside its tokens, and that it is what it has to be. */

import { type RequestExtras, TierKVError } from '../../runtime/index.ts';
import { described, optionNames, requireOptions } from '../../runtime/options.ts';
import type { WaitOptions } from '../abort.ts';
import type { RequestContext } from './context.ts';
import type { SequenceState } from './kvSequence.ts';

export interface BeginOptions extends WaitOptions {
  /** Who may share this KV: from your own authentication, never from the request's body. */
  readonly tenant: string;
  /**
   * What else determines the KV of this request: adapters, images, a salt. It is part of the keys from the
   * block on that has `fromToken` (0): blocks before it are shared with requests without, blocks from there
   * on only with requests that have the same extras. Default: none.
   */
  readonly extras?: RequestExtras | undefined;
  /** Lower numbers are served first when requests wait for room. Default 0. */
  readonly priority?: number | undefined;
  /**
   * Wait for room instead of being refused with TKV_FULL. While most of HBM is held, what lies below DDR is
   * read into DDR before room is taken. Default false.
   */
  readonly wait?: boolean | undefined;
  /**
   * How long to wait, in milliseconds, for blocks of the same prompt that another request is computing just
   * now; after that they are computed once more. 0: not at all. Default 1000.
   */
  readonly shareWaitMs?: number | undefined;
  /**
   * Do not wait for blocks that lower tiers hold: they are handed over as they come. Prefill then goes by
   * `nextPart`, or, where there are layer groups, by `readyLayers`. Default false.
   */
  readonly arriving?: boolean | undefined;
  /** How its blocks should be kept once it lets them go; a hint to the eviction policy. */
  readonly retention?: RetentionHint | undefined;
}

export const beginOptionsNames: readonly string[] = optionNames<BeginOptions>({
  signal: true,
  tenant: true,
  extras: true,
  priority: true,
  wait: true,
  shareWaitMs: true,
  arriving: true,
  retention: true,
});

/** A hint: nothing is kept for ever. */
export interface RetentionHint {
  /** From -100 to 100: higher is kept longer. Default 0. */
  readonly priority?: number;
  /** Stays for so many milliseconds from now on, if it can. Default: no wish. */
  readonly keepMs?: number;
}

export const retentionHintNames: readonly string[] = optionNames<RetentionHint>({
  priority: true,
  keepMs: true,
});

/** A thousand years, which whole microseconds can still count. */
const KEEP_MS_MAX = 1000 * 366 * 86_400_000;

/** @throws TKV_INPUT naming the part of the hint that is none */
export function checkHint(hint: RetentionHint): Required<RetentionHint> {
  const { priority = 0, keepMs = 0 } = requireOptions(hint, retentionHintNames, 'retention');
  const fault = (field: string, value: unknown, what: string): TierKVError =>
    new TierKVError('TKV_INPUT', `${field} is ${described(value)}, not ${what}. Leave it out for none.`, {
      field,
    });
  if (!Number.isInteger(priority) || Math.abs(priority) > 100) {
    throw fault('retention.priority', priority, 'an integer from -100 to 100');
  }
  if (!Number.isFinite(keepMs) || keepMs < 0 || keepMs > KEEP_MS_MAX) {
    throw fault('retention.keepMs', keepMs, 'milliseconds from 0 on');
  }
  return { priority, keepMs };
}

/** @throws TKV_INPUT naming the part of the hint that is none; nothing is retained then */
export function retain(context: RequestContext, sequence: SequenceState, hint: RetentionHint): void {
  const { priority, keepMs } = checkHint(hint);
  const nowUs = context.nowUs();
  const keepUntilUs = keepMs > 0 ? nowUs + Math.ceil(keepMs * 1000) : 0;
  for (const { table } of sequence.groups) context.manager.retain(table, { priority, keepUntilUs }, nowUs);
}

/** What ends a wait: the end of the runtime, and the caller's signal where there is one. */
export function signalsOf({ closing }: RequestContext, { signal }: WaitOptions): AbortSignal[] {
  if (signal !== undefined && !(signal instanceof AbortSignal)) {
    throw new TierKVError(
      'TKV_INPUT',
      `signal must be an AbortSignal, and it is ${described(signal)}. Pass the signal of an AbortController.`,
      {
        field: 'signal',
      },
    );
  }
  return signal === undefined ? [closing] : [closing, signal];
}

export function checkedWait(waitMs = 1000): number {
  if (typeof waitMs === 'number' && waitMs >= 0 && waitMs < 2 ** 31) return waitMs;
  throw new TierKVError('TKV_INPUT', `shareWaitMs is ${described(waitMs)}, not milliseconds from 0 on.`, {
    field: 'shareWaitMs',
  });
}

/** @throws TKV_INPUT for what is no number */
export function checkedPriority(priority = 0): number {
  if (Number.isFinite(priority)) return priority;
  throw new TierKVError(
    'TKV_INPUT',
    `priority is ${described(priority)}, not a number. Lower is served first.`,
    {
      field: 'priority',
    },
  );
}
