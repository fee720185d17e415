/**
 * The worker inside a page: handles of files, called by messages. Calls are done one after the other, in the order in
 * which they came. The build makes a text of this file (tools/browserBuild.ts).
 */

import type { FileAnswer, FileCall, FileCalls } from './filesInWorker.ts';
import { openHandle } from './opfsFiles.ts';

const handles: FileSystemSyncAccessHandle[] = [];

const calls: FileCalls = {
  async take(file, from) {
    const handle = await openHandle(from);
    try {
      handles[file] = handle;
      return handle.getSize();
    } catch (error) {
      handle.close(); // the page takes the file for one that is not open
      throw error;
    }
  },
  letGo: (file) => handles[file].close(),
  read(file, length, at) {
    const bytes = new Uint8Array(length);
    return bytes.subarray(0, handles[file].read(bytes, { at }));
  },
  write: (file, bytes, at) => handles[file].write(bytes, { at }),
  truncate: (file, bytes) => handles[file].truncate(bytes),
  grow(file, bytes) {
    const size = handles[file].getSize();
    if (size < bytes) handles[file].truncate(bytes);
    return Math.max(size, bytes);
  },
  flush: (file) => handles[file].flush(),
};

/** Globals of a worker; the sources are compiled without the types of workers. */
interface WorkerScope {
  onmessage: (event: { readonly data: FileCall }) => void;
  postMessage(answer: FileAnswer, moved: readonly ArrayBuffer[]): void;
}
// the sources are compiled without the types of workers
const scope = globalThis as unknown as WorkerScope;

async function answer({ id, name, args }: FileCall): Promise<void> {
  try {
    const result = await (calls[name] as (...args: readonly unknown[]) => unknown)(...args);
    scope.postMessage({ id, result }, result instanceof Uint8Array ? [result.buffer as ArrayBuffer] : []);
  } catch (error) {
    const { name: problem, message } = error as Error;
    scope.postMessage({ id, problem, message }, []);
  }
}

let last: Promise<void> = Promise.resolve();
scope.onmessage = ({ data }) => {
  last = last.then(() => answer(data));
};
