/**
 * Keeps manager and engine going. Jobs go to the engine in the call in which the manager issues them; ends go
 * back when they happen and wake the callers that wait for them. A job that has not ended by its deadline is
 * given up: its waiters go on without it, its slots wait for it. While no transfer is in flight, nothing runs
 * here.
 */

import type { TransferEngine } from '../backends/engine/transferEngine.ts';
import { runningClock } from '../backends/runningClock.ts';
import {
  JobCarrier,
  type KVManager,
  type ManagerListener,
  Outcome,
  type Sequence,
} from '../runtime/index.ts';
import * as is from '../runtime/kinds.ts';
import { type Kinds, type OptionTable, optionTable } from '../runtime/options.ts';
import type { Alarm } from './kvMigrator.ts';

/**
 * An alarm that does not keep the process alive. It counts the time in which the process ran, as the engine
 * does, and rings behind what has ended by then: a process that stood takes the ends first.
 */
export const processAlarm: Alarm = (delayUs, ring) => runningClock.alarm(Math.ceil(delayUs / 1000), ring);

export class ManagerLoop {
  readonly #manager: KVManager;
  readonly #engine: TransferEngine;
  readonly #alarm: Alarm;
  /** To be held while no device takes jobs. */
  readonly carrier: JobCarrier;
  readonly #waiting: Map<Sequence, (() => void)[]> = new Map();
  #idleWaiters: (() => void)[] = [];
  readonly #listener: ManagerListener;
  #cancelAlarm: (() => void) | undefined;
  #isDeferring = false;
  #roomWasFreed = false;
  readonly #movedMeanwhile: Parameters<NonNullable<ManagerListener['moved']>>[] = [];
  readonly #roomFreed: (() => void)[] = [];
  readonly #settled: Set<() => void> = new Set();
  #reason = '';
  #refusing: () => void = () => {};

