/**
 * What the example server's engine asks of Node, in a page: files that were fetched, hashes of them, the tokenizer package,
 * and a script that runs. A build puts this module in the place of `node:fs`, `node:crypto`, `node:module` and `node:vm`.
 */

import * as tokenizers from '@huggingface/tokenizers';
import { sha256 } from '../../src/backends/file/sha256.ts';

const files = new Map<string, Uint8Array>();

/** Fetches files, beside the page. @throws for one that is not there */
export async function fetchFiles(names: readonly string[]): Promise<void> {
  await Promise.all(
    names.map(async (name) => {
      const response = await fetch(name);
      if (!response.ok) throw new Error(`${name} cannot be fetched (${response.status})`);
      files.set(name, new Uint8Array(await response.arrayBuffer()));
    }),
  );
}

/** Files of the code lie beside it: by their address, they are named from the folder of shaders on. */
const nameOf = (file: string | URL): string =>
  typeof file === 'string' ? file : file.pathname.slice(file.pathname.lastIndexOf('shaders/'));

function bytesOf(file: string | URL): Uint8Array {
  const bytes = files.get(nameOf(file));
  if (bytes === undefined) throw new Error(`ENOENT: ${nameOf(file)}`);
  return bytes;
}

const opened: Uint8Array[] = [];

const inPage = {
  existsSync: (file: string) => files.has(file),
  statSync(file: string) {
    const { length: size } = bytesOf(file);
    return { size, isFile: () => true };
  },
  readFileSync(file: string | URL, encoding?: 'utf8') {
    return encoding === undefined ? bytesOf(file) : new TextDecoder().decode(bytesOf(file));
  },
  readdirSync(folder: string | URL) {
    const start = nameOf(folder).replace(/\/?$/, '/');
    return [...files.keys()].flatMap((name) => (name.startsWith(start) ? [name.slice(start.length)] : []));
  },
  openSync: (file: string) => opened.push(bytesOf(file)) - 1,
  fstatSync: (fd: number) => ({ size: opened[fd].length }),
  readSync(fd: number, into: Uint8Array, offset: number, length: number, position: number) {
    const part = opened[fd].subarray(position, position + length);
    into.set(part, offset);
    return part.length;
  },
  closeSync() {},
  // of node:vm: the time limit that a server needs for files of strangers is left out
  createContext: (sandbox: object) => sandbox,
  Script: class {
    runInContext({ work }: { work(): void }): void {
      work();
    }
  },
};
export default inPage;

/** The only package that is required by name. */
export const createRequire = () => () => tokenizers;

class PageHash {
  readonly #parts: Uint8Array[] = [];

  update(part: string | Uint8Array): this {
    this.#parts.push(typeof part === 'string' ? new TextEncoder().encode(part) : part);
    return this;
  }

  digest(): string {
    const whole = new Uint8Array(this.#parts.reduce((sum, { length }) => sum + length, 0));
    let at = 0;
    for (const part of this.#parts) {
      whole.set(part, at);
      at += part.length;
    }
    return Array.from(sha256(whole), (word) => word.toString(16).padStart(8, '0')).join('');
  }
}

export const createHash = () => new PageHash();
