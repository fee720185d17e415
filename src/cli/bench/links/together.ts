/**
 * All parts of the machine that a link uses at once, each on bytes of its own and, where it meets staging, on the same few pages
 * over and over: nobody waits for what another hands over, and the caches hold it. What they reach together no pipeline over
 * them passes by much. Where cores, caches and memory are enough it is the slowest stage alone; where a device has the host's
 * own cores it is less.
 *
 *     device   |copy|copy|copy|copy|
 *     host     |memcpy, digest|..|..|..|        in slices, so that the disk's ends are seen in between
 *     disk     |I/O|I/O|I/O|I/O|I/O|
 */

import { setImmediate as turn } from 'node:timers/promises';
import { hostDigest } from '../../../backends/digest/index.ts';
import type { StageRun } from './deviceStages.ts';
import type { StageName } from './limit.ts';
import type { PlainBuffers } from './plainBuffers.ts';

const SLICE_BYTES = 1024 * 1024;

/** Does what a stage does to bytes [at, end) of a run. */
type HostSlice = (at: number, end: number) => void;

/**
 * @param stages of one way of a link, from limit.ts
 * @param disk does what the stage of the disk does, all of it
 */
export function together(
  stages: readonly (StageName | undefined)[],
  buffers: PlainBuffers,
  bytes: number,
  disk: (() => Promise<void>) | undefined,
): StageRun {
  const [device, host] = stages;
  let landed: Uint8Array<ArrayBuffer> | undefined;
  return {
    async prepare() {
      await buffers.mapUpload();
      await buffers.fillBurst(0, bytes);
      if (host === 'memcpy down' || host === 'memcpy up and digest')
        landed = await buffers.fromPool(buffers.arrived, Math.min(SLICE_BYTES, bytes));
    },
    async run() {
      const slice = host === undefined ? undefined : hostSlice(host, buffers, landed);
      if (device !== undefined) submit(device, buffers, bytes);
      await Promise.all([
        disk?.(),
        slice === undefined ? undefined : inSlices(slice, bytes),
        device === undefined ? undefined : buffers.done(),
      ]);
      if (landed !== undefined) buffers.arrived.unmap();
      landed = undefined;
    },
  };
}

async function inSlices(slice: HostSlice, bytes: number): Promise<void> {
  for (let at = 0; at < bytes; at += SLICE_BYTES) {
    slice(at, Math.min(at + SLICE_BYTES, bytes));
    await turn();
  }
}

function hostSlice(stage: StageName, buffers: PlainBuffers, landed: Uint8Array | undefined): HostSlice {
  const { host, other, upload } = buffers;
  const memcpyUp: HostSlice = (at, end) => upload.set(host.subarray(at, end));
  switch (stage) {
    case 'memcpy up':
      return memcpyUp;
    case 'memcpy up and digest':
      return (at, end) => {
        memcpyUp(at, end);
        hostDigest(landed!.subarray(0, end - at));
      };
    case 'digest and memcpy up':
      return (at, end) => {
        hostDigest(host.subarray(at, end));
        memcpyUp(at, end);
      };
    case 'memcpy down':
      return (at, end) => other.set(landed!.subarray(0, end - at), at);
    default:
      return (at, end) => void hostDigest(host.subarray(at, end));
  }
}

function submit(stage: StageName, buffers: PlainBuffers, bytes: number): void {
  const { pool, readback, burstBytes } = buffers;
  for (let at = 0; at < bytes; at += burstBytes) {
    const end = Math.min(at + burstBytes, bytes);
    if (stage === 'device copy down') buffers.copy(pool, at, readback, 0, end - at);
    else buffers.copyBurst(at, end, stage === 'device copy up and back' ? readback : undefined);
  }
}
