/**
 * What the device says of the decoder's buffers and commands. WebGPU's calls return before the device has
 * answered: a buffer that it did not give looks like any other, and a command that it refused computes
 * nothing.
 *
 * - What the buffers take is compared with the device's limits before the first of them is made.
 * - A buffer or a command is good only when the error scopes around it have ended without an error.
 */

import { TierKVError } from '../../../../src/index.ts'; // in your project: 'tierkv'

/** A buffer to come. */
export interface BufferNeed {
  readonly label: string;
  readonly bytes: number;
  /** Whether kernels bind all of it at once. */
  readonly isBound: boolean;
  /** The tensor or the setting that makes it so large. */
  readonly field: string;
  /** Begins the sentence that ends with a number of bytes. */
  readonly what: string;
  readonly remedy: string;
}

export type BufferLimits = Pick<GPUSupportedLimits, 'maxBufferSize' | 'maxStorageBufferBindingSize'>;

/** @throws TKV_CONFIG naming the limit and the tensor or setting that is above it */
export function requireWithin(limits: BufferLimits, needs: readonly BufferNeed[]): void {
  for (const { bytes, isBound, field, what, remedy } of needs) {
    for (const limit of ['maxBufferSize', 'maxStorageBufferBindingSize'] as const) {
      if (limit === 'maxStorageBufferBindingSize' && !isBound) continue;
      if (bytes <= limits[limit]) continue;
      const problem = `${what} ${bytes} bytes, and ${limit} of this device is ${limits[limit]}`;
      throw new TierKVError('TKV_CONFIG', `${field}: ${problem}. ${remedy}.`, { field });
    }
  }
}

const filters: readonly GPUErrorFilter[] = ['validation', 'out-of-memory', 'internal'];

/**
 * Error scopes around commands. What lies between `open` and `close` must not wait: the stack of scopes is
 * the device's, and others use it too.
 */
export class ErrorScopes {
  readonly #device: GPUDevice;
  readonly #waitFor: <T>(start: () => Promise<T>) => Promise<T>;
  readonly #ends: Promise<GPUError | null>[] = [];
  #isOpen = false;

  constructor(device: GPUDevice, waitFor: <T>(start: () => Promise<T>) => Promise<T>) {
    this.#device = device;
    this.#waitFor = waitFor;
  }

  open(): void {
    for (const filter of filters) this.#device.pushErrorScope(filter);
    this.#isOpen = true;
  }

  close(): void {
    if (!this.#isOpen) return;
    this.#isOpen = false;
    for (const _ of filters) {
      const end = this.#waitFor(() => this.#device.popErrorScope());
      end.catch(() => {}); // `error` says it, where that is asked
      this.#ends.push(end);
    }
  }

  /** The first error, when all scopes that were closed have ended. Rejects when the device is lost. */
  async error(): Promise<GPUError | undefined> {
    return (await Promise.all(this.#ends)).find((error) => error !== null) ?? undefined;
  }
}

/** Makes buffers, each within scopes of its own. */
export class DeviceBuffers {
  readonly #device: GPUDevice;
  readonly #waitFor: <T>(start: () => Promise<T>) => Promise<T>;
  readonly #made: { readonly label: string; readonly bytes: number; readonly scopes: ErrorScopes }[] = [];

  constructor(device: GPUDevice, waitFor: <T>(start: () => Promise<T>) => Promise<T>) {
    this.#device = device;
    this.#waitFor = waitFor;
  }

  /** @throws TKV_DEVICE for a buffer that is to be mapped and that the device has no memory for */
  make(label: string, bytes: number, usage: number, mapped = false): GPUBuffer {
    const scopes = new ErrorScopes(this.#device, this.#waitFor);
    this.#made.push({ label, bytes, scopes });
    scopes.open();
    try {
      return this.#device.createBuffer({ label, size: bytes, usage, mappedAtCreation: mapped });
    } catch (cause) {
      throw notGiven(label, bytes, cause instanceof Error ? cause.message : String(cause));
    } finally {
      scopes.close();
    }
  }

  /**
   * Fulfilled when the device has given all of them. @throws TKV_DEVICE naming the one that it did not give
   */
  async given(): Promise<void> {
    for (const { label, bytes, scopes } of this.#made.splice(0)) {
      const error = await scopes.error();
      if (error !== undefined) throw notGiven(label, bytes, error.message);
    }
  }
}

function notGiven(label: string, bytes: number, why: string): TierKVError {
  const [line] = why.split('\n');
  return new TierKVError(
    'TKV_DEVICE',
    `The device does not give ${bytes} bytes for ${label} (${line}). Take a smaller model or less memory for ` +
      'KV, or free memory of the device.',
    { field: label },
  );
}
