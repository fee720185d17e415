/** Laws that every backend keeps for any batch, on every kind of model. */

import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  type BatchedRequest,
  BatchSums,
  sumBatch,
  withAdapterOverhead,
} from '../../../src/sim/latency/latencyModel.ts';
import { latencyBackends } from '../../../src/sim/latency/latencyNames.ts';
import { floorOf, modelOn, request, setups } from './setups.ts';

const prefill: fc.Arbitrary<BatchedRequest> = fc
  .record({
    cached: fc.integer({ min: 0, max: 20_000 }),
    fresh: fc.integer({ min: 1, max: 16_384 }),
    later: fc.oneof(fc.constant(0), fc.integer({ min: 1, max: 9000 })),
  })
  .map(({ cached, fresh, later }) => request(cached + fresh + later, cached, fresh, 64));
const decode: fc.Arbitrary<BatchedRequest> = fc
  .record({ prompt: fc.integer({ min: 1, max: 60_000 }), made: fc.integer({ min: 0, max: 4000 }) })
  .map(({ prompt, made }) => request(prompt, prompt + made, 1, 8192));
const anyRequest = fc.oneof(prefill, decode, decode);
const batch = fc.array(anyRequest, { maxLength: 40 });

function fields(sums: BatchSums): Record<string, number> {
  return { ...sums };
}

describe('sums over a batch', () => {
  it('equal a recomputation after any adding, removing and advancing', () => {
    fc.assert(
      fc.property(
        fc.array(fc.tuple(fc.nat(), fc.option(anyRequest, { nil: undefined })), { maxLength: 60 }),
        (moves) => {
          const sums = new BatchSums();
          let present: BatchedRequest[] = [];
          for (const [pick, added] of moves) {
            if (added !== undefined) {
              sums.add(added);
              present.push(added);
            } else if (present.length > 0 && pick % 3 !== 0) {
              sums.remove(present.splice(pick % present.length, 1)[0]);
            } else {
              sums.advanceDecodes();
              present = present.map((r) =>
                r.progressTokens >= r.promptTokens ? { ...r, progressTokens: r.progressTokens + 1 } : r,
              );
            }
            expect(fields(sums)).toEqual(fields(sumBatch(present)));
          }
        },
      ),
    );
  });

  it('count decodes that are added together like decodes that are added one by one', () => {
    const together = new BatchSums();
    together.addDecodes(3, 30);
    expect(fields(together)).toEqual(fields(sumBatch([8, 10, 12].map((at) => request(5, at, 1, 50)))));
  });

  it('count a request without anything to generate in neither kind', () => {
    const sums = sumBatch([request(10, 10, 1, 0)]);
    expect([sums.requests, sums.decodeRequests, sums.prefillRequests]).toEqual([1, 0, 0]);
  });
});

describe.each(setups)('$model, tp $tp, dp $dp', (setup) => {
  const floor = floorOf(setup);

  it.each(latencyBackends)('%s is never below the physical floor', (backend) => {
    const model = modelOn(backend, setup, true);
    fc.assert(
      fc.property(batch, (requests) => {
        const sums = sumBatch(requests);
        const { flops, bytes } = floor.work(sums);
        expect(model.stepTimeUs(sums)).toBeGreaterThanOrEqual(floor.floorUs(sums));
        expect(floor.floorUs(sums)).toBeGreaterThanOrEqual(bytes / 3.35e6 - 1e-9);
        // 8-bit products at most: the peak that no kernel of this GPU exceeds
        expect(floor.floorUs(sums)).toBeGreaterThanOrEqual(flops / 1979e6 - 1e-9);
      }),
      { numRuns: 60 },
    );
  });

  it.each(latencyBackends)('%s gives whole microseconds, at least one, also without the floor', (backend) => {
    const model = modelOn(backend, setup, false);
    fc.assert(
      fc.property(batch, (requests) => {
        const us = model.stepTimeUs(sumBatch(requests));
        expect(Number.isInteger(us) && us >= 1).toBe(true);
      }),
      { numRuns: 40 },
    );
    expect(model.stepTimeUs(new BatchSums())).toBe(1);
  });

  it.each(latencyBackends)(
    '%s takes longer for one request, context token or prompt token more',
    (backend) => {
      // measured times are not smooth: between four of them a step may be shorter by a little
      const least = backend === 'kernels' ? 0.95 : 1;
      for (const withFloor of [true, false]) {
        const model = modelOn(backend, setup, withFloor);
        fc.assert(
          fc.property(batch, anyRequest, fc.integer({ min: 1, max: 5000 }), (requests, one, more) => {
            const before = model.stepTimeUs(sumBatch([...requests, one]));
            expect(before).toBeGreaterThanOrEqual(least * model.stepTimeUs(sumBatch(requests)));
            const decoding = one.progressTokens >= one.promptTokens;
            const grown = decoding
              ? { ...one, progressTokens: one.progressTokens + more }
              : { ...one, promptTokens: one.promptTokens + more, newTokens: one.newTokens + more };
            expect(model.stepTimeUs(sumBatch([...requests, grown]))).toBeGreaterThanOrEqual(least * before);
          }),
          { numRuns: 40 },
        );
      }
    },
  );

  it.each(latencyBackends)('%s is the sum of the parts that it names', (backend) => {
    const model = modelOn(backend, setup, false);
    fc.assert(
      fc.property(fc.array(anyRequest, { minLength: 1, maxLength: 20 }), (requests) => {
        const sums = sumBatch(requests);
        const parts = model.explain(sums).reduce((sum, { us }) => sum + us, 0);
        expect(Math.abs(parts - model.stepTimeUs(sums))).toBeLessThan(1.001);
      }),
      { numRuns: 30 },
    );
  });
});

describe('the floor', () => {
  it('keeps trained-physics from a prefill faster than the GPU', () => {
    const setup = setups[0];
    const sums = sumBatch([request(8192, 0, 8192, 8)]);
    const bare = modelOn('trained-physics', setup, false).stepTimeUs(sums);
    const floored = modelOn('trained-physics', setup, true).stepTimeUs(sums);
    expect(bare).toBe(32_529);
    expect(floored).toBe(Math.ceil(floorOf(setup).floorUs(sums)));
    expect(floored).toBeGreaterThan(130_000);
  });

  it('counts the work of a prefill and a decode of a small dense model', () => {
    // llama-3.1-8b: elements of a layer and of the head
    const layer = 4096 * (4096 + 2 * 1024) + 4096 * 4096 + 3 * 4096 * 14336;
    const head = 128256 * 4096;
    const floor = floorOf(setups[0]);
    const one = floor.work(sumBatch([request(100, 0, 100, 8)]));
    expect(one.flops).toBe(32 * (2 * 100 * layer + 4 * 4096 * ((100 * 101) / 2)) + 2 * head);
    expect(one.bytes).toBe(2 * (32 * layer + head) + 131072 * 100);
    const decodes = floor.work(sumBatch([request(500, 510, 1, 64), request(500, 530, 1, 64)]));
    expect(decodes.bytes).toBe(2 * (32 * layer + head) + 131072 * (510 + 530 + 2));
  });
});

describe('adapter overhead', () => {
  it('lengthens a step by its factor and ignores senseless ones', () => {
    expect(withAdapterOverhead(1000, 1.0605)).toBe(1060);
    for (const factor of [1, 0.5, Number.NaN, Infinity]) expect(withAdapterOverhead(1000, factor)).toBe(1000);
  });
});
