/**
 * What a stream of requests holds at a time, summed over its clients: rounds that wait for their arrival, and
 * the gaps of open windows. A spec of a few lines can ask for more than any memory; it then ends in one error
 * and not in a dead process.
 */

import { TierKVError } from '../../../../runtime/errors.ts';

/** Memory of one waiting round with its share of its session's history. */
export const roundBytes = 600;
/** Memory of one gap between arrivals. */
export const gapBytes = 8;

const maxHeldBytes = 768 * 2 ** 20;

export class HeldMemory {
  #bytes = 0;

  /** @throws {TierKVError} TKV_INPUT naming the client when the limit is reached. */
  take(bytes: number, clientId: string): void {
    this.#bytes += bytes;
    if (this.#bytes <= maxHeldBytes) return;
    throw new TierKVError(
      'TKV_INPUT',
      `client "${clientId.slice(0, 100)}" sends so much at once that its waiting requests need more than ` +
        `${maxHeldBytes / 2 ** 20} MiB. Lower its rate, its max_rounds, or the length of its windows`,
      { field: 'clients' },
    );
  }

  give(bytes: number): void {
    this.#bytes -= bytes;
  }
}
