/**
 * Copies between slots and the clearing of slots: commands that need no staging memory, as work for a line.
 * WebGPU copies no buffer onto itself, so between slots of one slab the bytes take two steps, through a
 * scratch buffer; between slabs one.
 */

import { loaded, refused } from '../../../runtime/tier/slotLedger.ts';
import type { StoreResult } from '../../../runtime/tier/tierStore.ts';
import { BufferUsage } from '../device/gpuConstants.ts';
import type { LiveDevice } from '../device/liveDevice.ts';
import type { Batch, BatchKind, Work } from '../pool/workLine.ts';
import type { SlotBuffer } from '../types.ts';

interface Command {
  encode(encoder: GPUCommandEncoder): void;
  end(result: StoreResult): void;
}

const COMMANDS_MAX = 4096;

export class SlotCommands implements BatchKind<CommandBatch> {
  readonly name = 'commands';
  readonly live: LiveDevice;
  readonly #scratch: GPUBuffer;

  constructor(live: LiveDevice, label: string, scratchBytes: number) {
    this.live = live;
    this.#scratch = live.device.createBuffer({
      label: `${label}.scratch`,
      size: scratchBytes,
      usage: BufferUsage.COPY_SRC | BufferUsage.COPY_DST,
    });
  }

  async open(): Promise<CommandBatch | undefined> {
    return this.live.loss === undefined ? new CommandBatch(this.live) : undefined;
  }

  copy(from: SlotBuffer, to: SlotBuffer, end: (result: StoreResult) => void): Work<CommandBatch> {
    return this.#work({ encode: (encoder) => this.#encodeCopy(encoder, from, to), end });
  }

  clear(slot: SlotBuffer, end: (result: StoreResult) => void): Work<CommandBatch> {
    const { buffer, offsetBytes, sizeBytes } = slot;
    return this.#work({ encode: (encoder) => encoder.clearBuffer(buffer, offsetBytes, sizeBytes), end });
  }

  destroy(): void {
    this.#scratch.destroy();
  }

  #work(command: Command): Work<CommandBatch> {
    return { kind: this, addTo: (batch) => batch.add(command), refuse: (end) => command.end(end) };
  }

  #encodeCopy(encoder: GPUCommandEncoder, from: SlotBuffer, to: SlotBuffer): void {
    if (from.buffer !== to.buffer) {
      encoder.copyBufferToBuffer(from.buffer, from.offsetBytes, to.buffer, to.offsetBytes, from.sizeBytes);
      return;
    }
    for (let done = 0; done < from.sizeBytes; ) {
      const bytes = Math.min(from.sizeBytes - done, this.#scratch.size);
      encoder.copyBufferToBuffer(from.buffer, from.offsetBytes + done, this.#scratch, 0, bytes);
      encoder.copyBufferToBuffer(this.#scratch, 0, to.buffer, to.offsetBytes + done, bytes);
      done += bytes;
    }
  }
}

class CommandBatch implements Batch {
  readonly #live: LiveDevice;
  readonly #commands: Command[] = [];

  constructor(live: LiveDevice) {
    this.#live = live;
  }

  get full(): boolean {
    return this.#commands.length === COMMANDS_MAX;
  }

  add(command: Command): boolean {
    this.#commands.push(command);
    return true;
  }

  encode(encoder: GPUCommandEncoder): void {
    for (const command of this.#commands) command.encode(encoder);
  }

  async finish(errors: Promise<string>): Promise<void> {
    const [done, error] = await Promise.all([this.#live.whenDone(), errors]);
    const end = done ? (error === '' ? loaded : refused(error)) : this.#live.refusal();
    for (const command of this.#commands) command.end(end);
  }
}
