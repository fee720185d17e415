/**
 * The disk without tierkv: direct I/O on the very disk blocks that hold the payloads of a file store, since
 * one file is not as fast as the next. What is written there is what lies there, so the store never knows.
 * Where the file system refuses direct I/O it goes through the page cache, as the store's does.
 */

import { constants, type FileHandle, open } from 'node:fs/promises';
import type { FileStore } from '../../../backends/file/index.ts';
import { fileLayout, recordOffset } from '../../../backends/file/record/fileLayout.ts';
import type { PoolShape } from '../../../runtime/index.ts';

type Operation = 'read' | 'write';

export class PlainDisk implements AsyncDisposable {
  readonly #file: Promise<FileHandle>;
  readonly #depth: number;
  readonly #offsetOf: (slot: number) => number;

  constructor(store: FileStore, shape: PoolShape) {
    const { path, mode, queueDepth } = store.describe();
    this.#file = open(String(path), constants.O_RDWR | (mode === 'direct' ? constants.O_DIRECT : 0));
    this.#depth = Number(queueDepth);
    const layout = fileLayout(shape);
    this.#offsetOf = (slot) => recordOffset(layout, slot, 0) + layout.records[0].payloadOffset;
  }

  /** The payloads of the slots, one I/O each, in the order of the file, as many at once as the store has. */
  async moveAll(how: Operation, slots: readonly number[], memory: readonly Uint8Array[]): Promise<void> {
    const order = slots.map((_, i) => i).sort((a, b) => slots[a] - slots[b]);
    const worker = async (): Promise<void> => {
      for (let i = order.shift(); i !== undefined; i = order.shift()) {
        await this.move(how, slots[i], memory[i]);
      }
    };
    await Promise.all(Array.from({ length: this.#depth }, worker));
  }

  /** The payload of one slot in one I/O. @param memory starts at a page */
  async move(operation: Operation, slot: number, memory: Uint8Array): Promise<void> {
    const file = await this.#file;
    const place = [memory, 0, memory.byteLength, this.#offsetOf(slot)] as const;
    const end = operation === 'read' ? await file.read(...place) : await file.write(...place);
    const moved = 'bytesRead' in end ? end.bytesRead : end.bytesWritten;
    if (moved !== memory.byteLength) throw new Error(`a ${operation} of the bench moved ${moved} bytes`);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await (await this.#file).close();
  }
}
