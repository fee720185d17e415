/**
 * The decision log. The manager writes every input that it is given and every decision that it takes to a
 * sink, as plain numbers in one defined order. The same inputs give the same decisions, so the log of a run
 * on a real GPU can be replayed on another driver and compared byte for byte.
 */

import type { ResolvedSchedulerConfig } from '../batching/config.ts';
import type { SchedulerSink } from '../batching/schedulerSink.ts';
import { type CodeName, codeNames } from '../codes.ts';

export const InputOp = {
  OPEN: 0,
  LOAD: 1,
  ALLOCATE: 2,
  SEAL: 3,
  RELEASE: 4,
  PREEMPT: 5,
  PREFETCH: 6,
  EVICT: 7,
  COMPLETE: 8,
  CANCEL: 9,
  TICK: 10,
  DEADLINE: 11,
  LOSE: 12,
  ADOPT: 13,
  COPY: 14,
  TRUNCATE: 15,
  MOVE: 16,
  RETAIN: 17,
  DEMOTE: 18,
  QUOTA: 19,
  KEEP: 20,
  LOAD_BACK: 21,
  RECOMPUTE: 22,
  FOUND: 23,
  ADMIT: 24,
  SAVE: 25,
  DAMAGED: 26,
} as const;
export type InputOp = (typeof InputOp)[keyof typeof InputOp];
export const inputOpNames: readonly CodeName<typeof InputOp>[] = codeNames(InputOp);

/** The comments give the numbers that follow. A tier is its position in the configuration, 0 = HBM. */
export const DecisionOp = {
  /** sequence, blocks, matched, matched in HBM, matched in the next tier */
  MATCH: 0,
  /** tier, slot, generation */
  RESERVE: 1,
  /** job, source tier, source slot, target tier, target slot */
  ISSUE: 2,
  /** tier, slot, generation: an evictable replica was chosen to leave */
  EVICT: 3,
  /** tier, slot, generation: it goes without moving down */
  DROP: 4,
  /** tier, slot, generation */
  PUBLISH: 5,
  /** tier, slot, generation */
  FREE: 6,
  /** sequence, block, outcome */
  FAIL: 7,
  /** sequence, from, to: no room and nothing to evict */
  REFUSE: 8,
  /** tier, slot, generation: wrong bytes, never to be read */
  QUARANTINE: 9,
} as const;
export type DecisionOp = (typeof DecisionOp)[keyof typeof DecisionOp];
export const decisionOpNames: readonly CodeName<typeof DecisionOp>[] = codeNames(DecisionOp);

export interface DecisionSink {
  /**
   * A call with its arguments and, where it has some, its words: four a block if they are keys. The words must be
   * copied to be kept.
   */
  input(op: InputOp, nowUs: number, args: readonly number[], words?: Uint32Array): void;
  decision(op: DecisionOp, a: number, b: number, c: number, d: number, e: number): void;
  /** A scheduler begins on the manager. @returns the sink of the scheduler's inputs and decisions */
  scheduler?(head: SchedulerHead, nowUs: number): SchedulerSink;
}

/** Configuration of a scheduler on the manager, as the log keeps it. */
export interface SchedulerHead extends ResolvedSchedulerConfig {
  readonly blockTokens: number;
  readonly sizeClass: number;
}

// The decision log as text, one line an event: `>` for an input of the manager, `<` for its decision. The head names
// version, configuration and policies, so the log alone suffices to repeat the run.
//
//     # tierkv decision log 4 {"unitBytes":[16384],...} 5d1f02aa
//     > 0 open 14 14 0 0 0 <keys in hex> 91c0be77
//     < match 1 14 0 0 0 03a9d1c4
//     # end 3 7f30aa12
//
// A scheduler's lines stand between them (schedulerLog.ts).
//
// The last word of a line is a check over it and all lines before it, so damage is found with the line where it
// begins. The check finds damage, not forgery. Decisions carry no time: runs that differ only in speed have equal
// decisions.

export const LOG_VERSION = 4;
export const logMagic = '# tierkv decision log ';
export const endMagic = '# end ';

const FNV_OFFSET = 0x811c9dc5;
const FNV_PRIME = 0x01000193;

/** The check of the lines so far, carried from line to line: FNV-1a of 32 bits over character codes. */
export class LineCheck {
  #state = FNV_OFFSET;

  /** Takes the line in. @returns its check, eight hexadecimal digits */
  of(line: string): string {
    let state = this.#state;
    for (let i = 0; i < line.length; i++) state = Math.imul(state ^ line.charCodeAt(i), FNV_PRIME);
    this.#state = state;
    return (state >>> 0).toString(16).padStart(8, '0');
  }
}

const HEX: readonly string[] = Array.from({ length: 256 }, (_, byte) => byte.toString(16).padStart(2, '0'));

/** Words as the hexadecimal digits of their bytes, the lowest byte first. */
export function hexOf(words: Uint32Array): string {
  let text = '';
  for (const word of words) {
    text += HEX[word & 255] + HEX[(word >>> 8) & 255] + HEX[(word >>> 16) & 255] + HEX[word >>> 24];
  }
  return text;
}

/** The words of `hexOf`'s text, or undefined if it is malformed. */
export function wordsOf(hex: string): Uint32Array | undefined {
  if (hex.length % 8 !== 0 || !/^[0-9a-f]*$/.test(hex)) return undefined;
  return Uint32Array.from({ length: hex.length / 8 }, (_, i) => {
    const [a, b, c, d] = [0, 2, 4, 6].map((at) => Number.parseInt(hex.slice(i * 8 + at, i * 8 + at + 2), 16));
    return a + b * 2 ** 8 + c * 2 ** 16 + d * 2 ** 24;
  });
}
