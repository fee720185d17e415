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
import * as is from '../../runtime/kinds.ts';
import { refused, type StoreResult } from '../../runtime/tier/tierStore.ts';
import type { AdapterReport } from './types.ts';
import {
  isKept,
  keepDevice,
  unwatchDevice,
  type WatchedDevice,
  type Watcher,
  watchDevice,
} from './watchedDevice.ts';

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
  #destroyed = false;
  #lostReason = '';
  #deviceErrors: DeviceErrors = { count: 0, last: '' };
  readonly #watched: WatchedDevice;
  readonly #settlers: Set<() => boolean> = new Set();
  readonly #watcher: Watcher = {
    error: (error) => this.#noteError(error),
    destroying: () => {
      this.#destroyed = true;
      const mayGo = this.#settle();
      if (!mayGo) this.#end('a copy on the device does not end');
      return mayGo;
    },
  };
  #announceLoss: (reason: string) => void = () => {};
  readonly #noteError = ({ message }: GPUError): void => {
    this.#deviceErrors = { count: this.#deviceErrors.count + 1, last: message.split('\n')[0] };
  };
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
    is.object().read(device, 'device');
    is.object().read(adapter, 'adapter');
    is.func().read(notice, 'notice');
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
    this.#watched = watchDevice(device, this.#watcher);
  }

  /** Whether its user has destroyed the device, of which `lost` speaks soon: its mapped memory is gone already. */
  get isDestroyed(): boolean {
    return this.#destroyed;
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
    return this.#watched.popErrorScope.call(this.device);
  }

  /** From now on waiting for this device keeps no core busy. */
  sleepWhileWaiting(): void {
    this.#sleeps = true;
  }

  /** Calls `listener` at the moment of the loss. @returns a function that unsubscribes */
  onLost(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /**
   * Calls `settle` before the device's mapped memory goes, by whatever cause this process knows of: it ends copies that
   * touch that memory, and returns whether it has. @returns a function that unsubscribes
   */
  onSettle(settle: () => boolean): () => void {
    this.#settlers.add(settle);
    return () => this.#settlers.delete(settle);
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
    this.#destroy();
  }

  /** Ends this object, and leaves the device to its owner. */
  release(): void {
    this.#end('the device was given back to its owner');
    this.device.removeEventListener('uncapturederror', this.#onError);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#end('the device was disposed of');
    if (this.#destroy()) await this.device.lost;
  }

  /** @returns false where the device is kept, since a copy touches its memory */
  #destroy(): boolean {
    if (isKept(this.device)) return false;
    this.device.destroy();
    return true;
  }

  #settle(): boolean {
    if ([...this.#settlers].map((settle) => settle()).includes(false) && !isKept(this.device)) {
      keepDevice(this.device);
      this.#notice(`tierkv: a copy on the device does not end, so the device is kept until the process ends`);
    }
    return !isKept(this.device);
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
    this.#settle();
    for (const settle of this.#waits) settle(false);
    for (const listener of this.#listeners) listener();
    this.#announceLoss(reason);
    unwatchDevice(this.device, this.#watcher);
    this.device.lost.then(() => {
      this.device.removeEventListener('uncapturederror', this.#onError);
      if (this.#instance !== undefined) heldInstances.delete(this.#instance);
    });
  }
}

// ---- WebGPU's flag values, which are globals in browsers only; under Node the globals have types but no values

/** Values of WebGPU's `GPUBufferUsage`, which Node lacks. */
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

/** Values of WebGPU's `GPUMapMode`, which Node lacks. */
export const MapMode = { READ: 0x0001, WRITE: 0x0002 } as const;

/** Values of WebGPU's `GPUShaderStage`, which Node lacks. */
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

// Waits for the GPU without keeping a core busy. For that it replaces `globalThis.setImmediate` for short
// moments.
//
// Why: while any promise of the webgpu binding is pending, the binding looks at the device in every turn of
// the event loop. It schedules each look by handing a native function to `globalThis.setImmediate`, so a core
// is busy for as long as anything is under way. The binding has no setting for this.
//
// What is patched: only while the binding itself runs (a call that starts a wait, or a look that goes on with
// one), `globalThis.setImmediate` is `schedule` below; afterwards it is the former function again. `schedule`
// hands every other callback on unchanged. For the first 8 ms after a wait has started, it hands looks on as
// well. Later looks run when something else wakes the event loop, and at least once a millisecond:
//
//     wait starts |x x x x x x x x|   x    x  x   x   x|      x = a look
//                 |     8 ms      |  asleep in between |

type SetImmediate = typeof globalThis.setImmediate;
type Callback = (...args: unknown[]) => void;

/**
 * Milliseconds of eager looks. A staging buffer takes less on every device measured, so transfers lose no
 * time.
 */
const EAGER_MS = 8;
const SLEEP_MS = 1;

let eagerUntilMs = 0;
let delayedLooks = 0;

/** Runs a call into the binding that may start a wait. */
export function governed<T>(call: () => T): T {
  if (typeof globalThis.setImmediate !== 'function') return call(); // a page has no such binding
  eagerUntilMs = performance.now() + EAGER_MS;
  return withReplacement(call);
}

/** Number of looks that this process has delayed so far. */
export function looksPutOff(): number {
  return delayedLooks;
}

/** The function that `schedule` replaces at present; undefined while nothing is replaced. */
let former: SetImmediate | undefined;
/** The function whose properties (overloads, the promisify symbol) were copied onto `schedule`. */
let imitated: SetImmediate | undefined;

function withReplacement<T>(call: () => T): T {
  if (former !== undefined) return call();
  former = globalThis.setImmediate;
  if (imitated !== former) {
    Object.assign(schedule, former);
    imitated = former;
  }
  // The overloads and the promisify symbol were copied onto `schedule`; its type does not show them.
  globalThis.setImmediate = schedule as unknown as SetImmediate;
  try {
    return call();
  } finally {
    globalThis.setImmediate = former;
    former = undefined;
  }
}

/** Replaces `setImmediate`. Code that kept a reference may go on calling it: only looks are delayed. */
function schedule(callback: Callback, ...args: unknown[]): NodeJS.Immediate {
  const next = former ?? globalThis.setImmediate;
  if (!isLook(callback)) return next(callback, ...args);
  const look = (): void => withReplacement(() => callback(...args));
  if (performance.now() < eagerUntilMs) return next(look);
  delayedLooks += 1;
  let looked = false;
  const lookOnce = (): void => {
    if (looked) return;
    looked = true;
    clearTimeout(timer);
    clearImmediate(immediate);
    look();
  };
  const timer = setTimeout(lookOnce, SLEEP_MS);
  // An unreferenced immediate lets the loop sleep, and runs when the loop wakes.
  const immediate = next(lookOnce).unref();
  return immediate;
}

/**
 * Whether this is the binding's callback: a nameless native function, like a promise's `resolve` and few
 * others.
 */
function isLook(callback: unknown): boolean {
  return (
    typeof callback === 'function' &&
    callback.name === '' &&
    Function.prototype.toString.call(callback).includes('[native code]')
  );
}

// A line of work for the device. Work is done in the order in which it was pushed:
//
//     work   | a | b | c .. | .. c | d | e |
//     batch  | a | b | c .. | .. c | d | e |      one encoder and one submit for each batch
//
// Work goes into the open batch until the batch is full, work of another kind comes, or the line is empty. A
// batch is submitted before the line waits for anything, so a line never waits for its own batch. The first
// work starts in a microtask, so that calls of one turn of the event loop share a batch.
//
// A pool has three lines: uploads, readbacks, and work that stays on the device. They wait for different
// buffers, so no line holds up another.

/** The commands of one submit, and the items that end with them. */
export interface WorkBatch {
  /** Whether no further work fits. */
  readonly full: boolean;
  /**
   * Brings what is still on its way into the batch, which gets no more work. Batches of a line that come behind it are
   * submitted behind it. @returns undefined where all is there; else a promise that never rejects
   */
  fill?(): Promise<void> | undefined;
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
  /** Whether its batches share tables, so that one must be submitted before the next is begun. Default false. */
  readonly isAlone?: boolean;
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

interface OpenBatch {
  readonly kind: BatchKind<WorkBatch>;
  readonly batch: WorkBatch;
}

export class WorkLine {
  readonly #live: LiveDevice;
  readonly #label: string;
  readonly #gatherAt: number;
  #queue: Work<WorkBatch>[] = [];
  #running = false;
  /** Batches that were closed and have not ended. */
  #underWay = 0;
  /** Batches that wait to be submitted, and the last of them. */
  #filling = 0;
  #filled: Promise<void> = Promise.resolve();
  #open: OpenBatch | undefined;

  /**
   * @param gatherAt batches under way from which on a batch that has room waits for more work, until one of them
   * ends. A submit costs the same for one item as for many. Left out, what was pushed in one turn is submitted in it
   */
  constructor(live: LiveDevice, label: string, gatherAt: number = Number.POSITIVE_INFINITY) {
    this.#live = live;
    this.#label = label;
    this.#gatherAt = gatherAt;
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
    if (this.#underWay < this.#gatherAt) this.#flush();
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
    if (kind.isAlone === true) await this.#filled;
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
    this.#underWay++;
    let filled: Promise<void> | undefined;
    try {
      filled = open.batch.fill?.();
    } catch (error) {
      this.#giveUp(open.kind, error);
    }
    if (filled === undefined && this.#filling === 0) {
      this.#submit(open);
      return;
    }
    this.#filling++;
    this.#filled = Promise.all([this.#filled, filled]).then(() => {
      this.#filling--;
      this.#submit(open);
    });
  }

  #submit({ kind, batch }: OpenBatch): void {
    const { device } = this.#live;
    const errors =
      this.#live.loss !== undefined
        ? Promise.resolve('')
        : this.#live.errorsOf(() => {
            try {
              const encoder = device.createCommandEncoder({ label: `${this.#label}.${kind.name}` });
              batch.encode(encoder);
              device.queue.submit([encoder.finish()]);
            } catch (error) {
              this.#giveUp(kind, error);
            }
          });
    void batch.finish(errors).finally(() => {
      this.#underWay--;
      if (!this.#running) this.#flush();
    });
  }

  #giveUp(kind: BatchKind<WorkBatch>, error: unknown): void {
    if (this.#live.loss === undefined) this.#live.giveUp(`${this.#label}.${kind.name}`, error);
  }
}
