/**
 * The stages of a link between HBM and host memory, each alone: what one part of the machine does to the bytes of a run, on
 * the memory in which the stage before leaves them. Setting that up is `prepare`, and not measured.
 */

import { hostDigest } from '../../../backends/digest/index.ts';
import type { PlainBuffers } from './plainBuffers.ts';

const PIECE_BYTES = 4 * 1024 * 1024;

/** How the host uses staging: each part of it once, or the same few pages for every piece, which the caches then hold. */
export type HostWay = 'whole' | 'pieces';
/** How much the host fills before the device copies it: all, or as much as the caches hold. */
export type DeviceWay = 'whole' | 'bursts';

export interface StageRun {
  readonly prepare: () => Promise<void>;
  /** May say how many milliseconds of it count. */
  readonly run: () => Promise<number | undefined>;
}

/** The host fills staging; or piece by piece the same few pages of it. */
export function memcpyUp(buffers: PlainBuffers, bytes: number, how: HostWay): StageRun {
  return {
    prepare: () => buffers.mapUpload(),
    async run() {
      fillStaging(buffers, bytes, how);
      return undefined;
    },
  };
}

/** The device copies what the host has filled staging with to its own memory. */
export function deviceCopyUp(buffers: PlainBuffers, bytes: number, how: DeviceWay): StageRun {
  if (how === 'bursts') return inBursts(buffers, bytes);
  return {
    prepare: () => fillAndSeal(buffers, bytes),
    async run() {
      buffers.copyUpload(bytes);
      await buffers.live.whenDone();
      return undefined;
    },
  };
}

/** And back again, to where the host can verify what arrived. */
export function deviceCopyUpAndBack(buffers: PlainBuffers, bytes: number, how: DeviceWay): StageRun {
  if (how === 'bursts') return inBursts(buffers, bytes, buffers.arrived);
  return {
    prepare: () => fillAndSeal(buffers, bytes),
    async run() {
      buffers.copyUpload(bytes);
      buffers.copy(buffers.pool, 0, buffers.arrived, 0, bytes);
      await buffers.live.whenDone();
      return undefined;
    },
  };
}

/** Only the device's part counts. */
function inBursts(buffers: PlainBuffers, bytes: number, back?: GPUBuffer): StageRun {
  return {
    prepare: async () => {},
    async run() {
      let ms = 0;
      for (let at = 0; at < bytes; ) {
        const to = await buffers.fillBurst(at, bytes);
        const started = performance.now();
        buffers.copyBurst(at, to, back);
        await buffers.live.whenDone();
        ms += performance.now() - started;
        at = to;
      }
      return ms;
    },
  };
}

/** The host fills staging, and digests as many bytes that have come back. */
export function memcpyUpAndDigest(buffers: PlainBuffers, bytes: number, how: HostWay): StageRun {
  let back: Uint8Array<ArrayBuffer>;
  return {
    async prepare() {
      await buffers.mapUpload();
      back = await buffers.fromPool(buffers.arrived, bytes);
    },
    async run() {
      fillStaging(buffers, bytes, how);
      hostDigest(back);
      buffers.arrived.unmap();
      return undefined;
    },
  };
}

/** The host digests what lies in its memory, and fills staging with it. */
export function digestAndMemcpyUp(buffers: PlainBuffers, bytes: number, how: HostWay): StageRun {
  const piece = stagedBytes(bytes, how);
  return {
    prepare: () => buffers.mapUpload(),
    async run() {
      for (let at = 0; at < bytes; at += piece) {
        const part = buffers.host.subarray(at, Math.min(at + piece, bytes));
        hostDigest(part);
        buffers.upload.set(part, how === 'whole' ? at : 0);
      }
      return undefined;
    },
  };
}

/** The device copies from its own memory to staging. */
export function deviceCopyDown(buffers: PlainBuffers, bytes: number): StageRun {
  return {
    prepare: async () => {},
    async run() {
      buffers.copy(buffers.pool, 0, buffers.readback, 0, bytes);
      await buffers.live.whenDone();
      return undefined;
    },
  };
}

/** The host takes out of staging what the device has filled it with. */
export function memcpyDown(buffers: PlainBuffers, bytes: number): StageRun {
  let landed: Uint8Array<ArrayBuffer>;
  return {
    async prepare() {
      landed = await buffers.fromPool(buffers.readback, bytes);
    },
    async run() {
      buffers.other.set(landed);
      buffers.readback.unmap();
      return undefined;
    },
  };
}

/** The host digests what lies in its memory. */
export function digest({ host }: PlainBuffers, bytes: number): StageRun {
  return {
    prepare: async () => {},
    async run() {
      hostDigest(host.subarray(0, bytes));
      return undefined;
    },
  };
}

function stagedBytes(bytes: number, how: HostWay): number {
  return how === 'whole' ? bytes : Math.min(bytes, PIECE_BYTES);
}

function fillStaging({ upload, host }: PlainBuffers, bytes: number, how: HostWay): void {
  const piece = stagedBytes(bytes, how);
  for (let at = 0; at < bytes; at += piece) upload.set(host.subarray(at, Math.min(at + piece, bytes)));
}

async function fillAndSeal(buffers: PlainBuffers, bytes: number): Promise<void> {
  await buffers.mapUpload();
  fillStaging(buffers, bytes, 'whole');
  buffers.sealUpload();
}
