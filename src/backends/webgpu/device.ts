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

import { invariant } from '../../runtime/errors.ts';
import { refused } from '../../runtime/tier/slotLedger.ts';
import type { StoreResult } from '../../runtime/tier/tierStore.ts';
import type { AdapterReport } from './types.ts';
import { governed } from './waitGovernor.ts';

const heldInstances = new Set<GPU>();

const ownScopes: readonly GPUErrorFilter[] = ['validation', 'out-of-memory', 'internal'];

/** What a device has reported of work that failed. */
export interface DeviceErrors {
  readonly count: number;
  /** What the last one says; empty where there was none. */
  readonly last: string;
}

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
  #deviceErrors: DeviceErrors = { count: 0, last: '' };
  readonly #popErrorScope: () => Promise<GPUError | null>;
  #announceLoss: (reason: string) => void = () => {};
  readonly #onError = (event: GPUUncapturedErrorEvent): void => {
    event.preventDefault();
    this.#noteError(event.error);
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
    // What a scope of the device's user catches is an error of its passes all the same.
    this.#popErrorScope = device.popErrorScope.bind(device);
    device.popErrorScope = async () => {
      const error = await this.#popErrorScope();
      if (error !== null) this.#noteError(error);
      return error;
    };
  }

  /** Why the device is gone; empty while it lives. */
  get lostReason(): string {
    return this.#lostReason;
  }

  /**
   * Errors that the device reported so far, to everybody or to an error scope of its user's; none of those
   * that this package caught of its own work.
   */
  get deviceErrors(): DeviceErrors {
    return this.#deviceErrors;
  }

  /**
   * Runs commands of this package's own, and tells what the device found wrong with them: an empty text for
   * nothing. Whatever scopes the device's user has open see none of it.
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
    const errors = await popped.catch(() => []); // a lost device says so by itself
    return errors.find((error) => error !== null)?.message.split('\n')[0] ?? '';
  }

  /** `popErrorScope` for a scope of this package's own. */
  popOwnScope(): Promise<GPUError | null> {
    return this.#popErrorScope();
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

// WebGPU's flag values. They are globals in a browser only: under Node `GPUBufferUsage`, `GPUMapMode` and
// `GPUShaderStage` have types and no values, so programs import these.

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

// Which host memory may reach the binding. Everything that a caller hands us passes `bytesFault`, and
// `writeWords` is the only call of `queue.writeBuffer` in tierkv.
//
// Hazard, views of other types: `writeBuffer` with a Float16Array ends the process (SIGFPE), with a DataView
// or a raw SharedArrayBuffer it throws; and a Uint8Array filled from a Float16Array converts numbers instead
// of copying bytes. Uint8Array alone, over whatever memory, is safe.

/** Why an item ends whose memory was detached or resized during the call. */
export const BYTES_TAKEN_AWAY = 'the bytes of the item were taken away during the call';

const WRAPPING = 'new Uint8Array(view.buffer, view.byteOffset, view.byteLength)';

/** Why `bytes` cannot be the bytes of a slot, or of a box in it; empty where they can. */
export function bytesFault(bytes: Uint8Array, wantedBytes: number, of: 'slot' | 'box' = 'slot'): string {
  if (!(bytes instanceof Uint8Array)) {
    return `bytes are no Uint8Array. Wrap their memory: ${WRAPPING}`;
  }
  if (bytes.byteLength === wantedBytes) return '';
  return `${bytes.byteLength} bytes for a ${of} of ${wantedBytes}`;
}

/** Writes `bytes` at byte `offset` of `buffer`, ordered on the queue between the submits before and after. */
export function writeWords(queue: GPUQueue, buffer: GPUBuffer, bytes: Uint8Array, offset: number): void {
  queue.writeBuffer(buffer, offset, bytes);
}
