/**
 * A GPUDevice, where it came from, and its end. Losing a device is an outcome, not an exception: every wait
 * for the GPU goes through `whenMapped` or `whenDone`, and each of them is fulfilled with `false` as soon as
 * the device is gone. So nothing that waits on a device can hang, and Dawn's AbortErrors (whose message is
 * empty) end here.
 *
 * Hazard, dropped GPU object: Dawn's instance lives as long as the JavaScript object that `create` returned.
 * Once that is garbage-collected, the adapters, devices and buffers made from it use freed memory and the
 * process crashes, however firmly they are themselves held. `heldInstances` keeps it until the device has
 * been destroyed.
 *
 * Hazard, listeners: the binding never lets go of one, so a listener that knows the device keeps it, its
 * threads and its memory alive. It is removed once the device is lost.
 */

import { invariant } from '../../../runtime/errors.ts';
import { refused } from '../../../runtime/tier/slotLedger.ts';
import type { StoreResult } from '../../../runtime/tier/tierStore.ts';
import type { AdapterReport } from '../types.ts';
import { governed } from '../wait/waitGovernor.ts';

const heldInstances = new Set<GPU>();

export class LiveDevice implements AsyncDisposable {
  readonly device: GPUDevice;
  readonly adapter: AdapterReport;
  /** Fulfilled with the reason when the device is gone, also when that was by `dispose`. Never rejected. */
  readonly lost: Promise<string>;
  readonly #instance: GPU | undefined;
  readonly #notice: (line: string) => void;
  readonly #waits: Set<(fulfilled: boolean) => void> = new Set();
  readonly #listeners: Set<() => void> = new Set();
  #sleeps = false;
  #lostReason = '';
  #deviceErrors = 0;
  #announceLoss: (reason: string) => void = () => {};
  readonly #onError = (event: GPUUncapturedErrorEvent): void => {
    event.preventDefault();
    this.#deviceErrors += 1;
    this.#notice(`tierkv: the GPU device reports an error: ${event.error.message}`);
  };

  /** @param instance the object that `create` gave; undefined for a device whose owner holds it */
  constructor(
    device: GPUDevice,
    adapter: AdapterReport,
    instance: GPU | undefined,
    notice: (line: string) => void = () => {},
  ) {
    this.device = device;
    this.adapter = adapter;
    this.#instance = instance;
    this.#notice = notice;
    if (instance !== undefined) heldInstances.add(instance);
    this.lost = new Promise((resolve) => {
      this.#announceLoss = resolve;
    });
    device.lost.then((info) => {
      this.#end(info.message === '' ? `device lost (${info.reason})` : `device lost: ${info.message}`);
    });
    device.addEventListener('uncapturederror', this.#onError);
  }

  /** Why the device is gone; empty while it lives. */
  get lostReason(): string {
    return this.#lostReason;
  }

  /** Errors that the device reported and no scope caught. */
  get deviceErrors(): number {
    return this.#deviceErrors;
  }

  /** From now on waiting for this device costs no core; see waitGovernor.ts. */
  sleepWhileWaiting(): void {
    this.#sleeps = true;
  }

  /** Calls `listener` in the moment of the loss. The function returned unsubscribes. */
  onLost(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /** Waits for what `start` begins on the device, such as a `mapAsync`, as the device's own waits do. */
  waitFor<T>(start: () => Promise<T>): Promise<T> {
    return this.#sleeps ? governed(start) : start();
  }

  /** Maps the buffer's first `bytes` bytes: true when they are mapped, false when the device is gone. */
  whenMapped(buffer: GPUBuffer, mode: GPUMapModeFlags, bytes: number): Promise<boolean> {
    return this.#wait(`mapping ${buffer.label}`, () => buffer.mapAsync(mode, 0, bytes));
  }

  /** True when all work submitted so far has ended, false when the device is gone. */
  whenDone(): Promise<boolean> {
    return this.#wait('waiting for the queue', () => this.device.queue.onSubmittedWorkDone());
  }

  /** The end of every item once the device is gone; undefined while it lives. */
  get loss(): StoreResult | undefined {
    return this.#lostReason === '' ? undefined : refused(this.#lostReason);
  }

  /** The end of an item that the loss of the device has ended. */
  refusal(): StoreResult {
    invariant(this.#lostReason !== '', 'only the loss of the device ends work early');
    return refused(this.#lostReason);
  }

  /** Gives the device up: a call on it failed, which leaves its state unknown. */
  giveUp(what: string, error: unknown): void {
    const message = error instanceof Error ? error.message || error.name : String(error);
    this.#end(`${what} failed: ${message}`);
    this.device.destroy();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#end('the device was disposed of');
    this.device.destroy();
    await this.device.lost;
  }

  #wait(what: string, start: () => Promise<undefined>): Promise<boolean> {
    return new Promise((resolve) => {
      if (this.#lostReason !== '') return resolve(false);
      const settle = (fulfilled: boolean): void => {
        this.#waits.delete(settle);
        resolve(fulfilled && this.#lostReason === '');
      };
      this.#waits.add(settle);
      this.waitFor(start).then(
        () => settle(true),
        (error: unknown) => {
          if (this.#lostReason === '') this.giveUp(what, error);
          settle(false);
        },
      );
    });
  }

  #end(reason: string): void {
    if (this.#lostReason !== '') return;
    this.#lostReason = reason;
    for (const settle of this.#waits) settle(false);
    for (const listener of this.#listeners) listener();
    this.#announceLoss(reason);
    this.device.lost.then(() => {
      this.device.removeEventListener('uncapturederror', this.#onError);
      if (this.#instance !== undefined) heldInstances.delete(this.#instance);
    });
  }
}
