/**
 * Replaces a lost device. The manager is told that the top tier is empty, transfers under way end, and another device is
 * requested. Jobs are held meanwhile; if no device is available they end as refused, and the next caller that needs one
 * retries. No timer polls. Host memory as the top tier is never lost.
 *
 * To the manager it is the top tier: whether it can be written to, and which errors it reported.
 */

import type { DeviceErrors, LiveDevice } from '../backends/webgpu/device.ts';
import { type KVManager, TOP, type TopTier, type WipedSlot } from '../runtime/index.ts';
import type { ManagerLoop } from './managerLoop.ts';
import type { OpenStores } from './stores.ts';

const NO_ERRORS: DeviceErrors = { count: 0, last: '' };

export class DeviceKeeper implements TopTier {
  readonly #manager: KVManager;
  readonly #stores: OpenStores;
  readonly #loop: ManagerLoop;
  readonly #notice: (line: string) => void;
  #live: LiveDevice | undefined;
  #lostReason = '';
  #losses = 0;
  #replacing: Promise<void> | null = null;
  #closed = false;
  readonly #scrubs: boolean;

  /** @param scrubs whether slots that change their tenant are wiped */
  constructor(
    manager: KVManager,
    stores: OpenStores,
    loop: ManagerLoop,
    notice: (line: string) => void,
    scrubs = true,
  ) {
    this.#manager = manager;
    this.#stores = stores;
    this.#loop = loop;
    this.#notice = notice;
    this.#scrubs = scrubs;
    manager.openings.connect(this);
    loop.beforeRefusal(() => this.#checkLoss());
    this.#watch();
  }

  /** Whether there is a device to write to. */
  get present(): boolean {
    return this.#lostReason === '';
  }

  /** Unexpected errors that the present device has reported: how many, and the text of the last one. */
  get errors(): DeviceErrors {
    return this.#live?.deviceErrors ?? NO_ERRORS;
  }

  /** Devices lost so far. */
  get losses(): number {
    return this.#losses;
  }

  /**
   * A slot that passes to another tenant is wiped before that tenant can reach it. The command goes into the device's queue
   * at once, ahead of all work that the embedder submits later, so no call waits for it. Host memory is wiped in the call.
   */
  wipe(slots: readonly WipedSlot[]): void {
    if (!this.#scrubs || this.#closed) return;
    const { host } = this.#stores;
    if (host !== undefined) {
      for (const { slot, sizeClass } of slots) host.view(slot, sizeClass).fill(0);
      return;
    }
    const { pool, device } = this.#stores;
    const encoder = device.createCommandEncoder({ label: 'tierkv.wipe' });
    for (const { slot, sizeClass } of slots) {
      const { buffer, offsetBytes, sizeBytes } = pool.buffer(slot, sizeClass);
      encoder.clearBuffer(buffer, offsetBytes, sizeBytes);
    }
    device.queue.submit([encoder.finish()]);
  }

  /** Fulfilled when there is a device. @throws TKV_DEVICE when none is to be had */
  async ready(): Promise<void> {
    while (!this.present && !this.#closed) await this.#replace();
  }

  /** From now on the end of the device does not count as a loss. */
  async close(): Promise<void> {
    this.#closed = true;
    await this.#replacing?.catch(() => {});
  }

  #watch(): void {
    const { live } = this.#stores;
    this.#live = live;
    void live?.lost.then((reason) => {
      if (this.present && !this.#closed && this.#stores.live === live) this.#lose(reason);
    });
  }

  /**
   * A lost device refuses its transfers before `lost` is fulfilled. The manager hears of the loss first: then it
   * brings the blocks back from other tiers, where a refused load alone would have them computed again.
   */
  #checkLoss(): void {
    const reason = this.#stores.live?.lostReason ?? '';
    if (reason !== '' && this.present && !this.#closed) this.#lose(reason);
  }

  #lose(reason: string): void {
    this.#lostReason = reason;
    this.#losses++;
    this.#loop.carrier.hold();
    const { replicas, lost } = this.#manager.loseTier(TOP, this.#stores.engine.nowUs());
    // `ready` rejects with the reason where a caller waits for the device.
    this.#replace().catch((error: unknown) =>
      this.#notice(`tierkv: found no device in place of the lost one: ${String(error)}`),
    );
    this.#notice(
      `tierkv: ${reason}. ${replicas} blocks were in its memory, ${lost} of them nowhere else. ` +
        `Asking for another device.`,
    );
  }

  #replace(): Promise<void> {
    this.#replacing ??= this.#ask().finally(() => {
      this.#replacing = null;
    });
    return this.#replacing;
  }

  async #ask(): Promise<void> {
    try {
      await this.#stores.replaceDevice();
    } catch (error) {
      this.#loop.carrier.resume(); // the lost device refuses the held jobs, so that their waiters go on
      throw error;
    }
    this.#lostReason = '';
    this.#watch();
    this.#loop.carrier.resume();
  }
}
