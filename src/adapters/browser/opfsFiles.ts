/**
 * A directory of the origin's private files by synchronous access handles, which exist in dedicated workers.
 *
 * - A Web Lock makes one store the only owner. It ends with its tab, however that ends.
 * - A handle keeps its file under one name: to rename it, it is closed and opened again.
 * - The browser counts a file's length against the quota. Holes are not told, so a lost index means that all is read.
 * - Errors get the errno that Node would give, so that everything above has one set of them.
 */

import {
  BLOCK_BYTES,
  DataRanges,
  type DirectoryOps,
  dirError,
  errnoOf,
  type FolderFile,
  IoError,
  type StoreFolder,
} from '../../backends/file/dataFile.ts';
import { configError, TierKVError } from '../../runtime/errors.ts';

/** Attempts to get a handle that another tab still has, and milliseconds between them: a killed tab gives its handles up soon. */
const HANDLE_ATTEMPTS = 40;
const HANDLE_WAIT_MS = 50;

const errnos: Readonly<Record<string, string>> = {
  QuotaExceededError: 'ENOSPC',
  NotFoundError: 'ENOENT',
  NoModificationAllowedError: 'EBUSY',
  NotAllowedError: 'EACCES',
  SecurityError: 'EACCES',
  TypeMismatchError: 'EISDIR',
  InvalidStateError: 'EIO',
};

const remedies: Readonly<Record<string, string>> = {
  ENOSPC: "Lower the number of blocks, or free storage of this site: the browser's quota for it is reached.",
  EACCES:
    'The browser gives this page no private files (a private window, or blocked storage): leave nvme out.',
  EBUSY: 'Another tab has the files: use another nvme.dir, or close that tab.',
  EIO: 'The browser took the files away. Open the runtime again.',
  ENOENT: "The browser cleared this site's storage. Open the runtime again.",
};

/** The error with an errno in its `code`. */
export function asIoError(error: unknown, call: string): unknown {
  const name = error instanceof Error ? error.name : '';
  const errno = errnos[name];
  return errno === undefined ? error : Object.assign(new IoError(errno, call), { cause: error });
}

async function named<T>(call: string, act: () => Promise<T>): Promise<T> {
  try {
    return await act();
  } catch (error) {
    throw asIoError(error, call);
  }
}

export function problemAt(dir: string, doing: string, error: unknown): TierKVError {
  return dirError(dir, doing, asIoError(error, doing), (errno) => remedies[errno]);
}

/** @throws TKV_IO where the browser gives no private files, TKV_CONFIG for a name that the browser refuses */
export async function openOpfsFolder(
  dir: string,
  place: HandlePlace = { newFile: (onClose) => new OpfsFile(onClose), end() {} },
): Promise<StoreFolder> {
  const parts = dir.split('/').filter((each) => each !== '');
  if (parts.length === 0 || parts.some((each) => /^\.+$/.test(each))) {
    throw configError('dir', `is ${dir}`, 'Name a folder, such as kv or cache/kv, without . and .. in it.');
  }
  const { storage } = navigator;
  if (storage?.getDirectory === undefined) {
    throw problemAt(dir, 'opening private files', new IoError('EACCES', 'getDirectory'));
  }
  let directory: FileSystemDirectoryHandle;
  try {
    directory = await storage.getDirectory();
    for (const part of parts) {
      directory = await directory.getDirectoryHandle(part, { create: true });
    }
  } catch (error) {
    throw problemAt(dir, 'opening the directory', error);
  }
  return new OpfsFolder(dir, directory, place);
}

/** A file whose handle is given up for a while, to rename it. */
export interface HandleFile extends FolderFile {
  onClose: () => void;
  take(file: FileSystemFileHandle): Promise<void>;
  letGo(): void | Promise<void>;
}

/** Where the handles of a folder are: in this thread, or in a worker inside. */
export interface HandlePlace {
  newFile(onClose: () => void): HandleFile;
  /** The folder is closed, and its files before it. */
  end(): void;
}

/** The handle of a file, which a tab that was killed may have for a little longer. */
export async function openHandle(file: FileSystemFileHandle): Promise<FileSystemSyncAccessHandle> {
  for (let attempt = 1; ; attempt++) {
    try {
      return await file.createSyncAccessHandle();
    } catch (error) {
      const isBusy = error instanceof Error && error.name === 'NoModificationAllowedError';
      if (!isBusy || attempt === HANDLE_ATTEMPTS) throw error;
    }
    await new Promise((wake) => setTimeout(wake, HANDLE_WAIT_MS));
  }
}

class OpfsFolder implements StoreFolder {
  readonly path: string;
  readonly filesystem = "the origin's private files";
  readonly unlockEndsIo = true;
  readonly ops: DirectoryOps;
  readonly #directory: FileSystemDirectoryHandle;
  readonly #place: HandlePlace;
  /** Open files by name. */
  readonly #open: Map<string, HandleFile> = new Map();

  constructor(path: string, directory: FileSystemDirectoryHandle, place: HandlePlace) {
    this.path = path;
    this.#directory = directory;
    this.#place = place;
    this.ops = {
      rename: (from, to) => this.#rename(from, to),
      remove: (name) => this.#remove(name),
      // names are in the browser's own database: a change that was reported is durable
      sync: async () => {},
    };
  }

  async requireDirectory(): Promise<() => void> {
    return () => {};
  }

  lock(): Promise<() => void> {
    return new Promise((resolve, reject) => {
      const hold = (lock: object | null): Promise<void> | undefined => {
        if (lock === null) {
          this.#place.end();
          reject(lockedBy(this.path));
          return undefined;
        }
        return new Promise((release) =>
          resolve(() => {
            this.#place.end();
            release();
          }),
        );
      };
      const name = `tierkv ${this.path}`;
      navigator.locks.request(name, { ifAvailable: true }, hold).catch(reject);
    });
  }

