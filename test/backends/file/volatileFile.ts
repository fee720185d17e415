import { BLOCK_BYTES, type DataFile } from '../../../src/backends/file/dataFile.ts';
import { HostArena } from '../../../src/backends/host/hostArena.ts';

interface VolatileOptions {
  /** Whether a loss of power is looked at: while it is not, writes reach the disk at once. Default true. */
  readonly isOn?: () => boolean;
  /** Whether the cache forgets, at a sync that failed, what was to be synced: reads give the older bytes. Default false. */
  readonly forgets?: () => boolean;
}

/**
 * A file as it is on a disk with a cache, at a loss of power: what was written is on the disk once a sync has succeeded. After a
 * sync that failed, what was written before it counts as written and never is, as on Linux; it is read as long as the cache
 * has it.
 */
export class VolatileFile implements DataFile {
  readonly #file: DataFile;
  readonly #options: VolatileOptions;
  /** By block of the disk: written since the last sync, and written before one that failed. */
  readonly #dirty: Map<number, Uint8Array> = new Map();
  readonly #lost: Map<number, Uint8Array> = new Map();
  #page: Promise<HostArena> | undefined;
  #syncing: Promise<void> = Promise.resolve();

  constructor(file: DataFile, options: VolatileOptions = {}) {
    this.#file = file;
    this.#options = options;
  }

  async readv(parts: readonly Uint8Array[], at: number): Promise<void> {
    await this.#file.readv(parts, at);
    let offset = at;
    for (const part of parts) {
      for (let from = 0; from < part.byteLength; ) {
        const block = Math.floor((offset + from) / BLOCK_BYTES);
        const within = offset + from - block * BLOCK_BYTES;
        const length = Math.min(BLOCK_BYTES - within, part.byteLength - from);
        const cached = this.#dirty.get(block) ?? this.#lost.get(block);
        if (cached !== undefined) part.set(cached.subarray(within, within + length), from);
        from += length;
      }
      offset += part.byteLength;
    }
  }

  async writev(parts: readonly Uint8Array[], at: number): Promise<void> {
    if (this.#options.isOn?.() === false) return await this.#file.writev(parts, at);
    const bytes = Buffer.concat(parts);
    if (at % BLOCK_BYTES !== 0 || bytes.byteLength % BLOCK_BYTES !== 0) throw new Error('not whole blocks');
    for (let from = 0; from < bytes.byteLength; from += BLOCK_BYTES) {
      this.#dirty.set((at + from) / BLOCK_BYTES, Uint8Array.from(bytes.subarray(from, from + BLOCK_BYTES)));
    }
  }

  allocate(at: number, bytes: number): Promise<void> {
    return this.#file.allocate(at, bytes);
  }

  /** One at a time: they share the page. */
  sync(): Promise<void> {
    const synced = this.#syncing.then(() => this.#sync());
    this.#syncing = synced.catch(() => {});
    return synced;
  }

  async #sync(): Promise<void> {
    // where direct I/O reaches it
    this.#page ??= HostArena.open({ chunkBytes: [BLOCK_BYTES], native: true, field: 'cache' });
    const page = new Uint8Array((await this.#page).chunks[0], 0, BLOCK_BYTES);
    for (const [block, bytes] of [...this.#dirty]) {
      page.set(bytes);
      await this.#file.writev([page], block * BLOCK_BYTES);
      if (this.#dirty.get(block) === bytes) this.#dirty.delete(block);
      this.#lost.delete(block);
    }
    await this.#file.sync();
  }

  syncFails(): void {
    if (this.#options.forgets?.() !== true)
      for (const [block, bytes] of this.#dirty) this.#lost.set(block, bytes);
    this.#dirty.clear();
  }

  async close(): Promise<void> {
    await this.sync();
    await this.#file.close();
  }
}
