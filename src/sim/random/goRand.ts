/**
 * Go's `rand.Rand` over a lagged Fibonacci source: every method consumes the words that Go's method of the
 * same name consumes and returns the same value, to the last bit. 64-bit results come as BigInt where a
 * caller needs all of them (seeds, session numbers) and never on the path of a draw.
 */

import { invariant } from '../../runtime/errors.ts';
import * as is from '../../runtime/kinds.ts';
import { checkInputs } from '../../runtime/options.ts';
import { exp, log } from './elementary.ts';
import { LaggedFibonacciSource, type Rewindable, type SourceState } from './laggedFibonacci.ts';
import {
  EXPONENTIAL_HEIGHT,
  EXPONENTIAL_THRESHOLD,
  EXPONENTIAL_WIDTH,
  NORMAL_HEIGHT,
  NORMAL_THRESHOLD,
  NORMAL_WIDTH,
} from './zigguratTables.ts';

const NORMAL_TAIL = 3.442619855899;
const EXPONENTIAL_TAIL = 7.69711747013105;
const TWO_32 = 2 ** 32;
const TWO_63 = 2 ** 63;

export class GoRandom implements Rewindable {
  readonly #source: LaggedFibonacciSource;

  constructor(seed: bigint) {
    checkInputs({ seed }, { seed: is.bigint() });
    this.#source = new LaggedFibonacciSource(seed);
  }

  /** Words of the source consumed since seeding; (seed, position) names the state. */
  get position(): number {
    return this.#source.position;
  }

  /** Moves to the state (seed, position). Costs the words in between. */
  seek(seed: bigint, position: number): void {
    this.#source.reseed(seed);
    this.#source.skipWords(position);
  }

  /** Moves forward to `position`, which must not lie behind. */
  skipTo(position: number): void {
    const words = position - this.#source.position;
    invariant(words >= 0, 'a random stream only moves forward');
    this.#source.skipWords(words);
  }

  snapshot(): SourceState {
    return this.#source.snapshot();
  }

  restore(state: SourceState): void {
    this.#source.restore(state);
  }

  uint64(): bigint {
    const at = this.#source.next();
    const words = this.#source.words();
    return (BigInt(words[at + 1] >>> 0) << 32n) | BigInt(words[at] >>> 0);
  }

  int63(): bigint {
    return this.uint64() & 0x7fff_ffff_ffff_ffffn;
  }

  int31(): number {
    const at = this.#source.next();
    return this.#source.words()[at + 1] & 0x7fffffff;
  }

  uint32(): number {
    const at = this.#source.next();
    const words = this.#source.words();
    return ((words[at + 1] << 1) | (words[at] >>> 31)) >>> 0;
  }

  /** An integer in [0, bound), bound at most 2^31 - 1: Go's `Intn` in that range. */
  intn(bound: number): number {
    invariant(Number.isInteger(bound) && bound > 0 && bound <= 0x7fffffff, 'intn needs a bound in [1, 2^31)');
    if ((bound & (bound - 1)) === 0) return this.int31() & (bound - 1);
    const limit = rejectionLimit(bound);
    let value = this.int31();
    while (value > limit) value = this.int31();
    return value % bound;
  }

  /** `count` draws of `intn(bound)` into `out` from `offset` on. */
  fillIntn(out: Int32Array, offset: number, count: number, bound: number): void {
    const limit = rejectionLimit(bound);
    const source = this.#source;
    const words = source.words();
    for (let i = offset, end = offset + count; i < end; ) {
      const value = words[source.next() + 1] & 0x7fffffff;
      if (value <= limit) out[i++] = value % bound;
    }
  }

  /** Leaves the stream where `count` draws of `intn(bound)` leave it. */
  skipIntn(count: number, bound: number): void {
    this.#source.skipAccepted(count, rejectionLimit(bound));
  }

  /** Uniform in [0, 1). */
  float64(): number {
    for (;;) {
      const at = this.#source.next();
      const words = this.#source.words();
      const value = ((words[at + 1] & 0x7fffffff) * TWO_32 + (words[at] >>> 0)) / TWO_63;
      if (value !== 1) return value;
    }
  }

