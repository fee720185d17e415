/**
 * The shared memory by which the main thread and the threads that copy speak: a ring of parts, each one `memcpy`, and a
 * count of parts left for each task. All words that both sides write are changed by atomics alone.
 *
 *     FREE --main queues it--> QUEUED --a thread claims it--> TAKEN + thread --copied--> FREE
 *                                 |
 *                                 +--main calls it off--> OFF --a thread passes it--> FREE
 *
 * TAIL is the next part to be queued, HEAD the next to be claimed; both grow for ever and are taken modulo the ring.
 */

/** Parts of the ring: blocks of 64 KiB in sixteen mapped buffers of 8 MiB. Where the ring is full, the main thread copies. */
export const PARTS = 4096;
/** Tasks under way: a batch is a task. */
export const TASKS = 256;

/** Words of `control`. WANTED: threads from this number on end. DYING: the thread that ends in its next part, for tests. */
export const Control = { TAIL: 0, HEAD: 1, DONE: 2, WANTED: 3, DYING: 4 } as const;
const CONTROL_WORDS = 8;

export const PartState = { FREE: 0, QUEUED: 1, OFF: 2, TAKEN: 16 } as const;

export interface CopyRing {
  readonly control: Int32Array<SharedArrayBuffer>;
  /** State of each part. */
  readonly states: Int32Array<SharedArrayBuffer>;
  /** The task of each part. */
  readonly tasks: Int32Array<SharedArrayBuffer>;
  /** Parts of each task that are neither copied nor called off. */
  readonly left: Int32Array<SharedArrayBuffer>;
  /** Length of each part. */
  readonly bytes: Int32Array<SharedArrayBuffer>;
  /** Two addresses a part: into, from. */
  readonly places: BigInt64Array<SharedArrayBuffer>;
}

export function ringMemory(): SharedArrayBuffer {
  return new SharedArrayBuffer(4 * (CONTROL_WORDS + 3 * PARTS + TASKS) + 16 * PARTS);
}

export function ringOver(memory: SharedArrayBuffer): CopyRing {
  let at = 16 * PARTS;
  const words = (count: number): Int32Array<SharedArrayBuffer> => {
    const array = new Int32Array(memory, at, count);
    at += 4 * count;
    return array;
  };
  return {
    places: new BigInt64Array(memory, 0, 2 * PARTS),
    control: words(CONTROL_WORDS),
    states: words(PARTS),
    tasks: words(PARTS),
    bytes: words(PARTS),
    left: words(TASKS),
  };
}
