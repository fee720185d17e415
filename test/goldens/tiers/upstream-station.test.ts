/**
 * Upstream's transfer stations: the model of one equals them in every id, end and job in service. tierkv has
 * none such: its links carry one transfer after the other in each direction.
 */

import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { copies } from '../goldenFolders.ts';
import { type Direction, type StationTier, TransferStation } from './transferStation.ts';

interface StationOperation {
  readonly op: 'submit' | 'poll';
  readonly tick: number;
  readonly tier: number;
  readonly dir: Direction;
  readonly bytes: number;
  readonly jitter: number;
  readonly id: number;
  readonly active?: readonly number[];
  readonly done: readonly number[] | null;
}

interface StationTrace {
  readonly config: { readonly Tiers: readonly StationTier[] };
  readonly ops: readonly StationOperation[];
}

describe('transfer stations', () => {
  const traces: StationTrace[] = JSON.parse(readFileSync(new URL('micro/station.json', copies), 'utf8'));

  it.each(traces.map((trace, i) => [i, trace] as const))('%i', (_, { config, ops }) => {
    expect(ops.length).toBeGreaterThan(150);
    const station = new TransferStation(config.Tiers);
    for (const [i, { op, tick, tier, dir, bytes, jitter, id, active, done }] of ops.entries()) {
      const where = `operation ${i}`;
      if (op === 'submit') expect(station.submit(tick, tier, dir, bytes, jitter), where).toBe(id);
      else {
        expect(station.poll(tick), where).toEqual(done ?? []);
        // the last look says no more
        if (active !== undefined) expect(station.active, where).toEqual(active);
      }
    }
  });
});
