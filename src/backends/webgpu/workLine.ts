/**
 * A line of work for the device. Work is done in the order in which it was pushed:
 *
 *     work   | a | b | c .. | .. c | d | e |
 *     batch  | a | b | c .. | .. c | d | e |      one encoder and one submit for each batch
 *
 * Work goes into the open batch until the batch is full, work of another kind comes, or the line is empty. A
 * batch is submitted before the line waits for anything, so a line never waits for its own batch. The first
 * work starts in a microtask, so that calls of one turn of the event loop share a batch.
 *
 * A pool has three lines: uploads, readbacks, and work that stays on the device. They wait for different
 * buffers, so no line holds up another.
 */

import { invariant } from '../../runtime/errors.ts';
import type { StoreResult } from '../../runtime/tier/tierStore.ts';
import type { LiveDevice } from './device.ts';

/** The commands of one submit, and the items that end with them. */
export interface WorkBatch {
  /** Whether no further work fits. */
  readonly full: boolean;
  encode(encoder: GPUCommandEncoder): void;
  /**
   * Called after the submit. Ends every item, also if the device is lost. Never rejects.
   * @param errors what the device finds wrong with the commands, empty for nothing; an item succeeds only
   * after this is known
   */
  finish(errors: Promise<string>): Promise<void>;
}

/** Opens the batches of one kind. */
export interface BatchKind<B extends WorkBatch> {
  readonly name: string;
  /** An empty batch, once the buffers that it needs are free; undefined if the device is lost. */
  open(): Promise<B | undefined>;
}

/** The work of one item. */
export interface Work<B extends WorkBatch> {
  readonly kind: BatchKind<B>;
  /**
   * Puts as much of the work into the batch as fits; at least a part if the batch is empty.
   * @returns whether all of the work is in batches now
   */
  addTo(batch: B): boolean;
  /** Ends the work. Its rest goes into no further batch. */
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

  /** @returns true if all of the work is in batches or has ended, false if it needs a new batch */
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
    invariant(
      batch !== undefined || this.#live.loss !== undefined,
      'a batch must open while the device lives',
    );
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
