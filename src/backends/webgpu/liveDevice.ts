/**
 * A GPUDevice, where it came from, and its end. Losing a device is an outcome, not an exception: every wait for the GPU
 * goes through `whenMapped` or `whenDone`, and each of them is fulfilled, with `false`, the moment the device is gone.
 * So nothing that waits on a device can hang, and Dawn's AbortErrors (whose message is empty) end here.
 *
 * Hazard, dropped GPU object: Dawn's instance lives as long as the JavaScript object that `create` returned. Once that
 * is garbage-collected, the adapters, devices and buffers made from it use freed memory and the process crashes, however
 * firmly they are themselves held. `heldInstances` keeps it until the device has been destroyed.
 *
 * Hazard, listeners: the binding holds them for ever, so one that knows the device keeps it, its threads and its memory. It
 * is removed once the device is lost.
 */

import { CacheDistance } from './cacheDistance.ts';
import type { AdapterReport } from './types.ts';
import { governed } from './waitGovernor.ts';

const heldInstances = new Set<GPU>();

export class LiveDevice implements AsyncDisposable {
  readonly device: GPUDevice;
  readonly adapter: AdapterReport;
  /** Of its cores, where it runs on the host's. */
  readonly cacheDistance: CacheDistance = new CacheDistance();
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

  /** Maps the buffer's first `bytes` bytes: true when they are mapped, false when the device is gone. */
  whenMapped(buffer: GPUBuffer, mode: GPUMapModeFlags, bytes: number): Promise<boolean> {
    return this.#wait(`mapping ${buffer.label}`, () => buffer.mapAsync(mode, 0, bytes));
  }

  /** True when all work submitted so far has ended, false when the device is gone. */
  whenDone(): Promise<boolean> {
    return this.#wait('waiting for the queue', () => this.device.queue.onSubmittedWorkDone());
  }

  /** Gives the device up: a call failed on it in a way that leaves its state unknown. */
  giveUp(reason: string): void {
    this.#end(reason);
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
      const begun = this.#sleeps ? governed(start) : start();
      begun.then(
        () => settle(true),
        (error: Error) => {
          const why = error.message === '' ? error.name : error.message;
          if (this.#lostReason === '') this.giveUp(`${what} failed: ${why}`);
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
