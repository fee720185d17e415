/**
 * The errand "a tier" of CONTRIBUTING, by an embedder: a map in memory behind all other tiers. It keeps the contract of
 * stores, and a runtime uses it by its option, its name and its title alone.
 */

import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { registerTier } from '../../src/backends/tierRows.ts';
import {
  defaultEviction,
  kvLayout,
  LogReader,
  LogWriter,
  Outcome,
  resolvePolicy,
  tierName,
} from '../../src/runtime/index.ts';
import { replayLog } from '../../src/runtime/log/replayer.ts';
import { tierNames, tierTitle } from '../../src/runtime/tier/tier.ts';
import { type ItemEnded, refused, type StoreItem, type TierStore } from '../../src/runtime/tier/tierStore.ts';
import { generateWorkload } from '../../src/sim/workload/workload.ts';
import { runnersOf, runParity } from '../../src/studies/parity/run.ts';
import { defaultSpec, trafficOf } from '../../src/studies/parity/traffic.ts';
import { runReplay } from '../../src/studies/replay/run.ts';
import { SeededRandom } from '../../src/testing/index.ts';
import { tierContract } from '../../src/testing/tierContract.ts';
import { testAdapter } from '../adapter.ts';
import {
  blocks,
  cacheBelow,
  contents,
  openHostRuntime,
  prompt,
  promptBlocks,
  rightContents,
  tenant,
  write,
} from '../embed/liveRuntime.ts';
import { opened, ShelfStore, shelfTier } from './shelfTier.ts';

const unregister = registerTier(shelfTier);

const scratch = mkdtempSync(join(tmpdir(), 'tierkv-shelf-'));
afterAll(() => {
  unregister();
  rmSync(scratch, { recursive: true });
});

tierContract('a map in memory', (shape) => ({ store: new ShelfStore(shape), movesBytes: true }));

/** Every fourth item fails: as missing, refused, or with a bit flipped on its way, which nothing reports. */
function failing(store: TierStore, random: SeededRandom): TierStore {
  const faulty = (use: 'read' | 'write') => async (items: readonly StoreItem[], ended?: ItemEnded) => {
    const spoilt = items.map(() => (random.chance(0.25) ? random.below(3) : -1));
    const given = items.map((item, i) => {
      if (use === 'read' || spoilt[i] !== 0) return item;
      const bytes = item.bytes.slice();
      bytes[random.below(bytes.length)] ^= 1;
      return { ...item, bytes };
    });
    const results = [...(await store[use](given))];
    for (const [i, item] of items.entries()) {
      const isLoaded = results[i].outcome === Outcome.LOADED;
      if (use === 'read' && spoilt[i] === 0) item.bytes[random.below(item.bytes.length)] ^= 1;
      else if (isLoaded && spoilt[i] === 1) results[i] = refused('on purpose');
      else if (isLoaded && spoilt[i] === 2 && use === 'read')
        results[i] = { outcome: Outcome.MISSING, reason: '' };
      ended?.(i, results[i]);
    }
    return results;
  };
  return new Proxy(store, {
    get(target, name) {
      if (name === 'read' || name === 'write') return faulty(name);
      const value: unknown = Reflect.get(target, name, target);
      return typeof value === 'function' ? value.bind(target) : value;
    },
  });
}

describe('a runtime', () => {
  it('pushes blocks down to it, brings them back, and its log replays byte for byte', async () => {
    const log = join(scratch, 'run.log');
    {
      await using kv = await openHostRuntime({
        nvme: { dir: mkdtempSync(join(scratch, 'disk-')), bytes: blocks(40) },
        shelfBytes: blocks(40),
        log,
      });
      expect(kv.manager.inspect.tiers.map((tier) => tierName(tier))).toEqual(['ddr', 'nvme', 'shelf']);
      await cacheBelow(kv, 1, 2);
      expect(kv.lookup(prompt(1), { tenant }).byTier).toEqual([0, 0, promptBlocks]);
      const sequence = await kv.begin(prompt(1), { tenant });
      expect(await contents(kv, sequence)).toEqual(rightContents(1));
      kv.release(sequence);
      expect(kv.describe().shelf).toMatchObject({ store: 'shelf', slots: promptBlocks });
      kv.manager.checkIntegrity();
    }
    const text = readFileSync(log, 'utf8');
    const lines = text.trimEnd().split('\n');
    const head = new LogReader(log);
    head.read(lines[0]);
    let again = '';
    const writer = new LogWriter(head.config, { log: (part) => void (again += part) });
    replayLog(lines, log, writer);
    writer.end();
    expect(again === text).toBe(true);
  });

  it('finds wrong bytes of it on arrival, and computes the block again', async () => {
    await using kv = await openHostRuntime({ shelfBytes: blocks(40) });
    await cacheBelow(kv, 5, 1);
    opened.shelf?.flipOne();
    const sequence = await kv.begin(prompt(5), { tenant });
    expect(kv.manager.inspect.counters.loadsFailed[Outcome.CORRUPT]).toBe(1);
    write(kv, sequence, 5);
    await kv.seal(sequence);
    expect(await contents(kv, sequence)).toEqual(rightContents(5));
    kv.release(sequence);
  });

  it('names its option in errors, beside the names of others', async () => {
    await expect(openHostRuntime({ shelfBytes: 10 })).rejects.toMatchObject({
      code: 'TKV_CONFIG',
      field: 'shelfBytes',
    });
    await expect(openHostRuntime({ shelfByts: 10 } as never)).rejects.toThrow(/shelfBytes/);
    expect([tierTitle('shelf'), tierNames.at(-1)]).toEqual(['Shelf', 'shelf']);
  });

  it('serves no wrong byte while it fails at random', async () => {
    const random = new SeededRandom(Number(process.env.TIERKV_SEED ?? 1));
    await using kv = await openHostRuntime({
      ddrBytes: blocks(12),
      shelfBytes: blocks(30),
      wrapStores: (stores) => ({ ...stores, shelf: failing(stores.shelf as TierStore, random) }),
    });
    for (let step = 0; step < 60; step++) {
      const seed = 10 * random.below(6);
      const sequence = await kv.begin(prompt(seed), { tenant });
      write(kv, sequence, seed);
      await kv.seal(sequence);
      expect(await contents(kv, sequence)).toEqual(rightContents(seed));
      kv.release(sequence);
    }
    await kv.idle();
    const { loadsFailed } = kv.manager.inspect.counters;
    expect(
      loadsFailed[Outcome.CORRUPT] + loadsFailed[Outcome.MISSING] + loadsFailed[Outcome.REFUSED],
    ).toBeGreaterThan(3);
    kv.manager.checkIntegrity();
  });
});