  pathOf(name: string): string {
    return `${this.path}/${name}`;
  }

  async has(name: string): Promise<boolean> {
    return (await this.#handle(name)) !== undefined;
  }

  async headOf(name: string): Promise<Uint8Array | string | undefined> {
    try {
      const handle = await this.#handle(name);
      if (handle === undefined) return undefined;
      return new Uint8Array(await (await handle.getFile()).slice(0, BLOCK_BYTES).arrayBuffer());
    } catch (error) {
      if (error instanceof Error && error.name === 'TypeMismatchError') return 'is not a regular file';
      throw asIoError(error, 'getFile');
    }
  }

  async open(name: string, how: 'kept' | 'made' | 'replaced'): Promise<FolderFile> {
    const file = this.#place.newFile(() => this.#open.delete(name));
    await named('open', async () => {
      const handle = await this.#directory.getFileHandle(name, { create: how !== 'kept' });
      await file.take(handle);
    });
    try {
      if (how !== 'kept') file.truncate(0);
    } catch (error) {
      await file.letGo(); // a handle that stays open keeps the file from all others
      throw error;
    }
    this.#open.set(name, file);
    return file;
  }

  async requireFreeSpace(bytes: number, names: readonly string[]): Promise<void> {
    const { quota, usage = 0 } = await navigator.storage.estimate();
    if (quota === undefined) return;
    const freeBytes = quota - usage + this.bytesOf(names);
    if (bytes <= freeBytes) return;
    throw new TierKVError(
      'TKV_IO',
      `dir ${this.path} has ${freeBytes} bytes free, the tier needs ${bytes} (ENOSPC). ${remedies.ENOSPC}`,
      { field: 'dir', path: this.path },
    );
  }

  bytesOf(names: readonly string[]): number {
    return names.reduce((sum, name) => sum + (this.#open.get(name)?.sizeBytes ?? 0), 0);
  }

  /** A browser has no inodes: what it took away is missing, or has another length. */
  async identityOf(name: string): Promise<string> {
    const handle = await this.#handle(name).catch(() => undefined);
    if (handle === undefined) return '';
    const { size } = await handle.getFile();
    return this.#open.get(name)?.sizeBytes === size ? name : '';
  }

  isAligned(): boolean {
    return true;
  }

  problem(doing: string, error: unknown): TierKVError {
    if (errnoOf(asIoError(error, doing)) === 'EBUSY') return lockedBy(this.path);
    return problemAt(this.path, doing, error);
  }

  async #handle(name: string): Promise<FileSystemFileHandle | undefined> {
    try {
      return await this.#directory.getFileHandle(name);
    } catch (error) {
      if (error instanceof Error && error.name === 'NotFoundError') return undefined;
      throw error;
    }
  }

  async #remove(name: string): Promise<void> {
    await this.#open.get(name)?.close();
    await named('remove', async () => {
      await this.#directory.removeEntry(name).catch((error: unknown) => {
        if (!(error instanceof Error && error.name === 'NotFoundError')) throw error;
      });
    });
  }

  async #rename(from: string, to: string): Promise<void> {
    const file = this.#open.get(from);
    await this.#remove(to);
    await named('rename', async () => {
      const handle = await this.#directory.getFileHandle(from);
      await file?.letGo();
      await handle.move(to);
      await file?.take(await this.#directory.getFileHandle(to));
    });
    if (file === undefined) return;
    this.#open.delete(from);
    this.#open.set(to, file);
    file.onClose = () => this.#open.delete(to);
  }
}

function lockedBy(dir: string): TierKVError {
  return new TierKVError(
    'TKV_LOCKED',
    `dir ${dir} belongs to another tab or worker of this site. Close it, use another nvme.dir, or go on without files.`,
    { field: 'dir', path: dir },
  );
}

class OpfsFile implements HandleFile {
  onClose: () => void;
  #handle: FileSystemSyncAccessHandle | undefined;

  constructor(onClose: () => void) {
    this.onClose = onClose;
  }

  async take(file: FileSystemFileHandle): Promise<void> {
    this.#handle = await openHandle(file);
  }

  letGo(): void {
    this.#handle?.close();
    this.#handle = undefined;
  }

  get sizeBytes(): number {
    return this.#call('size', (handle) => handle.getSize());
  }

  truncate(bytes: number): void {
    this.#call('truncate', (handle) => handle.truncate(bytes));
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
    let at = positionBytes;
    for (const part of parts) {
      if (this.#call('read', (handle) => handle.read(part, { at })) < part.byteLength) {
        throw new IoError('EOF', 'read moved too little');
      }
      at += part.byteLength;
    }
  }

  async writev(parts: readonly Uint8Array[], positionBytes: number): Promise<void> {
    let at = positionBytes;
    for (const part of parts) {
      if (this.#call('write', (handle) => handle.write(part, { at })) < part.byteLength) {
        throw new IoError('ENOSPC', 'write moved too little');
      }
      at += part.byteLength;
    }
  }

  async allocate(positionBytes: number, bytes: number): Promise<void> {
    if (this.sizeBytes < positionBytes + bytes) this.truncate(positionBytes + bytes);
  }

  async sync(): Promise<void> {
    this.#call('flush', (handle) => handle.flush());
  }

  async close(): Promise<void> {
    if (this.#handle === undefined) return;
    this.letGo();
    this.onClose();
  }

  #call<T>(name: string, act: (handle: FileSystemSyncAccessHandle) => T): T {
    if (this.#handle === undefined) throw new IoError('EBADF', name);
    try {
      return act(this.#handle);
    } catch (error) {
      throw asIoError(error, name);
    }
  }
}
