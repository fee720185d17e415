/**
 * A store's directory for the thread of a page, whose files a worker inside has: each call is a message to it, and bytes go
 * there and back as buffers that change hands. The worker is a part of this code, from an address of its own (`blob:`), so
 * nothing has to be served beside the bundle. It ends with the store.
 */

import programText from 'tierkv:folder-worker';
import {
  DataRanges,
  type DirectoryOps,
  type FolderFile,
  IoError,
  type StoreFolder,
} from '../backends/file/dataFile.ts';
import { configError, type ErrorCode, TierKVError } from '../runtime/errors.ts';
import { allocates, lockDirectory, noDirectIo, privateFiles, problemIn, requireQuota } from './opfsFiles.ts';

/** What the worker can be asked for. Files are numbers. */
export interface FolderCalls {
  begin(dir: string): Promise<void>;
  has(name: string): Promise<boolean>;
  headOf(name: string): Promise<Uint8Array | string | undefined>;
  identityOf(name: string): Promise<string>;
  rename(from: string, to: string): Promise<void>;
  remove(name: string): Promise<void>;
  open(
    name: string,
    how: 'kept' | 'made' | 'replaced',
  ): Promise<{ readonly file: number; readonly sizeBytes: number }>;
  read(file: number, lengths: readonly number[], at: number): Promise<Uint8Array>;
  /** @returns the file's length */
  write(file: number, bytes: Uint8Array, at: number): Promise<number>;
  truncate(file: number, bytes: number): Promise<void>;
  /** @returns the file's length */
  allocate(file: number, at: number, bytes: number): Promise<number>;
  flush(file: number): Promise<void>;
  close(file: number): Promise<void>;
}

export interface FolderCall {
  readonly id: number;
  readonly name: keyof FolderCalls;
  readonly args: readonly unknown[];
}

export type FolderAnswer =
  | { readonly id: number; readonly result: unknown }
  | {
      readonly id: number;
      readonly problem: {
        /** An errno, or the code of a TierKVError. */
        readonly code: string;
        readonly message: string;
        readonly field?: string | undefined;
        readonly path?: string | undefined;
      };
    };

interface PageWorker {
  onmessage: ((event: { readonly data: FolderAnswer }) => void) | null;
  onerror: ((event: { readonly message?: string }) => void) | null;
  postMessage(call: FolderCall, moved: readonly ArrayBuffer[]): void;
  terminate(): void;
}

const { Worker, URL: addresses } = globalThis as unknown as {
  readonly Worker: new (address: string, options: object) => PageWorker;
  readonly URL: { createObjectURL(of: Blob): string; revokeObjectURL(address: string): void };
};

/** @throws TKV_CONFIG where the page may not start a worker; TKV_IO where the browser gives no private files */
export async function openFolderInWorker(dir: string): Promise<StoreFolder> {
  const port = new FolderPort();
  try {
    await port.call('begin', [dir]);
  } catch (error) {
    port.end();
    throw error;
  }
  return new FolderInWorker(dir, port);
}

class FolderPort {
  readonly #worker: PageWorker;
  readonly #waiting: Map<number, { resolve(result: unknown): void; reject(error: Error): void }> = new Map();
  #ids = 0;
  #hasAnswered = false;
  #ended: Error | undefined;

