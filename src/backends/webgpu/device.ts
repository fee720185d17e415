/**
 * A live GPUDevice, its origin, and its loss. The loss of a device is an outcome, not an exception: every
 * wait for the GPU goes through `whenMapped` or `whenDone`, which are fulfilled with false as soon as the
 * device is lost. So a wait never hangs, and Dawn's AbortErrors (whose message is empty) go no further.
 *
 * Hazard, dropped GPU object: Dawn's instance lives as long as the JavaScript object that `create` returned.
 * Once that object is garbage-collected, its adapters, devices and buffers use freed memory and the process
 * crashes, even if they are referenced themselves. `heldInstances` keeps the object until the device is
 * destroyed.
 *
 * Hazard, listeners: the binding never releases a listener. A listener that refers to the device keeps the
 * device, its threads and its memory alive, so it is removed once the device is lost.
 */

import { invariant } from '../../runtime/errors.ts';
import { refused } from '../../runtime/tier/slotLedger.ts';
import type { StoreResult } from '../../runtime/tier/tierStore.ts';
import type { AdapterReport } from './types.ts';
import { governed } from './waitGovernor.ts';

const heldInstances = new Set<GPU>();

const ownScopes: readonly GPUErrorFilter[] = ['validation', 'out-of-memory', 'internal'];

/** Errors that a device has reported about failed work. */
export interface DeviceErrors {
  readonly count: number;
  /** Message of the last error; empty without errors. */
  readonly last: string;
}

