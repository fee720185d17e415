/**
 * Durability points: one fdatasync for many writes. A record survives a loss of power once a point that began
 * after its write has ended; a crash of the process alone loses nothing that was written. Points are taken
 * when enough bytes have gathered, when the oldest of them has waited long enough, and when somebody asks.
 * Without writes there is no timer.
 */

import type { DataFile } from '../io/dataFile.ts';
import { SharedRun } from './sharedRun.ts';

export interface DurabilitySettings {
  readonly syncBytes: number;
  readonly syncMs: number;
}

export class Durability {
  readonly #files: readonly DataFile[];
  readonly #settings: DurabilitySettings;
  readonly #ended: (error: unknown) => void;
  #unsyncedBytes = 0;
  readonly #point: SharedRun = new SharedRun(() => this.#takePoint());
  #timer: NodeJS.Timeout | undefined;
  #points = 0;

  /** @param ended called at the end of each point, with the error of the disk if there was one */
  constructor(
    files: readonly DataFile[],
    settings: DurabilitySettings,
    ended: (error: unknown) => void = () => {},
  ) {
    this.#files = files;
    this.#settings = settings;
    this.#ended = ended;
  }

  /** Bytes written that no finished point covers. */
  get unsyncedBytes(): number {
    return this.#unsyncedBytes;
  }

  get points(): number {
    return this.#points;
  }

  wrote(bytes: number): void {
    this.#unsyncedBytes += bytes;
    if (this.#unsyncedBytes >= this.#settings.syncBytes) this.#take();
    else this.#arm();
  }

  /** Fulfilled when everything written before the call is durable. @throws with the errno as `code` */
  sync(): Promise<void> {
    return this.#point.ask();
  }

  stop(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
  }

  #arm(): void {
    if (this.#timer !== undefined) return;
    this.#timer = setTimeout(() => this.#take(), this.#settings.syncMs);
    this.#timer.unref();
  }

  /** Takes a point unless one is on its way that covers everything so far. */
  #take(): void {
    this.stop();
    if (!this.#point.isAwaited) this.sync().catch(() => {});
  }

  async #takePoint(): Promise<void> {
    this.stop();
    const covered = this.#unsyncedBytes;
    try {
      await Promise.all(this.#files.map((file) => file.sync()));
    } catch (error) {
      this.#ended(error);
      throw error;
    }
    this.#unsyncedBytes -= covered;
    this.#points++;
    if (this.#unsyncedBytes > 0) this.#arm();
    this.#ended(undefined);
  }
}
