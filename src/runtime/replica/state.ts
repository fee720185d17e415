/**
 * The life of a replica, one copy of a content in one slot. Only READY is ever read; a slot is FREE again
 * only after the last job on it has retired.
 *
 *     FREE -> RESERVED -> FILLING -> VERIFYING -> READY -> DRAINING -> FREE
 *                |           |          | wrong              ^
 *                v           v          v                    |
 *               FREE      DRAINING   QUARANTINED ------------+
 *
 *     HBM:  RESERVED -> OPEN (private, tokens are appended) -> SEALED -> VERIFYING -> READY | PRIVATE
 *           FILLING -> OPEN  where a copy of another block's bytes is continued
 *
 * PRIVATE holds right bytes that nobody else may find: a second copy of a content whose digest differs, which
 * GPUs that add in another order can give.
 */
export const State = {
  FREE: 0,
  RESERVED: 1,
  FILLING: 2,
  VERIFYING: 3,
  READY: 4,
  QUARANTINED: 5,
  DRAINING: 6,
  OPEN: 7,
  SEALED: 8,
  PRIVATE: 9,
} as const;
export type State = (typeof State)[keyof typeof State];

export const stateNames = [
  'free',
  'reserved',
  'filling',
  'verifying',
  'ready',
  'quarantined',
  'draining',
  'open',
  'sealed',
  'private',
] as const;

export const STATES: number = stateNames.length;

const to = (...states: readonly State[]): number =>
  states.reduce<number>((mask, state) => mask | (1 << state), 0);

/** Bit mask of the states that may follow each state. */
export const successors: readonly number[] = [
  to(State.RESERVED),
  to(State.FILLING, State.OPEN, State.FREE),
  to(State.VERIFYING, State.OPEN, State.QUARANTINED, State.DRAINING),
  to(State.READY, State.PRIVATE, State.QUARANTINED, State.DRAINING),
  to(State.DRAINING),
  to(State.DRAINING),
  to(State.FREE),
  to(State.SEALED, State.DRAINING),
  to(State.VERIFYING, State.DRAINING),
  to(State.DRAINING),
];