export class LiveDevice implements AsyncDisposable {
  readonly device: GPUDevice;
  readonly adapter: AdapterReport;
  /** Fulfilled with the reason when the device is lost or disposed of. Never rejects. */
  readonly lost: Promise<string>;
  readonly #instance: GPU | undefined;
  readonly #notice: (line: string) => void;
  readonly #waits: Set<(fulfilled: boolean) => void> = new Set();
  readonly #listeners: Set<() => void> = new Set();
  #sleeps = false;
  #lostReason = '';
  #deviceErrors: DeviceErrors = { count: 0, last: '' };
  readonly #popErrorScope: () => Promise<GPUError | null>;
  #announceLoss: (reason: string) => void = () => {};
  readonly #onError = (event: GPUUncapturedErrorEvent): void => {
    event.preventDefault();
    this.#noteError(event.error);
    this.#notice(`tierkv: the GPU device reports an error: ${event.error.message}`);
  };

  /** @param instance the object that `create` returned; undefined if the device's owner holds it */
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
    // An error that a scope of the device's user catches still counts as an error of the device.
    this.#popErrorScope = device.popErrorScope.bind(device);
    device.popErrorScope = async () => {
      const error = await this.#popErrorScope();
      if (error !== null) this.#noteError(error);
      return error;
    };
  }

  /** Why the device is lost; empty while it lives. */
  get lostReason(): string {
    return this.#lostReason;
  }

  /**
   * Errors that the device reported so far, uncaught or to an error scope of its user. Errors of this
   * package's own work are not included.
   */
  get deviceErrors(): DeviceErrors {
    return this.#deviceErrors;
  }

  /**
   * Runs commands of this package. Error scopes of the device's user do not see their errors.
   * @returns what the device found wrong with them, empty for nothing
   */
  async errorsOf(commands: () => void): Promise<string> {
    const { device } = this;
    for (const filter of ownScopes) device.pushErrorScope(filter);
    let popped: Promise<(GPUError | null)[]>;
    try {
      commands();
    } finally {
      popped = Promise.all(ownScopes.map(() => this.waitFor(() => this.popOwnScope())));
    }
    const errors = await popped.catch(() => []); // the loss of the device is reported elsewhere
    return errors.find((error) => error !== null)?.message.split('\n')[0] ?? '';
  }

  /** `popErrorScope` for a scope of this package. */
  popOwnScope(): Promise<GPUError | null> {
    return this.#popErrorScope();
  }

  /** From now on waiting for this device keeps no core busy (waitGovernor.ts). */
  sleepWhileWaiting(): void {
    this.#sleeps = true;
  }

  /** Calls `listener` at the moment of the loss. @returns a function that unsubscribes */
  onLost(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /** Waits for what `start` begins on the device, such as a `mapAsync`, without keeping a core busy. */
  waitFor<T>(start: () => Promise<T>): Promise<T> {
    return this.#sleeps ? governed(start) : start();
  }

  /**
   * Maps the buffer's first `bytes` bytes.
   * @returns true once they are mapped, false if the device is lost
   */
  whenMapped(buffer: GPUBuffer, mode: GPUMapModeFlags, bytes: number): Promise<boolean> {
    return this.#wait(`mapping ${buffer.label}`, () => buffer.mapAsync(mode, 0, bytes));
  }

  /** @returns true once all work submitted so far has ended, false if the device is lost */
  whenDone(): Promise<boolean> {
    return this.#wait('waiting for the queue', () => this.device.queue.onSubmittedWorkDone());
  }

  /** The result of every item once the device is lost; undefined while it lives. */
  get loss(): StoreResult | undefined {
    return this.#lostReason === '' ? undefined : refused(this.#lostReason);
  }

  /** The result of an item that the loss of the device has ended. */
  refusal(): StoreResult {
    invariant(this.#lostReason !== '', 'only the loss of the device may end work early');
    return refused(this.#lostReason);
  }

  /** Treats the device as lost, since a call on it failed and its state is unknown. */
  giveUp(what: string, error: unknown): void {
    const message = error instanceof Error ? error.message || error.name : String(error);
    this.#end(`${what} failed: ${message}`);
    this.device.destroy();
  }

  /** Ends this object, and leaves the device to its owner. */
  release(): void {
    this.#end('the device was given back to its owner');
    this.device.removeEventListener('uncapturederror', this.#onError);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#end('the device was disposed of');
    this.device.destroy();
    await this.device.lost;
  }

  #noteError({ message }: GPUError): void {
    this.#deviceErrors = { count: this.#deviceErrors.count + 1, last: message.split('\n')[0] };
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
    this.device.popErrorScope = this.#popErrorScope;
    this.device.lost.then(() => {
      this.device.removeEventListener('uncapturederror', this.#onError);
      if (this.#instance !== undefined) heldInstances.delete(this.#instance);
    });
  }
}

// ---- WebGPU's flag values, which are globals in browsers only; under Node the globals have types but no values

export const BufferUsage = {
  MAP_READ: 0x0001,
  MAP_WRITE: 0x0002,
  COPY_SRC: 0x0004,
  COPY_DST: 0x0008,
  INDEX: 0x0010,
  VERTEX: 0x0020,
  UNIFORM: 0x0040,
  STORAGE: 0x0080,
  INDIRECT: 0x0100,
  QUERY_RESOLVE: 0x0200,
} as const;

export const MapMode = { READ: 0x0001, WRITE: 0x0002 } as const;

export const ShaderStage = { VERTEX: 0x0001, FRAGMENT: 0x0002, COMPUTE: 0x0004 } as const;

// ---- host memory that may reach the binding
//
// All bytes of callers pass `bytesFault`, and only `writeWords` calls `queue.writeBuffer`.
//
// Hazard, views of other types: `writeBuffer` with a Float16Array ends the process (SIGFPE); with a DataView
// or a raw SharedArrayBuffer it throws; and a Uint8Array made from a Float16Array converts numbers instead of
// copying bytes. Only Uint8Array is safe, over any memory.

/** The reason for an item whose memory was detached or resized during the call. */
export const BYTES_TAKEN_AWAY = 'the bytes of the item were taken away during the call';

const WRAPPING = 'new Uint8Array(view.buffer, view.byteOffset, view.byteLength)';

/** Why `bytes` cannot be the bytes of a slot, or of a box; empty if they can. */
export function bytesFault(bytes: Uint8Array, wantedBytes: number, of: 'slot' | 'box' = 'slot'): string {
  if (!(bytes instanceof Uint8Array)) {
    return `bytes must be a Uint8Array. Wrap their memory: ${WRAPPING}`;
  }
  if (bytes.byteLength === wantedBytes) return '';
  return `${bytes.byteLength} bytes for a ${of} of ${wantedBytes}`;
}

/**
 * Writes `bytes` at byte `offset` of `buffer`, in the order of the queue: after earlier submits, before
 * later.
 */
export function writeWords(queue: GPUQueue, buffer: GPUBuffer, bytes: Uint8Array, offset: number): void {
  queue.writeBuffer(buffer, offset, bytes);
}
