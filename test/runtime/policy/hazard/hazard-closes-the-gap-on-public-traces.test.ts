/**
 * What the default policy has to reach on the public traces, with the same parameters everywhere. The traces
 * are not part of the package; without them these tests say so and do not run. The agent trace takes minutes:
 * `bench/kv/policies.ts` runs it.
 */

import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';
import { loadTrace, type TraceName } from '../../../../bench/kv/policies/traces.ts';
import { Optimum, PoolStudy } from '../../../../src/studies/replay/study.ts';
import { isFull } from '../../../sized.ts';

const directory =
  process.env.TIERKV_TRACES ?? fileURLToPath(new URL('../../../../../shared/traces', import.meta.url));
const present = existsSync(join(directory, 'mooncake-fast25'));
if (!present) console.warn('SKIPPED: the public traces are not here (shared/traces)');

type Trace = NonNullable<ReturnType<typeof loadTrace>>;
const traces = new Map<TraceName, { readonly trace: Trace; readonly optimum: Optimum }>();

/** Read once for all capacities. */
function traceOf(name: TraceName): { readonly trace: Trace; readonly optimum: Optimum } {
  let found = traces.get(name);
  if (found === undefined) {
    const trace = loadTrace(directory, name);
    if (trace === undefined) throw new Error(`${name} is not in ${directory}`);
    traces.set(name, (found = { trace, optimum: new Optimum(trace) }));
  }
  return found;
}

function measure(
  name: TraceName,
  capacity: number,
): { lru: number; hazard: number; best: number; all: number } {
  const { trace, optimum } = traceOf(name);
  const run = (policy: string): number => {
    const study = new PoolStudy(trace, {
      capacity,
      eviction: { policy },
      held: false,
      requests: trace.runs.length,
    });
    study.advance(Number.POSITIVE_INFINITY);
    return study.result().hits;
  };
  const best = optimum.hits(capacity);
  return {
    lru: run('lru'),
    get hazard() {
      return run('hazard');
    },
    best,
    all: trace.lookups,
  };
}

/** Whose like is among the others: `npm run campaign -- full` has them. */
const more = [
  { name: 'conversation', capacity: 40_000 },
  { name: 'miniswe', capacity: 50 },
  { name: 'miniswe5s', capacity: 400 },
  { name: 'sharegpt', capacity: 2_400 },
] as const;

describe.runIf(present)('hazard on the public traces', () => {
  it.each([...(isFull ? [{ capacity: 1_000, wanted: 0.26 }] : []), { capacity: 3_000, wanted: 0.32 }])(
    'closes $wanted of the gap on the conversation trace at $capacity blocks',
    ({ capacity, wanted }) => {
      const { lru, hazard, best } = measure('conversation', capacity);
      expect((hazard - lru) / (best - lru)).toBeGreaterThan(wanted);
    },
  );

  it('is measured beside the published LRU and optimum', () => {
    const { lru, best } = measure('conversation', 5_000);
    expect([lru, best]).toEqual([32_260, 98_448]);
  });

  it.each([
    { name: 'miniswe', capacity: 100 },
    { name: 'miniswe5s', capacity: 100 },
    { name: 'sharegpt', capacity: 400 },
    ...(isFull ? more : []),
  ] as const)('is at most half a point under LRU on $name at $capacity blocks', ({ name, capacity }) => {
    const { lru, hazard, best, all } = measure(name, capacity);
    expect(hazard).toBeLessThanOrEqual(best);
    expect((hazard - lru) / all).toBeGreaterThan(-0.005);
  });
});
