import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { lengthSpecOf } from '../../../src/sim/description/distribution.ts';
import { GoRandom } from '../../../src/sim/random/goRand.ts';
import {
  type ArrivalProcess,
  arrivalSampler,
  lengthSampler,
  normalizedExponentialGaps,
  weibullScale,
  weibullShape,
} from '../../../src/sim/random/samplers.ts';

interface Row {
  kind: 'arrival' | 'length' | 'normalized_exponential';
  seed: number;
  rate_per_us: number;
  iat_us: number[];
  k?: number;
  lambda?: number;
  samples: number[];
  count: number;
  duration_us: number;
  intervals: number[];
  spec: Record<string, unknown>;
}
const rows = JSON.parse(readFileSync(new URL('./fixtures/samplers.json', import.meta.url), 'utf8')) as Row[];

describe('samplers, draw for draw', () => {
  it('has the 19 rows of the golden file', () => expect(rows).toHaveLength(19));

  it.each(rows.map((row, i) => [i, row.kind, JSON.stringify(row.spec ?? {}), row] as const))(
    'row %i: %s %s',
    (_i, kind, _spec, row) => {
      const random = new GoRandom(BigInt(row.seed ?? 42));
      if (kind === 'normalized_exponential') {
        const gaps = normalizedExponentialGaps(random, row.count, row.duration_us);
        expect([...gaps.gapsUs]).toEqual(row.intervals);
        for (const gap of row.intervals) expect(gaps.next(random)).toBe(gap);
        expect(gaps.next(random)).toBe(0);
      } else if (kind === 'arrival') {
        const { Process, CV, Shape, Scale } = row.spec as {
          Process: ArrivalProcess;
          CV: number | null;
          Shape: number | null;
          Scale: number | null;
        };
        const sampler = arrivalSampler(
          {
            process: Process,
            ...(CV === null ? {} : { cv: CV }),
            ...(Shape === null ? {} : { shape: Shape }),
            ...(Scale === null ? {} : { scale: Scale }),
          },
          row.rate_per_us,
        );
        expect(row.iat_us.map(() => sampler.next(random))).toEqual(row.iat_us);
        if (Process === 'weibull' && CV !== null && Shape === null) {
          expect(weibullShape(CV)).toBe(row.k);
          expect(weibullScale(weibullShape(CV), 1 / row.rate_per_us)).toBe(row.lambda);
        }
      } else {
        const { Type, Params } = row.spec as { Type: string; Params: Record<string, number> };
        const sampler = lengthSampler(lengthSpecOf(Type, Params));
        expect(row.samples.map(() => sampler.next(random))).toEqual(row.samples);
      }
    },
  );
});
