/** Times and hits of a shared tier that can be worked out by hand. */

import { describe, expect, it } from 'vitest';
import { Simulation } from '../../../src/sim/cluster/simulation.ts';
import type { PoolConfig } from '../../../src/sim/description/deployment.ts';
import { SharedServer, type SharedServerConfig } from '../../../src/sim/links/sharedServer.ts';
import { type SmallRequest, smallPool, smallSimulation } from './smallCluster.ts';

/** A block of 1000 bytes takes a millisecond of a link. */
const config: SharedServerConfig = {
  capacityBytes: 100_000,
  lookupUs: 20,
  delayUs: 50,
  readBytesPerS: 1e6,
  writeBytesPerS: 1e6,
};
/** A prompt of 40 tokens: 10 blocks, of which 9 can be taken, since one token has to be computed. */
const prompt = { prompt: 40, output: 1, stream: 7 };
const wholeUs = 1000 + 10 * 40;
const lastBlockUs = 1000 + 10 * 4;

function sharing(shared: Partial<SharedServerConfig> = {}, replicas = 2, topBlocks = 64): PoolConfig {
  const pool = smallPool({ replicas, topBlocks });
  const both = { ...config, ...shared };
  const link = { baseLatencyUs: 0, bandwidthBytesPerS: both.instanceBytesPerS ?? 1e6, delayUs: both.delayUs };
  const links = { hbmToRemote: link, remoteToHbm: link };
  return {
    ...pool,
    engine: {
      ...pool.engine,
      lowerTiers: [{ tier: 'remote', blocks: 100 }],
      loads: { kind: 'deferred', links, prefetch: false },
      shared: both,
    },
  };
}

function run(pool: PoolConfig, requests: readonly SmallRequest[]): Simulation {
  const simulation = smallSimulation([pool], requests);
  simulation.run();
  expect(simulation.close().completed).toBe(requests.length);
  return simulation;
}

const firstTokens = ({ table }: Simulation, rows: readonly number[]): number[] =>
  rows.map((row) => table.firstTokenUs[row]);
const remoteHits = ({ instances }: Simulation): number[] =>
  instances.map(({ engine }) => engine.counters.hits.at(-1) ?? 0);

describe('the shared tier', () => {
  const keys = (count: number, first = 0): Uint32Array =>
    Uint32Array.from({ length: 4 * count }, (_, i) => 0x10000 * (first + (i >> 2)) + i);

  it('forgets what was used longest ago', () => {
    const tier = new SharedServer({ ...config, capacityBytes: 3000 });
    const words = keys(4);
    for (const block of [0, 1, 2]) tier.store('m/', words, 4 * block, 1000);
    expect(tier.find('m/', words, 0, 1)).toBe(1); // 0 is now the last to go
    tier.store('m/', words, 12, 1000);
    expect(tier.counts.evictions).toBe(1);
    expect([0, 1, 2, 3].map((block) => tier.find('m/', words, block, block + 1))).toEqual([1, 0, 1, 1]);
    expect(tier.residentBytes).toBe(3000);
    expect(tier.find('other/', words, 0, 1)).toBe(0);
  });

  it('carries one transfer after the other in each direction, for all instances', () => {
    const tier = new SharedServer(config);
    const words = keys(3);
    expect(tier.writeEndUs('m/', words, 0, 1000, 500)).toBe(1550);
    expect(tier.writeEndUs('m/', words, 4, 1000, 600)).toBe(2550);
    tier.store('m/', words, 0, 1000);
    expect(tier.writeEndUs('m/', words, 0, 1000, 2000)).toBeUndefined();
    expect(tier.readEndUs('m/', words, 0, 1000, 2000)).toBe(3050); // the other direction
    expect(tier.readEndUs('m/', words, 4, 1000, 2000)).toBeUndefined();
    expect(tier.warnings().join()).toContain('Raise capacity_bytes');
    expect(tier.counts).toMatchObject({ reads: 1, missing: 1, writes: 1, writtenByOthers: 1 });
  });
});