  constructor() {
    const address = addresses.createObjectURL(new Blob([programText], { type: 'text/javascript' }));
    this.#worker = new Worker(address, { type: 'module', name: 'tierkv files' });
    this.#worker.onmessage = ({ data }) => {
      if (!this.#hasAnswered) addresses.revokeObjectURL(address);
      this.#hasAnswered = true;
      const waiting = this.#waiting.get(data.id);
      this.#waiting.delete(data.id);
      if ('result' in data) waiting?.resolve(data.result);
      else waiting?.reject(errorOf(data.problem));
    };
    this.#worker.onerror = ({ message = 'its script cannot be loaded' }) => {
      const error = this.#hasAnswered
        ? new IoError('EIO', `the worker of the files failed: ${message}`)
        : configError(
            'nvme',
            `needs a worker inside the page, and it does not start: ${message}`,
            'Allow worker-src blob: in the content security policy, or open the runtime in a worker of your own.',
          );
      this.end(error);
    };
  }

  call<Name extends keyof FolderCalls>(
    name: Name,
    args: Parameters<FolderCalls[Name]>,
    moved: readonly ArrayBuffer[] = [],
  ): ReturnType<FolderCalls[Name]> {
    const answered = new Promise((resolve, reject: (error: Error) => void) => {
      if (this.#ended !== undefined) {
        reject(this.#ended);
        return;
      }
      const id = this.#ids++;
      this.#waiting.set(id, { resolve, reject });
      this.#worker.postMessage({ id, name, args }, moved);
    });
    return answered as ReturnType<FolderCalls[Name]>;
  }

  /** Ends the worker. Its lock and its handles go with it. */
  end(error: Error = new IoError('EBADF', 'the directory is closed')): void {
    this.#ended ??= error;
    this.#worker.terminate();
    for (const { reject } of this.#waiting.values()) reject(error);
    this.#waiting.clear();
  }
}

function errorOf({
  code,
  message,
  field,
  path,
}: Extract<FolderAnswer, { problem: unknown }>['problem']): Error {
  if (code.startsWith('TKV_')) {
    return new TierKVError(code as ErrorCode, message, {
      ...(field === undefined ? {} : { field }),
      ...(path === undefined ? {} : { path }),
    });
  }
  return /^[A-Z0-9]+$/.test(code) ? new IoError(code, message) : new Error(message);
}

class FolderInWorker implements StoreFolder {
  readonly path: string;
  readonly filesystem = privateFiles;
  readonly ops: DirectoryOps;
  readonly #port: FolderPort;
  /** By name. */
  readonly #open: Map<string, FileInWorker> = new Map();

  constructor(path: string, port: FolderPort) {
    this.path = path;
    this.#port = port;
    this.ops = {
      rename: async (from, to) => {
        await port.call('rename', [from, to]);
        const file = this.#open.get(from);
        this.#open.delete(from);
        if (file !== undefined) this.#open.set(to, file);
      },
      remove: async (name) => {
        await port.call('remove', [name]);
        this.#open.delete(name);
      },
      sync: async () => {},
    };
  }

  async requireDirectory(): Promise<void> {}

  async lock(): Promise<() => void> {
    let unlock: () => void;
    try {
      // of the page, which ends with it as its worker does
      unlock = await lockDirectory(this.path);
    } catch (error) {
      this.#port.end();
      throw error;
    }
    // files are closed by now
    return () => {
      this.#port.end();
      unlock();
    };
  }

  pathOf(name: string): string {
    return `${this.path}/${name}`;
  }

  has(name: string): Promise<boolean> {
    return this.#port.call('has', [name]);
  }

  headOf(name: string): Promise<Uint8Array | string | undefined> {
    return this.#port.call('headOf', [name]);
  }

  async open(name: string, how: 'kept' | 'made' | 'replaced'): Promise<FolderFile> {
    const { file, sizeBytes } = await this.#port.call('open', [name, how]);
    const opened = new FileInWorker(this.#port, file, sizeBytes);
    this.#open.set(name, opened);
    return opened;
  }

  requireFreeSpace(bytes: number, names: readonly string[]): Promise<void> {
    return requireQuota(this.path, bytes, this.bytesOf(names));
  }

  bytesOf(names: readonly string[]): number {
    return names.reduce((sum, name) => sum + (this.#open.get(name)?.sizeBytes ?? 0), 0);
  }

  identityOf(name: string): Promise<string> {
    return this.#port.call('identityOf', [name]);
  }

  isAligned(): boolean {
    return true;
  }

  problem(doing: string, error: unknown): TierKVError {
    return problemIn(this.path, doing, error);
  }
}

class FileInWorker implements FolderFile {
  sizeBytes: number;
  readonly #port: FolderPort;
  readonly #file: number;
  /** Why a change of the length, which is not waited for, failed. */
  #failure: unknown;

  constructor(port: FolderPort, file: number, sizeBytes: number) {
    this.#port = port;
    this.#file = file;
    this.sizeBytes = sizeBytes;
  }

  truncate(bytes: number): void {
    this.sizeBytes = bytes;
    this.#port.call('truncate', [this.#file, bytes]).catch((error: unknown) => {
      this.#failure ??= error;
    });
  }

  ranges(): DataRanges {
    return new DataRanges(this.sizeBytes, undefined);
  }

  tryAllocate(): string {
    return allocates;
  }

  tryDirect(): string {
    return noDirectIo;
  }

  async readv(parts: readonly Uint8Array[], positionBytes: number): Promise<void> {
    const lengths = parts.map(({ byteLength }) => byteLength);
    const whole = await this.#after(this.#port.call('read', [this.#file, lengths, positionBytes]));
    let at = 0;
    for (const part of parts) {
      part.set(whole.subarray(at, at + part.byteLength));
      at += part.byteLength;
    }
  }

  async writev(parts: readonly Uint8Array[], positionBytes: number): Promise<void> {
    const whole = new Uint8Array(parts.reduce((sum, { byteLength }) => sum + byteLength, 0));
    let at = 0;
    for (const part of parts) {
      whole.set(part, at);
      at += part.byteLength;
    }
    const written = this.#port.call('write', [this.#file, whole, positionBytes], [whole.buffer]);
    this.#noteSize(await this.#after(written));
  }

  async allocate(positionBytes: number, bytes: number): Promise<void> {
    this.#noteSize(await this.#after(this.#port.call('allocate', [this.#file, positionBytes, bytes])));
  }

  async sync(): Promise<void> {
    await this.#after(this.#port.call('flush', [this.#file]));
  }

  async close(): Promise<void> {
    await this.#port.call('close', [this.#file]);
  }

  /** Answers come in the order of the calls, so a failed change of the length is known by then. */
  async #after<T>(answer: Promise<T>): Promise<T> {
    const result = await answer;
    if (this.#failure !== undefined) throw this.#failure;
    return result;
  }

  #noteSize(bytes: number): void {
    this.sizeBytes = Math.max(this.sizeBytes, bytes);
  }
}