  /** Standard normal, by the ziggurat. */
  normFloat64(): number {
    for (;;) {
      const j = this.uint32() | 0;
      const strip = j & 0x7f;
      const x = j * NORMAL_WIDTH[strip];
      if (Math.abs(j) < NORMAL_THRESHOLD[strip]) return x;
      if (strip === 0) return this.#normalTail(j > 0);
      const low = NORMAL_HEIGHT[strip];
      const rise = Math.fround(NORMAL_HEIGHT[strip - 1] - low);
      const height = Math.fround(low + Math.fround(Math.fround(this.float64()) * rise));
      if (height < Math.fround(exp(-0.5 * x * x))) return x;
    }
  }

  #normalTail(positive: boolean): number {
    for (;;) {
      const x = -log(this.float64()) * (1 / NORMAL_TAIL);
      const y = -log(this.float64());
      if (y + y >= x * x) return positive ? NORMAL_TAIL + x : -NORMAL_TAIL - x;
    }
  }

  /** Exponential with mean 1, by the ziggurat. */
  expFloat64(): number {
    for (;;) {
      const j = this.uint32();
      const strip = j & 0xff;
      const x = j * EXPONENTIAL_WIDTH[strip];
      if (j < EXPONENTIAL_THRESHOLD[strip]) return x;
      if (strip === 0) return EXPONENTIAL_TAIL - log(this.float64());
      const low = EXPONENTIAL_HEIGHT[strip];
      const rise = Math.fround(EXPONENTIAL_HEIGHT[strip - 1] - low);
      const height = Math.fround(low + Math.fround(Math.fround(this.float64()) * rise));
      if (height < Math.fround(exp(-x))) return x;
    }
  }

  /** Shuffles in place as Go's `Shuffle`, which draws by multiplication and not by remainder. */
  shuffle<T>(items: T[]): void {
    for (let i = items.length - 1; i > 0; i--) {
      const j = this.#boundedByProduct(i + 1);
      const kept = items[i];
      items[i] = items[j];
      items[j] = kept;
    }
  }

  /**
   * Lemire's bounded draw: the high half of a 32 × 32 bit product, with the biased low halves drawn again.
   */
  #boundedByProduct(bound: number): number {
    const n = BigInt(bound);
    let product = BigInt(this.uint32()) * n;
    if ((product & 0xffff_ffffn) < n) {
      const threshold = ((1n << 32n) - n) % n;
      while ((product & 0xffff_ffffn) < threshold) product = BigInt(this.uint32()) * n;
    }
    return Number(product >> 32n);
  }
}

/** The largest 31-bit value that `Int31n(bound)` accepts; a power of two accepts all. */
function rejectionLimit(bound: number): number {
  return 2147483647 - (2147483648 % bound);
}

// A bounded set of random streams, for more owners than fit in memory. A stream is named by (seed, position);
// its 5 kB register exists only while it is in the pool. An owner that was put out is seated again by passing
// over the words that it had consumed. The values drawn never depend on the size of the pool.

/** The pool's record in a stream's owner: the name of the stream, and its seat while it has one. */
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

// Random streams by name. One key gives every subsystem its own stream, seeded with `key XOR fnv1a64(name)`,
// so that a draw in one subsystem never moves another. The stream named `workload` takes the key itself.

/** 64-bit FNV-1a of the UTF-8 bytes of `text`, as an unsigned BigInt. */
export function fnv1a64(text: string): bigint {
  let hash = 0xcbf29ce484222325n;
  for (const byte of new TextEncoder().encode(text)) {
    hash = BigInt.asUintN(64, (hash ^ BigInt(byte)) * 0x100000001b3n);
  }
  return hash;
}

/** The seed of the stream `name` under `key`, as a signed 64-bit integer. */
export function partitionSeed(key: bigint, name: string): bigint {
  if (name === 'workload') return BigInt.asIntN(64, key);
  return BigInt.asIntN(64, key ^ fnv1a64(name));
}

export class PartitionedRandom {
  readonly key: bigint;
  readonly #streams = new Map<string, GoRandom>();

  constructor(key: bigint) {
    checkInputs({ key }, { key: is.bigint() });
    this.key = BigInt.asIntN(64, key);
  }

  /** The stream of that name; the same object at every call. */
  stream(name: string): GoRandom {
    const known = this.#streams.get(name);
    if (known !== undefined) return known;
    const made = new GoRandom(partitionSeed(this.key, name));
    this.#streams.set(name, made);
    return made;
  }
}