  /** @param options.also another listener, called behind this one */
  constructor(
    manager: KVManager,
    engine: TransferEngine,
    { alarm = processAlarm, also = {} }: { alarm?: Alarm; also?: ManagerListener } = {},
  ) {
    this.#manager = manager;
    this.#engine = engine;
    this.#alarm = alarm;
    this.carrier = new JobCarrier(manager, engine);
    engine.onEnd((end) => {
      if (end.outcome === Outcome.REFUSED) this.#refusing();
      this.#reason = end.reason;
      this.carrier.complete(end);
      this.#reason = '';
    });
    this.#listener = {
      ...also,
      jobsIssued: () => {
        this.carrier.submit();
        this.#watchDeadlines();
      },
      settled: (sequence) => {
        this.#wake(sequence);
        for (const settled of this.#settled) settled();
        also.settled?.(sequence);
      },
      moved: (position, key, outcome) => {
        if (this.#isDeferring) this.#movedMeanwhile.push([position, key, outcome]);
        else also.moved?.(position, key, outcome);
      },
      roomFreed: () => {
        if (this.#cancelAlarm !== undefined && manager.inspect.nextDeadlineUs === Number.POSITIVE_INFINITY) {
          this.#cancelAlarm();
          this.#cancelAlarm = undefined;
        }
        if (this.#isDeferring) {
          this.#roomWasFreed = true;
          return;
        }
        if (this.#idleWaiters.length > 0 && this.#isIdle()) {
          for (const wake of this.#idleWaiters.splice(0)) wake();
        }
        for (const freed of this.#roomFreed) freed();
        also.roomFreed?.();
      },
    };
    manager.listen(this.#listener);
  }

  /** Why the transfer was not carried out whose end is told just now; empty where it was, or none is. */
  get reason(): string {
    return this.#reason;
  }

  /**
   * Runs several manager calls as one, such as the calls of a scheduler's step: listeners to room and moves
   * are notified afterwards, so none can call the manager in between.
   */
  deferNotifications<T>(calls: () => T): T {
    this.#isDeferring = true;
    try {
      return calls();
    } finally {
      this.#isDeferring = false;
      for (const move of this.#movedMeanwhile.splice(0)) this.#listener.moved?.(...move);
      if (this.#roomWasFreed) {
        this.#roomWasFreed = false;
        this.#listener.roomFreed?.();
      }
    }
  }

  /** Calls `freed` when a job ends or HBM room is freed. @returns unsubscribe */
  onRoom(freed: () => void): () => void {
    this.#roomFreed.push(freed);
    return () => {
      const at = this.#roomFreed.indexOf(freed);
      if (at !== -1) this.#roomFreed.splice(at, 1);
    };
  }

  /**
   * Calls `settled` in the moment in which a sequence's last pending block settles, also by a call that ended
   * no job and freed no room: an eviction may give its slot to a block that waited. It must not call the
   * manager. @returns unsubscribe
   */
  onSettled(settled: () => void): () => void {
    this.#settled.add(settled);
    return () => void this.#settled.delete(settled);
  }

  /** Calls `refusing` just before the manager hears that a transfer was refused. */
  beforeRefusal(refusing: () => void): void {
    this.#refusing = refusing;
  }

  /** Fulfilled when no block of the sequence waits for a job, or the sequence has ended. */
  async settled(sequence: Sequence): Promise<void> {
    if (sequence.pending === 0) return;
    await new Promise<void>((wake) => {
      const waiters = this.#waiting.get(sequence);
      if (waiters === undefined) this.#waiting.set(sequence, [wake]);
      else waiters.push(wake);
    });
  }

  /**
   * Fulfilled when no transfer is in flight, except for transfers given up at their deadline. The end of one
   * may start others, such as the migrator's, in the next microtask: so it looks once more after that.
   */
  async idle(): Promise<void> {
    do {
      if (!this.#isIdle()) {
        await new Promise<void>((wake) => {
          this.#idleWaiters.push(wake);
        });
      }
      await Promise.resolve();
    } while (!this.#isIdle());
  }

  #isIdle(): boolean {
    return this.#manager.inspect.jobsInFlight === this.#manager.inspect.jobsOverdue;
  }

  #wake(sequence: Sequence): void {
    const waiters = this.#waiting.get(sequence);
    this.#waiting.delete(sequence);
    for (const wake of waiters ?? []) wake();
  }

  /** One alarm at a time, for the earliest deadline known when it was set. */
  #watchDeadlines(): void {
    if (this.#cancelAlarm !== undefined) return;
    const dueUs = this.#manager.inspect.nextDeadlineUs;
    if (dueUs === Number.POSITIVE_INFINITY) return;
    this.#cancelAlarm = this.#alarm(Math.max(0, dueUs - this.#engine.nowUs()), () => {
      this.#cancelAlarm = undefined;
      this.#expire();
      this.#watchDeadlines();
    });
  }

  #expire(): void {
    const nowUs = this.#engine.nowUs();
    if (this.#manager.inspect.nextDeadlineUs > nowUs) return;
    this.#manager.tick(nowUs);
    this.#engine.expire();
  }
}

// Waits that signals can end. No listener stays on a signal once the wait is over, however it ended.

export interface WaitOptions {
  /**
   * Ends the wait: the call then rejects at once with the signal's reason. Without effect once the call has
   * its result.
   */
  readonly signal?: AbortSignal | undefined;
}

export const waitOptionsTable: OptionTable<WaitOptions> = optionTable({
  signal: is.optional(is.passed()),
} satisfies Kinds<WaitOptions>);

/** @throws the reason of the first signal that is raised */
export function throwIfAborted(signals: readonly AbortSignal[]): void {
  for (const signal of signals) signal.throwIfAborted();
}

/**
 * The end of `work`, or the reason of the signal that is raised before it; work is not begun when one was
 * already. It is only no longer waited for: the caller calls off what it began.
 */
export async function unlessAborted<T>(signals: readonly AbortSignal[], work: () => Promise<T>): Promise<T> {
  throwIfAborted(signals);
  const raised = Promise.withResolvers<never>();
  const onAbort = ({ target }: Event): void => raised.reject((target as AbortSignal).reason);
  for (const signal of signals) signal.addEventListener('abort', onAbort);
  try {
    return await Promise.race([work(), raised.promise]);
  } finally {
    for (const signal of signals) signal.removeEventListener('abort', onAbort);
  }
}
