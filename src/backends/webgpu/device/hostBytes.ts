/**
 * Which host memory may reach the binding. Everything that a caller hands us passes `bytesFault`, and
 * `writeWords` is the only call of `queue.writeBuffer` in tierkv.
 *
 * Hazard, views of other types: `writeBuffer` with a Float16Array ends the process (SIGFPE), with a DataView
 * or a raw SharedArrayBuffer it throws; and a Uint8Array filled from a Float16Array converts numbers instead
 * of copying bytes. Uint8Array alone, over whatever memory, is safe.
 */

/** Why an item ends whose memory was detached or resized during the call. */
export const BYTES_TAKEN_AWAY = 'the bytes of the item were taken away during the call';

const WRAPPING = 'new Uint8Array(view.buffer, view.byteOffset, view.byteLength)';

/** Why `bytes` cannot be the bytes of a slot, or of a box in it; empty where they can. */
export function bytesFault(bytes: Uint8Array, wantedBytes: number, of: 'slot' | 'box' = 'slot'): string {
  if (!(bytes instanceof Uint8Array)) {
    return `bytes are no Uint8Array. Wrap their memory: ${WRAPPING}`;
  }
  if (bytes.byteLength === wantedBytes) return '';
  return `${bytes.byteLength} bytes for a ${of} of ${wantedBytes}`;
}

/** Writes `bytes` at byte `offset` of `buffer`, ordered on the queue between the submits before and after. */
export function writeWords(queue: GPUQueue, buffer: GPUBuffer, bytes: Uint8Array, offset: number): void {
  queue.writeBuffer(buffer, offset, bytes);
}
