/**
 * # What goes wrong, and what must hold all the same
 *
 * A cache may forget; it may not lie, wait for ever, or leak. Every fault below is injected on purpose, at
 * the seam where a tier's store meets the engine, so that everything above the seam is the code that serves
 * requests: manager, pump, engine.
 *
 * | kind            | what the store does                                  | who has to notice           |
 * |-----------------|------------------------------------------------------|-----------------------------|
 * | EIO             | fails a read or write; part of a write may be there  | outcome `refused`           |
 * | ENOSPC          | fails a write; as above                              | outcome `refused`           |
 * | EMFILE          | fails a read or write before it began                | outcome `refused`           |
 * | short           | moves the first part of a block, reports success     | digest, where it next lands |
 * | torn            | puts the first part of a block over an old one       | digest, where it next lands |
 * | flipped         | changes one bit on the way, or afterwards            | digest, where it next lands |
 * | stalled         | never ends (until the store is given up)             | deadline                    |
 * | lateAfterCancel | moves its bytes after nobody waits for it            | the slot that is still held |
 * | deviceLost      | ends every call of the device for good               | the device's `lost`         |
 * | outOfMemory     | refuses device work for want of memory               | outcome `refused`           |
 *
 * Survivable means: whoever waited goes on, with the block from another tier or with a block to compute; the
 * slot comes back as soon as the store says that the last job on it retired; a later request finds right
 * bytes or none. Guaranteed, for every mixture of these faults:
 *
 * 1. No sequence ever reads a block whose bytes are not what its own tenant computed for its own tokens.
 * 2. No call of the runtime waits for ever: the slowest answer comes a deadline later.
 * 3. When the stores have come to rest, every slot is free or cached: a stalled job costs its slots while it
 * is stalled.
 *
 * Not covered: bits that flip in HBM after the block was verified there, since attention reads them in place;
 * bytes that were wrong before they were sealed; and a store that says of a job that still runs that it has
 * retired.
 */

export const faultKinds = [
  'EIO',
  'ENOSPC',
  'EMFILE',
  'short',
  'torn',
  'flipped',
  'stalled',
  'lateAfterCancel',
  'deviceLost',
  'outOfMemory',
] as const;
export type FaultKind = (typeof faultKinds)[number];

/** What a store is asked to do; `memory` is what happens to bytes at rest in host memory. */
export type FaultyOp = 'read' | 'write' | 'seal' | 'memory';

export type StoreKind = 'device' | 'host' | 'disk';

/** Kinds that the store itself reports. */
export const reportedKinds: readonly FaultKind[] = ['EIO', 'ENOSPC', 'EMFILE', 'outOfMemory'];
/** Kinds after which the store reports success. */
export const silentKinds: readonly FaultKind[] = ['short', 'torn', 'flipped'];

/** Kinds that can happen to one item of a call, by store and operation. */
export const itemKinds: Readonly<
  Record<StoreKind, Readonly<Partial<Record<FaultyOp, readonly FaultKind[]>>>>
> = {
  disk: {
    read: ['EIO', 'EMFILE', 'short', 'flipped'],
    write: ['EIO', 'ENOSPC', 'EMFILE', 'short', 'torn', 'flipped'],
  },
  device: {
    read: ['flipped', 'short', 'outOfMemory'],
    write: ['flipped', 'torn', 'outOfMemory'],
    seal: ['outOfMemory'],
  },
  host: { memory: ['flipped'] },
};