describe('instances with a shared tier', () => {
  it('find what another one computed, after the time of its transfer', () => {
    const simulation = run(sharing(), [
      { atUs: 0, ...prompt },
      { atUs: 1_000_000, ...prompt },
    ]);
    expect(firstTokens(simulation, [0, 1])).toEqual([wholeUs, 9 * 1000 + 50 + lastBlockUs]);
    expect(remoteHits(simulation)).toEqual([0, 9]);
    expect(simulation.shared?.counts).toMatchObject({ writes: 10, reads: 9, missing: 0, evictions: 0 });
  });

  it('find nothing there while it is still being written', () => {
    const simulation = run(sharing(), [
      { atUs: 0, ...prompt },
      { atUs: 2000, ...prompt },
    ]);
    expect(firstTokens(simulation, [1])).toEqual([wholeUs]);
    expect(remoteHits(simulation)).toEqual([0, 0]);
    expect(simulation.shared?.warnings().join()).toContain('none was read');
  });

  it('wait for each other on its link', () => {
    const requests = [0, 1_000_000, 1_000_000].map((atUs) => ({ atUs, ...prompt }));
    const times = firstTokens(run(sharing({}, 3), requests), [1, 2]);
    expect(times).toEqual([9050 + lastBlockUs, 18_050 + lastBlockUs]);
    // twice the server, and links of their own as slow as before: no one waits
    const fast = { readBytesPerS: 2e6, instanceBytesPerS: 1e6 };
    expect(firstTokens(run(sharing(fast, 3), requests), [1])).toEqual([9050 + lastBlockUs]);
  });

  it('lay a whole block there, of all GPUs that it lies over', () => {
    const pool = sharing();
    const over = { ...pool, engine: { ...pool.engine, ranks: 2 } };
    const simulation = run(over, [
      { atUs: 0, ...prompt },
      { atUs: 1_000_000, ...prompt },
    ]);
    // twice the bytes over the server's link
    expect(firstTokens(simulation, [1])).toEqual([9 * 2000 + 50 + lastBlockUs]);
    expect(simulation.shared?.counts).toMatchObject({ writes: 10, writtenBytes: 20_000, readBytes: 18_000 });
    expect(simulation.shared?.residentBytes).toBe(20_000);
    const small = { ...over, engine: { ...over.engine, shared: { ...config, capacityBytes: 1999 } } };
    expect(() => run(small, [])).toThrow('a block of 2000 bytes');
  });

  it('compute what it has no room for', () => {
    const simulation = run(sharing({ capacityBytes: 5000 }), [
      { atUs: 0, ...prompt },
      { atUs: 1_000_000, ...prompt },
    ]);
    // blocks go down from the back of a prompt, so that its first five are the last to be forgotten
    expect(firstTokens(simulation, [1])).toEqual([5 * 1000 + 50 + 1000 + 10 * 20]);
    expect(remoteHits(simulation)).toEqual([0, 5]);
    expect(simulation.shared?.counts.evictions).toBeGreaterThanOrEqual(5);
    expect(simulation.shared?.residentBytes).toBe(5000);
  });

  it('compute what it has forgotten behind their back', () => {
    // one instance whose memory holds one prompt; the server holds one and a half
    const other = { prompt: 40, output: 1, stream: 8 };
    const simulation = run(sharing({ capacityBytes: 12_000 }, 1, 14), [
      { atUs: 0, ...prompt },
      { atUs: 1_000_000, ...other },
      { atUs: 2_000_000, ...prompt },
    ]);
    const { missing } = simulation.shared?.counts ?? { missing: 0 };
    expect(missing).toBeGreaterThan(0);
    // three blocks are in its memory still, with room for one on its way beside them; that the others are gone it
    // learns in the time of a lookup
    expect(firstTokens(simulation, [2])).toEqual([20 + 1000 + 10 * 28]);
    // it had been told that they are there
    expect(remoteHits(simulation)).toEqual([6]);
  });

  it('go on from a snapshot as the run that it was taken of', () => {
    const requests = Array.from({ length: 30 }, (_, i) => ({
      atUs: 9000 * i,
      prompt: 24 + 4 * (i % 3),
      output: 2,
      stream: i % 3,
    }));
    const pool = sharing({ capacityBytes: 15_000 }, 2, 20);
    const simulation = smallSimulation([pool], requests);
    simulation.runSome(60);
    const fork = Simulation.fork(simulation.snapshot());
    for (const each of [simulation, fork]) each.run();
    expect(fork.close()).toEqual(simulation.close());
    expect(fork.shared?.counts).toEqual(simulation.shared?.counts);
    expect(simulation.shared?.counts.reads).toBeGreaterThan(0);
    expect([...fork.table.firstTokenUs]).toEqual([...simulation.table.firstTokenUs]);
  });

  it('must all share the same one, with a tier for it and loads that take time', () => {
    const pool = sharing();
    const refused = (engine: Partial<PoolConfig['engine']>) => () =>
      smallSimulation([{ ...pool, engine: { ...pool.engine, ...engine } }], []);
    expect(refused({ lowerTiers: [] })).toThrow('needs a tier of its own');
    expect(refused({ loads: { kind: 'billed', baseUs: 0, usPerBlock: 1 } })).toThrow('deferred loads');
    expect(refused({ shared: { ...config, capacityBytes: 10 } })).toThrow('less than a block');
    expect(refused({ shared: { ...config, readBytesPerS: 0 } })).toThrow('readBytesPerS');
    expect(refused({ shared: { ...config, lookupMs: 1 } as SharedServerConfig })).toThrow('lookupMs');
    const other = { ...sharing({ lookupUs: 30 }), configId: 'other' };
    expect(() => smallSimulation([pool, other], [])).toThrow('differs from the shared tier');
  });
});
