/**
 * The bytes of a sequence's blocks, for a process that computes KV itself. In host memory a block is read and written where
 * it lies. On a device its bytes are copied: out through a buffer that is mapped, many blocks with one submission; in
 * through the device's queue, ahead of all work that is submitted later.
 */

import { BufferUsage, MapMode } from '../backends/webgpu/device.ts';
import { described, inputError } from '../runtime/errors.ts';
import { Entry, type ReadableBlock, TierKVError } from '../runtime/index.ts';

import type { RequestContext } from './context.ts';

/** Where one block lies in the top tier. */
export type TopPlace = Pick<ReadableBlock, 'slot' | 'sizeClass'>;

/** Bytes of one copy from the device, so that many blocks need no buffer of their own size. */
const COPY_BYTES = 32 * 2 ** 20;

type Stores = Pick<RequestContext, 'stores' | 'pool' | 'device'>;

/** @throws TKV_STATE where the top tier is a device: its bytes have no view */
export function viewOf(
  { stores: { host } }: Stores,
  { slot, sizeClass }: TopPlace,
  call: string,
): Uint8Array {
  if (host !== undefined) return host.view(slot, sizeClass);
  throw new TierKVError(
    'TKV_STATE',
    `${call} needs host memory as the top tier, and this runtime has a device. ` +
      `Use ${call}Block, which copies, or open without hbmBytes.`,
    { field: 'hbmBytes' },
  );
}

/**
 * Hands the bytes of blocks to `take`, in order: views in host memory, copies from a device. They are valid during the
 * call alone.
 * @throws TKV_DEVICE when the device is lost meanwhile, and what `take` throws
 */
export async function eachBlock(
  context: Stores,
  places: readonly TopPlace[],
  take: (bytes: Uint8Array, index: number) => void,
): Promise<void> {
  const { host } = context.stores;
  if (host !== undefined) {
    places.forEach(({ slot, sizeClass }, i) => {
      requireDone(take(host.view(slot, sizeClass), i), 'take');
    });
    return;
  }
  const slots = places.map(({ slot, sizeClass }) => context.pool().buffer(slot, sizeClass));
  for (let from = 0; from < slots.length; ) {
    let to = from;
    let size = 0;
    while (to < slots.length && (to === from || size + slots[to].sizeBytes <= COPY_BYTES)) {
      size += slots[to++].sizeBytes;
    }
    const first = from;
    const part = slots.slice(from, to);
    const usage = BufferUsage.MAP_READ | BufferUsage.COPY_DST;
    const staging = context.device().createBuffer({ label: 'tierkv.blocks', size, usage });
    try {
      const encoder = context.device().createCommandEncoder({ label: 'tierkv.blocks' });
      let at = 0;
      for (const { buffer, offsetBytes, sizeBytes } of part) {
        encoder.copyBufferToBuffer(buffer, offsetBytes, staging, at, sizeBytes);
        at += sizeBytes;
      }
      context.device().queue.submit([encoder.finish()]);
      await mapped(context, staging);
      const bytes = new Uint8Array(staging.getMappedRange());
      at = 0;
      part.forEach(({ sizeBytes }, i) => {
        requireDone(take(bytes.subarray(at, at + sizeBytes), first + i), 'take');
        at += sizeBytes;
      });
    } finally {
      staging.destroy();
    }
    from = to;
  }
}

async function mapped({ stores }: Stores, staging: GPUBuffer): Promise<void> {
  try {
    await stores.waitFor(() => staging.mapAsync(MapMode.READ));
  } catch (error) {
    const reason = stores.live?.lostReason || String(error);
    throw new TierKVError(
      'TKV_DEVICE',
      `blocks were not read: ${reason}. Recover the sequence, and read again.`,
      { field: 'index', cause: error },
    );
  }
}

/** All bytes of a block, or what fills them in: called once, before the call that takes it returns. */
export type BlockFiller = Uint8Array | ((block: Uint8Array) => void);

/** Puts bytes into an open block. @throws TKV_INPUT unless they are a whole block */
export function writeBytes(context: Stores, { slot, sizeClass }: TopPlace, bytes: BlockFiller): void {
  const { host } = context.stores;
  if (host !== undefined) {
    const view = host.view(slot, sizeClass);
    if (typeof bytes === 'function') requireDone(bytes(view), 'bytes');
    else view.set(requireWhole(bytes, view.byteLength));
    return;
  }
  const { buffer, offsetBytes, sizeBytes } = context.pool().buffer(slot, sizeClass);
  let whole: Uint8Array;
  if (typeof bytes === 'function') requireDone(bytes((whole = new Uint8Array(sizeBytes))), 'bytes');
  else whole = requireWhole(bytes, sizeBytes);
  context.device().queue.writeBuffer(buffer, offsetBytes, whole as Uint8Array<ArrayBuffer>);
}

/** @throws TKV_INPUT for what a function gave that goes on after it returned: by then the bytes are not its own */
function requireDone(given: unknown, argument: string): void {
  if (typeof (given as { readonly then?: unknown } | null | undefined)?.then !== 'function') return;
  Promise.resolve(given).catch(() => {});
  throw inputError(
    argument,
    `is a function that goes on after it returns, and the bytes are its own during the call alone. ` +
      'Await what it needs before the call, and pass a function that is not async.',
  );
}

function requireWhole(bytes: Uint8Array, blockBytes: number): Uint8Array {
  const isBytes = bytes instanceof Uint8Array;
  if (isBytes && bytes.byteLength === blockBytes) return bytes;
  const given = isBytes ? `has ${bytes.byteLength} bytes` : `is ${described(bytes)}`;
  throw inputError(
    'bytes',
    `${given}, and the block has ${blockBytes}. Pass a Uint8Array of that many bytes whose buffer is not detached.`,
  );
}

/** @throws TKV_STATE unless the block waits to be written */
export function requireOpen(entry: number, index: number): void {
  if (entry === Entry.OPEN) return;
  const what = entry === Entry.READY ? 'is sealed, and others may read it' : 'is not open';
  throw new TierKVError('TKV_STATE', `block ${index} ${what}. Write the blocks that openBlocks lists.`, {
    field: 'index',
  });
}
