/**
 * Files for the thread of a page, whose handles a worker inside has: reads and writes are messages to it, and bytes go there
 * and back as buffers that change hands. The worker is a part of this code, from an address of its own (`blob:`), so nothing
 * has to be served beside the bundle. It ends with the store.
 */

import programText from 'tierkv:file-worker';
import { DataRanges, IoError } from '../../backends/file/dataFile.ts';
import { configError } from '../../runtime/errors.ts';
import { asIoError, type HandleFile, type HandlePlace } from './opfsFiles.ts';

/** Calls to the worker. Files are numbers. */
export interface FileCalls {
  /** @returns the file's length */
  take(file: number, from: FileSystemFileHandle): Promise<number>;
  letGo(file: number): void;
  /** @returns fewer bytes at the file's end */
  read(file: number, length: number, at: number): Uint8Array;
  /** @returns bytes that were written */
  write(file: number, bytes: Uint8Array, at: number): number;
  truncate(file: number, bytes: number): void;
  /** Makes a file longer, never shorter. @returns its length */
  grow(file: number, bytes: number): number;
  flush(file: number): void;
}

export interface FileCall {
  readonly id: number;
  readonly name: keyof FileCalls;
  readonly args: readonly unknown[];
}

export type FileAnswer =
  | { readonly id: number; readonly result: unknown }
  /** Name and message of the error. */
  | { readonly id: number; readonly problem: string; readonly message: string };

interface PageWorker {
  onmessage: ((event: { readonly data: FileAnswer }) => void) | null;
  onerror: ((event: { readonly message?: string }) => void) | null;
  postMessage(call: FileCall, moved: readonly ArrayBuffer[]): void;
  terminate(): void;
}

interface PageNames {
  readonly Worker: new (address: string, options: object) => PageWorker;
  readonly URL: { createObjectURL(of: Blob): string; revokeObjectURL(address: string): void };
}

export class FilesInWorker implements HandlePlace {
  readonly #worker: PageWorker;
  readonly #waiting: Map<number, { resolve(result: unknown): void; reject(error: Error): void }> = new Map();
  #ids = 0;
  #files = 0;
  #hasAnswered = false;
  #ended: Error | undefined;

  constructor() {
    // the sources are compiled without the types of pages
    const { Worker, URL: addresses } = globalThis as unknown as PageNames;
    const address = addresses.createObjectURL(new Blob([programText], { type: 'text/javascript' }));
    this.#worker = new Worker(address, { type: 'module', name: 'tierkv files' });
    this.#worker.onmessage = ({ data }) => {
      if (!this.#hasAnswered) addresses.revokeObjectURL(address);
      this.#hasAnswered = true;
      const waiting = this.#waiting.get(data.id);
      this.#waiting.delete(data.id);
      if ('result' in data) waiting?.resolve(data.result);
      else waiting?.reject(Object.assign(new Error(data.message), { name: data.problem }));
    };
    this.#worker.onerror = ({ message = 'its script cannot be loaded' }) => {
      this.end(
        this.#hasAnswered
          ? new IoError('EIO', `the worker of the files failed: ${message}`)
          : configError(
              'nvme',
              `needs a worker inside the page, and it does not start: ${message}`,
              'Allow worker-src blob: in the content security policy, or open the runtime in a worker of your own.',
            ),
      );
    };
  }

  newFile(onClose: () => void): HandleFile {
    return new FileInWorker(this, this.#files++, onClose);
  }

  /** Calls the worker. Its failure is an IoError here. */
  async call<Name extends keyof FileCalls>(
    name: Name,
    args: Parameters<FileCalls[Name]>,
    moved: readonly ArrayBuffer[] = [],
  ): Promise<Awaited<ReturnType<FileCalls[Name]>>> {
    if (this.#ended !== undefined) throw this.#ended;
    const id = this.#ids++;
    const answered = new Promise((resolve, reject: (error: Error) => void) => {
      this.#waiting.set(id, { resolve, reject });
    });
    this.#worker.postMessage({ id, name, args }, moved);
    try {
      return (await answered) as Awaited<ReturnType<FileCalls[Name]>>;
    } catch (error) {
      throw asIoError(error, name);
    }
  }

  /** Ends the worker. Its handles go with it. */
  end(error: Error = new IoError('EBADF', 'the directory is closed')): void {
    this.#ended ??= error;
    this.#worker.terminate();
    for (const { reject } of this.#waiting.values()) reject(error);
    this.#waiting.clear();
  }
}

class FileInWorker implements HandleFile {
  onClose: () => void;
  sizeBytes = 0;
  readonly #place: FilesInWorker;
  readonly #file: number;
  #isOpen = false;
  /** Why a change of the length, which is not waited for, failed. */
  #failure: unknown;

  constructor(place: FilesInWorker, file: number, onClose: () => void) {
    this.#place = place;
    this.#file = file;
    this.onClose = onClose;
  }

  async take(file: FileSystemFileHandle): Promise<void> {
    this.sizeBytes = await this.#place.call('take', [this.#file, file]);
    this.#isOpen = true;
  }

  async letGo(): Promise<void> {
    this.#isOpen = false;
    await this.#place.call('letGo', [this.#file]);
  }

  truncate(bytes: number): void {
    this.sizeBytes = bytes;
    this.#place.call('truncate', [this.#file, bytes]).catch((error: unknown) => {
      this.#failure ??= error;
    });
  }

  ranges(): DataRanges {
    return new DataRanges(this.sizeBytes, undefined);
  }

  tryAllocate(): string {
    return 'a browser gives space as files grow';
  }

  tryDirect(): string {
    return 'a browser has no direct I/O';
  }

  async readv(parts: readonly Uint8Array[], positionBytes: number): Promise<void> {
    const length = parts.reduce((sum, { byteLength }) => sum + byteLength, 0);
    const whole = await this.#after(this.#place.call('read', [this.#file, length, positionBytes]));
    if (whole.length < length) throw new IoError('EOF', 'read moved too little');
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
    const { length } = whole;
    const written = this.#place.call('write', [this.#file, whole, positionBytes], [whole.buffer]);
    if ((await this.#after(written)) < length) throw new IoError('ENOSPC', 'write moved too little');
    this.sizeBytes = Math.max(this.sizeBytes, positionBytes + length);
  }

  async allocate(positionBytes: number, bytes: number): Promise<void> {
    const grown = await this.#place.call('grow', [this.#file, positionBytes + bytes]);
    this.sizeBytes = Math.max(this.sizeBytes, grown);
  }

  async sync(): Promise<void> {
    await this.#after(this.#place.call('flush', [this.#file]));
  }

  async close(): Promise<void> {
    if (!this.#isOpen) return;
    await this.letGo();
    this.onClose();
  }

  /** Answers come in the order of the calls, so a failed change of the length is known by then. */
  async #after<T>(answer: Promise<T>): Promise<T> {
    const result = await answer;
    if (this.#failure !== undefined) throw this.#failure;
    return result;
  }
}
