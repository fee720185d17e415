import { readFileSync } from 'node:fs';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  fnv1a64,
  GoRandom,
  PartitionedRandom,
  partitionSeed,
  StreamPool,
} from '../../../src/sim/random/goRand.ts';
import { advanceRegister, LAG, seedRegister, TAP_LAG } from '../../../src/sim/random/register.ts';
import { SEED_WORDS } from '../../../src/sim/random/seedTable.ts';

interface Stream {
  seed: string;
  int63: string[];
  uint64: string[];
  intn_7: number[];
  intn_128000: number[];
  float64: number[];
  norm: number[];
  exp: number[];
  perm10: number[];
  int63_after_2000: string[];
}
interface Partition {
  seed: number;
  name: string;
  fnv1a64: string;
  derived: string;
  first3_int63: string[];
}
const vectors = JSON.parse(readFileSync(new URL('./fixtures/rng.json', import.meta.url), 'utf8')) as {
  streams: Stream[];
  partitions: Partition[];
};

const draw = <T>(count: number, next: () => T): T[] => Array.from({ length: count }, next);

describe("Go's math/rand, bit for bit", () => {
  it('has the nine seeds of the golden file', () => expect(vectors.streams).toHaveLength(9));

  it.each(vectors.streams.map((row) => [row.seed, row] as const))('seed %s', (seed, row) => {
    const fresh = (): GoRandom => new GoRandom(BigInt(seed));
    const check = <T>(expected: T[], next: (random: GoRandom) => T): void => {
      const random = fresh();
      expect(draw(expected.length, () => next(random))).toEqual(expected);
    };
    check(row.int63, (random) => random.int63().toString());
    check(row.uint64, (random) => random.uint64().toString());
    check(row.intn_7, (random) => random.intn(7));
    check(row.intn_128000, (random) => random.intn(128000));
    check(row.float64, (random) => random.float64());
    check(row.norm, (random) => random.normFloat64());
    check(row.exp, (random) => random.expFloat64());
    const late = fresh();
    for (let i = 0; i < 2000; i++) late.int63();
    expect(draw(4, () => late.int63().toString())).toEqual(row.int63_after_2000);
  });

  it.each(vectors.partitions.map((row) => [row.name, row.seed, row] as const))(
    'stream %s of key %i',
    (name, seed, row) => {
      expect(fnv1a64(name).toString()).toBe(row.fnv1a64);
      expect(partitionSeed(BigInt(seed), name).toString()).toBe(row.derived);
      const random = new PartitionedRandom(BigInt(seed)).stream(name);
      expect(draw(3, () => random.int63().toString())).toEqual(row.first3_int63);
    },
  );
});

describe('the register', () => {
  const MODULUS = 2n ** 31n - 1n;

  it('is seeded as 64-bit arithmetic seeds it', () => {
    const agree = (residue: number): void => {
      let x = BigInt(residue);
      const step = (): bigint => (x = (48271n * x) % MODULUS);
      for (let i = 0; i < 20; i++) step();
      const expected = new BigUint64Array(LAG);
      const table = new BigUint64Array(Int32Array.from(SEED_WORDS).buffer);
      for (let i = 0; i < LAG; i++) {
        const word = (step() << 40n) ^ (step() << 20n) ^ step();
        expected[(2 * LAG - TAP_LAG - 1 - i) % LAG] = word ^ table[i];
      }
      const words = new Int32Array(2 * LAG);
      seedRegister(words, residue);
      expect(new BigUint64Array(words.buffer)).toEqual(expected);
    };
    for (const residue of [1, 2, 44488, 48271, 2 ** 16, 2 ** 30, 2 ** 31 - 2]) agree(residue);
    fc.assert(fc.property(fc.integer({ min: 1, max: 2 ** 31 - 2 }), agree), { numRuns: 100 });
  });

  it('advances as 64-bit addition does, and counts what a limit rejects', () => {
    fc.assert(
      fc.property(
        fc.int32Array({ minLength: 2 * LAG, maxLength: 2 * LAG }),
        fc.oneof(fc.nat(0x7fffffff), fc.constantFrom(0, 2147455999, 0x7fffffff)),
        fc.integer({ min: 1, max: 3 }),
        (start, limit, blocks) => {
          const words = Int32Array.from(start);
          const expected = new BigUint64Array(Int32Array.from(start).buffer);
          let rejected = 0;
          for (let n = 0; n < blocks * LAG; n++) {
            const at = n % LAG;
            expected[at] += expected[(at + LAG - TAP_LAG) % LAG];
            if (Number((expected[at] >> 32n) & 0x7fffffffn) > limit) rejected++;
          }
          expect(advanceRegister(words, limit, blocks)).toBe(rejected);
          expect(new BigUint64Array(words.buffer)).toEqual(expected);
        },
      ),
      { numRuns: 50 },
    );
  });
});

describe('passing over draws', () => {
  const seeds = fc.bigInt({ min: -(2n ** 63n), max: 2n ** 63n - 1n });

  it('leaves the stream where drawing leaves it', () => {
    fc.assert(
      fc.property(
        seeds,
        fc.array(fc.nat(9000), { maxLength: 8 }),
        fc.constantFrom(128000, 7, 2_000_000_011),
        (seed, counts, bound) => {
          const drawn = new GoRandom(seed);
          const skipped = new GoRandom(seed);
          const out = new Int32Array(3000);
          for (const count of counts) {
            drawn.fillIntn(out, 0, count, bound);
            skipped.skipIntn(count, bound);
            expect(skipped.position).toBe(drawn.position);
            expect(skipped.uint64()).toBe(drawn.uint64());
          }
        },
      ),
      { numRuns: 60 },
    );
  });

  it('agrees draw by draw with intn, rejected values included', () => {
    // a bound just above 2^30 rejects half of all values
    const bound = 2 ** 30 + 1;
    const a = new GoRandom(99n);
    const b = new GoRandom(99n);
    const out = new Int32Array(5000);
    a.fillIntn(out, 0, 5000, bound);
    expect([...out]).toEqual(draw(5000, () => b.intn(bound)));
    expect(a.position).toBeGreaterThan(9000);
    const c = new GoRandom(99n);
    c.skipIntn(5000, bound);
    expect(c.position).toBe(a.position);
  });

  it('reaches any position by (seed, position) alone, and returns by snapshot', () => {
    fc.assert(
      fc.property(seeds, fc.nat(5000), (seed, position) => {
        const walked = new GoRandom(seed);
        for (let i = 0; i < position; i++) walked.uint32();
        const jumped = new GoRandom(0n);
        jumped.seek(seed, position);
        expect(jumped.position).toBe(position);
        const state = walked.snapshot();
        const next = draw(5, () => walked.uint64());
        expect(draw(5, () => jumped.uint64())).toEqual(next);
        jumped.restore(state);
        expect(draw(5, () => jumped.uint64())).toEqual(next);
      }),
      { numRuns: 40 },
    );
  });

  it('draws the same from a pool of any size', () => {
    const run = (capacity: number): bigint[] => {
      const pool = new StreamPool(capacity);
      const streams = draw(10, () => 0).map((_, i) => StreamPool.stream(BigInt(i)));
      const values: bigint[] = [];
      for (let turn = 0; turn < 200; turn++) {
        const random = pool.seat(streams[(turn * 7) % 10]);
        random.skipIntn(turn * 3, 128000);
        values.push(random.uint64());
        if (turn % 11 === 0) pool.release(streams[(turn * 7) % 10]);
      }
      return values;
    };
    expect(run(1)).toEqual(run(100));
    expect(run(3)).toEqual(run(100));
  });
});
