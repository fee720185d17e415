/**
 * The stages of a link between HBM and host memory, each alone: what one part of the machine does to the bytes of a run, on
 * the memory in which the stage before leaves them. Setting that up is `prepare`, and not measured.
 */

import { hostDigest } from '../../../backends/digest/index.ts';
import type { PlainBuffers } from './plainBuffers.ts';

export interface StageRun {
  readonly prepare: () => Promise<void>;
  readonly run: () => Promise<void>;
}

/** As much as a core's caches hold: what is digested is copied at once. */
const DIGESTED_BYTES = 1024 * 1024;

/** The host fills staging. */
export function memcpyUp(buffers: PlainBuffers, bytes: number): StageRun {
  return {
    prepare: () => buffers.mapUpload(),
    async run() {
      fillStaging(buffers, bytes);
    },
  };
}

/** The device copies what the host has filled staging with to its own memory. */
export function deviceCopyUp(buffers: PlainBuffers, bytes: number): StageRun {
  return {
    prepare: () => fillAndSeal(buffers, bytes),
    async run() {
      buffers.copyUpload(bytes);
      await buffers.done();
    },
  };
}

/** And back again, to where the host can verify what arrived. */
export function deviceCopyUpAndBack(buffers: PlainBuffers, bytes: number): StageRun {
  return {
    prepare: () => fillAndSeal(buffers, bytes),
    async run() {
      buffers.copyUpload(bytes);
      buffers.copy(buffers.pool, 0, buffers.arrived, 0, bytes);
      await buffers.done();
    },
  };
}

/** The host fills staging, and digests as many bytes that have come back. */
export function memcpyUpAndDigest(buffers: PlainBuffers, bytes: number): StageRun {
  let back: Uint8Array<ArrayBuffer>;
  return {
    async prepare() {
      await buffers.mapUpload();
      back = await buffers.fromPool(buffers.arrived, bytes);
    },
    async run() {
      fillStaging(buffers, bytes);
      hostDigest(back);
      buffers.arrived.unmap();
    },
  };
}

/** The host digests what lies in its memory, and fills staging with it. */
export function digestAndMemcpyUp(buffers: PlainBuffers, bytes: number): StageRun {
  return {
    prepare: () => buffers.mapUpload(),
    async run() {
      for (let at = 0; at < bytes; at += DIGESTED_BYTES) {
        const part = buffers.host.subarray(at, Math.min(at + DIGESTED_BYTES, bytes));
        hostDigest(part);
        buffers.upload.set(part, at);
      }
    },
  };
}

/** The device copies from its own memory to staging. */
export function deviceCopyDown(buffers: PlainBuffers, bytes: number): StageRun {
  return {
    prepare: async () => {},
    async run() {
      buffers.copy(buffers.pool, 0, buffers.readback, 0, bytes);
      await buffers.done();
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
    },
  };
}

/** The host digests what lies in its memory. */
export function digest({ host }: PlainBuffers, bytes: number): StageRun {
  return {
    prepare: async () => {},
    async run() {
      hostDigest(host.subarray(0, bytes));
    },
  };
}

function fillStaging({ upload, host }: PlainBuffers, bytes: number): void {
  upload.set(host.subarray(0, bytes));
}

async function fillAndSeal(buffers: PlainBuffers, bytes: number): Promise<void> {
  await buffers.mapUpload();
  fillStaging(buffers, bytes);
  buffers.sealUpload();
}