describe('a replay and a parity run on software', () => {
  const { signal } = new AbortController();
  const listener = { signal, notice: () => {}, progress: () => {}, stage: () => {} };

  it('replays a trace through it, and verifies what comes back', async () => {
    const report = await runReplay(
      {
        tracePath: join('data', 'mooncake-conversation-excerpt.jsonl.gz'),
        tiers: [
          { name: 'hbm', blocks: 60 },
          { name: 'shelf', blocks: 4000 },
        ],
        requests: 200,
        blockBytes: 256,
        blockTokens: 512,
        driver: 'real',
        eviction: resolvePolicy(defaultEviction),
        offloadThreshold: 1,
        linkBandwidthBytesPerS: 1e9,
        linkBaseLatencyUs: 10,
        skipBad: false,
      },
      listener,
    );
    expect(report.hits.shelf).toBeGreaterThan(0);
    expect(report.demotions.hbmToShelf).toBeGreaterThan(0);
    expect(report.bytesMoved.shelfToHbm).toBeGreaterThan(0);
    expect([report.verifyFailures, report.verified > 0]).toEqual([0, true]);
  });

  it('serves on it what the simulator replays to the byte and finds as well', async () => {
    const link = { baseLatencyUs: 50, bandwidthBytesPerS: 1e9 };
    const linksPath = join(scratch, 'links.json');
    const links = { hbmToDdr: link, ddrToHbm: link, ddrToShelf: link, shelfToHbm: link, shelfToDdr: link };
    writeFileSync(linksPath, JSON.stringify({ schema: 'tierkv.links/1', device: 'a guess', links }));
    // the default traffic, whose users think for six seconds, while others push their blocks down
    const spec = defaultSpec();
    const clients = spec.clients.map((client) => {
      const multiTurn = { ...client.reasoning!.multiTurn!, thinkTimeUs: 2_500_000 };
      return { ...client, reasoning: { ...client.reasoning, multiTurn } };
    });
    const open = () => {
      const { sessions, stream } = generateWorkload({ ...spec, clients }, { maxRequests: 14 });
      return { stream: stream(), sessions };
    };
    const layout = kvLayout({ layers: 1, kvHeads: 1, headDim: 64, dtype: 'f16', blockTokens: 16 });
    const options = {
      traffic: trafficOf(open, 4),
      latency: {
        backend: 'linear',
        stepTimeUs: () => 3000,
        explain: () => [],
        queueingTimeUs: () => 0,
        outputTokenProcessingUs: 0,
        postDecodeOverheadUs: 0,
      },
      latencyModel: '3 ms a step',
      layout,
      tiers: [
        { name: 'hbm' as const, blocks: 150 },
        { name: 'ddr' as const, blocks: 60 },
        { name: 'shelf' as const, blocks: 4000 },
      ],
      eviction: 'lru',
      scheduler: { maxSequences: 16, maxBatchedTokens: 2048 },
      adapter: testAdapter,
      linksPath,
      logPath: undefined,
    };
    const { report } = await runParity(options, runnersOf(options), scratch, listener);
    expect(report.exact).toMatchObject({ identical: true, firstDifference: null });
    expect(report.wrongBlocks).toBe(0);
    expect(report.hits.byTier.shelf.real).toBeGreaterThan(0);
    expect(Math.abs(report.hits.points)).toBeLessThan(2);
    expect(report.transfers.shelfToHbm.real.count).toBeGreaterThan(0);
  });
});
