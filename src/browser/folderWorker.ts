/**
 * What the worker inside a page runs: one directory of private files, called by messages. Calls are done one after the
 * other, in the order in which they came. The build makes a text of this file (tools/browserBuild.ts).
 */

import { errnoOf, type FolderFile, type StoreFolder } from '../backends/file/dataFile.ts';
import { TierKVError } from '../runtime/errors.ts';
import type { FolderAnswer, FolderCall, FolderCalls } from './folderInWorker.ts';
import { openOpfsFolder } from './opfsFiles.ts';

let folder: StoreFolder;
const files: FolderFile[] = [];

const calls: FolderCalls = {
  async begin(dir) {
    folder = await openOpfsFolder(dir);
  },
  has: (name) => folder.has(name),
  headOf: (name) => folder.headOf(name),
  identityOf: (name) => folder.identityOf(name),
  rename: (from, to) => folder.ops.rename(from, to),
  remove: (name) => folder.ops.remove(name),
  async open(name, how) {
    const file = await folder.open(name, how);
    return { file: files.push(file) - 1, sizeBytes: file.sizeBytes };
  },
  async read(file, lengths, at) {
    const whole = new Uint8Array(lengths.reduce((sum, length) => sum + length, 0));
    await files[file].readv([whole], at);
    return whole;
  },
  async write(file, bytes, at) {
    await files[file].writev([bytes], at);
    return files[file].sizeBytes;
  },
  async truncate(file, bytes) {
    files[file].truncate(bytes);
  },
  async allocate(file, at, bytes) {
    await files[file].allocate(at, bytes);
    return files[file].sizeBytes;
  },
  flush: (file) => files[file].sync(),
  close: (file) => files[file].close(),
};

/** What `addEventListener` and `postMessage` of a worker are, which this project has no library of. */
interface WorkerScope {
  addEventListener(type: 'message', listener: (event: { readonly data: FolderCall }) => void): void;
  postMessage(answer: FolderAnswer, moved: readonly ArrayBuffer[]): void;
}
const scope = globalThis as unknown as WorkerScope;

let last: Promise<void> = Promise.resolve();

async function answer({ id, name, args }: FolderCall): Promise<void> {
  try {
    const result = await (calls[name] as (...args: never[]) => Promise<unknown>)(...(args as never[]));
    scope.postMessage({ id, result }, result instanceof Uint8Array ? [result.buffer as ArrayBuffer] : []);
  } catch (error) {
    const { field, path } = error instanceof TierKVError ? error : {};
    const message = error instanceof Error ? error.message : String(error);
    scope.postMessage({ id, problem: { code: errnoOf(error), message, field, path } }, []);
  }
}

scope.addEventListener('message', ({ data }) => {
  last = last.then(() => answer(data));
});
