/**
 * A line of work for the device, done in the order in which it was pushed:
 *
 *     work   | a | b | c .. | .. c | d | e |
 *     batch  | a | b | c .. | .. c | d | e |      one encoder and one submit for each batch
 *
 * Work goes into the open batch until that is full, until work of another kind comes, or until no work is
 * left. A batch is submitted before the line waits for anything, so a line never waits for what it holds
 * itself. The first work starts in a microtask, so that calls made in one turn of the event loop share a
 * batch.
 *
 * A pool has one line for each of: uploads, readbacks, and work that stays on the device. They wait for
 * different buffers, so none holds up another.
 */

import { invariant } from '../../runtime/errors.ts';
import type { StoreResult } from '../../runtime/tier/tierStore.ts';
import type { LiveDevice } from './device.ts';

/** Commands of one submit, and the items that end with them. */
export interface WorkBatch {
  /** No further work fits. */
  readonly full: boolean;
  encode(encoder: GPUCommandEncoder): void;
  /**
   * Called after the submit; ends every item, also when the device is gone. Never rejected.
   * @param errors what the device finds wrong with the commands, empty for nothing. No item ends as done
   * before it is known
   */
  finish(errors: Promise<string>): Promise<void>;
}

/** Where batches of a kind come from. */
export interface BatchKind<B extends WorkBatch> {
  readonly name: string;
  /** An empty batch, as soon as the buffers that it needs are free; undefined when the device is gone. */
  open(): Promise<B | undefined>;
}

/** One item of a call. */
export interface Work<B extends WorkBatch> {
  readonly kind: BatchKind<B>;
  /**
   * Puts as much of the work into the batch as fits; into an empty one, a part at least.
   * @returns whether none of it is left
   */
  addTo(batch: B): boolean;
  /** The work ends here: it, or the rest of it, goes into no batch. */
  refuse(end: StoreResult): void;
}

export class WorkLine {
  readonly #live: LiveDevice;
  readonly #label: string;
  #queue: Work<WorkBatch>[] = [];
  #running = false;
  #open: { readonly kind: BatchKind<WorkBatch>; readonly batch: WorkBatch } | undefined;

  constructor(live: LiveDevice, label: string) {
    this.#live = live;
    this.#label = label;
  }

  push<B extends WorkBatch>(work: Work<B>): void {
    this.#queue.push(work as Work<WorkBatch>);
    if (this.#running) return;
    this.#running = true;
    queueMicrotask(() => void this.#run());
  }

  async #run(): Promise<void> {
    while (this.#queue.length > 0) {
      const queue = this.#queue;
      this.#queue = [];
      for (const work of queue) {
        try {
          while (!this.#add(work)) await this.#begin(work);
        } catch (error) {
          this.#giveUp(work.kind, error);
          work.refuse(this.#live.refusal());
        }
      }
    }
    this.#flush();
    this.#running = false;
  }

  /** True when all of the work is in batches, or it has ended; false when it needs a new batch. */
  #add(work: Work<WorkBatch>): boolean {
    const { loss } = this.#live;
    if (loss !== undefined) {
      work.refuse(loss);
      return true;
    }
    if (this.#open?.kind !== work.kind) return false;
    const { batch } = this.#open;
    const done = work.addTo(batch);
    if (batch.full || !done) this.#flush();
    return done;
  }

  async #begin({ kind }: Work<WorkBatch>): Promise<void> {
    this.#flush();
    const batch = await kind.open();
    invariant(batch !== undefined || this.#live.loss !== undefined, 'a batch opens while the device lives');
    if (batch !== undefined) this.#open = { kind, batch };
  }

  #flush(): void {
    const open = this.#open;
    if (open === undefined) return;
    this.#open = undefined;
    const { device } = this.#live;
    const errors = this.#live.errorsOf(() => {
      try {
        const encoder = device.createCommandEncoder({ label: `${this.#label}.${open.kind.name}` });
        open.batch.encode(encoder);
        device.queue.submit([encoder.finish()]);
      } catch (error) {
        this.#giveUp(open.kind, error);
      }
    });
    void open.batch.finish(errors);
  }

  #giveUp(kind: BatchKind<WorkBatch>, error: unknown): void {
    if (this.#live.loss === undefined) this.#live.giveUp(`${this.#label}.${kind.name}`, error);
  }
}
