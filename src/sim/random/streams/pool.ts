/**
 * A bounded set of random streams for owners of which there may be far more than fit in memory: a stream is
 * named by (seed, position), its 5 kB register exists only while it is in the pool, and an owner that was put
 * out is seated again by passing over the words it had consumed. The values drawn never depend on the size of
 * the pool.
 */

import { GoRandom } from './rand.ts';

/** What the pool keeps in its owner: the name of the stream, and the seat while it has one. */
export interface PooledStream {
  readonly seed: bigint;
  position: number;
  seat: number;
}

export class StreamPool {
  readonly #capacity: number;
  readonly #randoms: GoRandom[] = [];
  readonly #owners: PooledStream[] = [];
  readonly #free: number[] = [];
  #nextVictim = 0;

  constructor(capacity: number = 12_288) {
    this.#capacity = capacity;
  }

  /** A new stream at position 0, without a seat. */
  static stream(seed: bigint): PooledStream {
    return { seed, position: 0, seat: -1 };
  }

  /** The generator of `stream`, standing at its position. Valid until the next call. */
  seat(stream: PooledStream): GoRandom {
    if (stream.seat >= 0 && this.#owners[stream.seat] === stream) return this.#randoms[stream.seat];
    let seat = this.#free.pop() ?? this.#randoms.length;
    if (seat < this.#randoms.length) {
      this.#randoms[seat].seek(stream.seed, stream.position);
    } else if (seat < this.#capacity) {
      this.#randoms.push(new GoRandom(stream.seed));
      this.#randoms[seat].skipTo(stream.position);
    } else {
      seat = this.#nextVictim;
      this.#nextVictim = (seat + 1) % this.#capacity;
      const victim = this.#owners[seat];
      victim.position = this.#randoms[seat].position;
      victim.seat = -1;
      this.#randoms[seat].seek(stream.seed, stream.position);
    }
    this.#owners[seat] = stream;
    stream.seat = seat;
    return this.#randoms[seat];
  }

  /** Gives the seat of a stream that will not draw again to the next one. */
  release(stream: PooledStream): void {
    if (stream.seat < 0 || this.#owners[stream.seat] !== stream) return;
    stream.position = this.#randoms[stream.seat].position;
    this.#owners[stream.seat] = StreamPool.stream(0n);
    this.#free.push(stream.seat);
    stream.seat = -1;
  }
}
