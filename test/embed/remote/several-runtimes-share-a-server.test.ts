import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import {
  HEADER_BYTES,
  RECORD_OVERHEAD_BYTES,
  RecordCodec,
} from '../../../src/backends/remote/sealedRecord.ts';
import { KVRuntime, type KVRuntimeConfig } from '../../../src/index.ts';
import { metrics } from '../../../src/observe/metrics/catalogue.ts';
import type { MetricSample } from '../../../src/observe/metrics/metric.ts';
import { watchRuntime } from '../../../src/observe/metrics/watch.ts';
import { LogReader, LogWriter, layoutFingerprint, tierName } from '../../../src/runtime/index.ts';
import { replayLog } from '../../../src/runtime/log/replayer.ts';
import { SeededRandom, testSeed } from '../../../src/testing/index.ts';
import { FaultProxy } from '../../backends/remote/faultProxy.ts';
import {
  hasRedis,
  type RedisServer,
  sayRedisIsAbsent,
  startRedis,
} from '../../backends/remote/redisServer.ts';
import { sharedDevice } from '../../sharedDevice.ts';
import { sized } from '../../sized.ts';
import { ask, blocks, layout, promptBlocks } from '../liveRuntime.ts';

const secretKey = new Uint8Array(32).fill(7);
const whole = promptBlocks * layout.blockTokens;
/** Of four records each: every kind once, or 700 records. */
const forgedRounds = sized(17, 175);
const patient = { deadlineMs: 60_000, lookupMs: 60_000, connectMs: 60_000 };

if (!hasRedis) sayRedisIsAbsent('several runtimes share a server');
describe.skipIf(!hasRedis)('a server shared by runtimes', () => {
  let server: RedisServer;
  beforeAll(async () => {
    server = await startRedis();
  });
  beforeEach(async () => void (await server.ask('FLUSHALL')));
  afterAll(() => server[Symbol.asyncDispose]());

  const open = (more: Partial<KVRuntimeConfig> = {}, remote: object = {}): Promise<KVRuntime> =>
    KVRuntime.open({
      layout,
      model: 'test@1',
      secretKey,
      hbmBytes: blocks(20),
      ddrBytes: blocks(20),
      device: sharedDevice,
      remote: { url: server.url, bytes: blocks(200), ...patient, ...remote },
      ...more,
    });

  it('loads in one runtime what another one computed, bit for bit', async () => {
    await using one = await open();
    await using other = await open();
    expect(await ask(one, 1)).toEqual({ cachedTokens: 0, right: true });
    expect(one.describe().remote).toMatchObject({ written: promptBlocks });
    expect(await ask(other, 1)).toEqual({ cachedTokens: whole, right: true });
    expect(other.describe().remote).toMatchObject({ found: promptBlocks, loaded: promptBlocks });
    expect(other.metrics().counters.adopted).toBe(promptBlocks);
    // what is in a tier of its own by now is not asked for again
    expect(await ask(other, 1)).toEqual({ cachedTokens: whole, right: true });
    expect(other.describe().remote.lookups).toBe(1);
  });

  it('works without host memory between, and with plain payloads', async () => {
    await using one = await open({ ddrBytes: 0 }, { encrypt: false });
    await using other = await open({ ddrBytes: 0 });
    await ask(one, 2);
    expect(await ask(other, 2)).toEqual({ cachedTokens: whole, right: true });
  });

  it('goes with a disk of its own: what lies in both is read from the disk, and from the server where that is gone', async () => {
    const dir = mkdtempSync(join(tmpdir(), 'tierkv-both-'));
    try {
      const nvme = { dir, bytes: blocks(40) };
      await using one = await open({ ddrBytes: 0, nvme });
      expect((await ask(one, 6)).right).toBe(true);
      const tierOf = (name: string): number =>
        one.manager.inspect.tiers.findIndex((tier) => tierName(tier) === name);
      for (const name of ['nvme', 'remote']) {
        expect(one.manager.inspect.usage(tierOf(name)).slots.ready, name).toBe(promptBlocks);
      }
      one.manager.evict(0, 20, one.nowUs());
      await one.idle();
      const before = one.describe();
      expect(await ask(one, 6)).toEqual({ cachedTokens: whole, right: true });
      expect(one.describe().remote.lookups).toBe(before.remote.lookups);
      expect(one.describe().remote.loaded).toBe(before.remote.loaded);
      one.manager.evict(0, 20, one.nowUs());
      await one.idle();
      one.manager.evict(tierOf('nvme'), 40, one.nowUs());
      await one.idle();
      expect(await ask(one, 6)).toEqual({ cachedTokens: whole, right: true });
      expect(one.describe().remote.loaded).toBe(promptBlocks);
    } finally {
      rmSync(dir, { recursive: true, force: true });
    }
  });

  it('begins on blocks of its own without a word to the server, however silent that is', async () => {
    await using silent = await startRedis();
    await using proxy = await FaultProxy.open(silent.port, new SeededRandom(testSeed(20_404)));
    await using one = await open({}, { url: proxy.url });
    await ask(one, 7);
    await ask(one, 8);
    const { lookups, loaded } = one.describe().remote;
    proxy.way = 'stall'; // `patient`: a call that went to the server would hold the test for a minute
    for (const seed of [7, 8, 7]) expect(await ask(one, seed)).toEqual({ cachedTokens: whole, right: true });
    expect(one.describe().remote).toMatchObject({ lookups, loaded });
    proxy.way = 'pass';
  });

  it('finds nothing of another secret, tenant, model, layout or epoch', async () => {
    await using one = await open();
    await ask(one, 3);
    for (const more of [{ secretKey: new Uint8Array(32).fill(8) }, { model: 'test@2' }, { epoch: 1 }]) {
      await using other = await open(more);
      expect(await ask(other, 3), Object.keys(more)[0]).toEqual({ cachedTokens: 0, right: true });
    }
    await using third = await open();
    const sequence = await third.begin(
      Uint32Array.from({ length: whole + 1 }, (_, i) => 3000 + i),
      {
        tenant: 'tenant-b',
      },
    );
    expect(sequence.cachedTokens).toBe(0);
    third.release(sequence);
  });

  it('replays a run that found blocks on the server, without a server', async () => {
    await using one = await open();
    await ask(one, 5);
    const dir = mkdtempSync(join(tmpdir(), 'tierkv-remote-'));
    try {
      const path = join(dir, 'run.log');
      const other = await open({ log: path });
      expect((await ask(other, 5)).cachedTokens).toBe(whole);
      await other.close();
      const text = readFileSync(path, 'utf8');
      const lines = text.trimEnd().split('\n');
      expect(lines.filter((line) => line.includes(' found '))).toHaveLength(promptBlocks);
      const head = new LogReader(path);
      head.read(lines[0]);
      let again = '';
      const writer = new LogWriter(head.config, { log: (part) => (again += part) });
      replayLog(lines, path, writer);
      writer.end();
      expect(again === text, 'the same decisions, byte for byte').toBe(true);
    } finally {
      rmSync(dir, { recursive: true, force: true });
    }
  });

  it('is written as far as its budget goes: its size, and what is read back', async () => {
    const written = async (writeBudget?: object): Promise<number> => {
      await server.ask('FLUSHALL');
      const small = { bytes: blocks(6), ...(writeBudget === undefined ? {} : { writeBudget }) };
      await using one = await open({}, small);
      for (const seed of [1, 2, 3]) await ask(one, seed);
      return Number(one.describe().remote.written);
    };
    expect(await written({ bytesPerByteRead: 0 })).toBe(6);
    expect(await written(), 'without one').toBe(3 * promptBlocks);
  });

  it('is found by all groups of layers, or not at all', async () => {
    const layerGroups = [
      { first: 0, end: 1 },
      { first: 1, end: 2 },
    ];
    const grouped = { layerGroups };
    await using one = await open(grouped);
    await using other = await open(grouped);
    await ask(one, 1);
    expect(await ask(other, 1)).toEqual({ cachedTokens: whole, right: true });
    // one group of the second block is gone: the prefix ends before it
    await server.ask('FLUSHALL');
    await ask(one, 4);
    const list = await server.ask('EVAL', "return table.concat(redis.call('KEYS','*'), ' ')", '0');
    const names = list.toString().split(' ');
    expect(names).toHaveLength(2 * promptBlocks);
    await using third = await open(grouped);
    await server.ask('DEL', names[0]);
    const { cachedTokens, right } = await ask(third, 4);
    expect(right).toBe(true);
    expect(cachedTokens).toBeLessThan(whole);
    expect(cachedTokens % layout.blockTokens).toBe(0);
  });

  it('computes what the server has forgotten meanwhile', async () => {
    await using one = await open();
    await using other = await open();
    await ask(one, 4);
    const { manager } = other;
    await ask(other, 4);
    await other.idle();
    for (const position of [0, 1]) {
      manager.evict(position, 20, other.nowUs());
      await other.idle();
    }
    expect(manager.inspect.usage(2).slots.ready).toBe(promptBlocks);
    await server.ask('FLUSHALL');
    expect(await ask(other, 4)).toEqual({ cachedTokens: 0, right: true });
  });

  it(`accepts none of ${4 * forgedRounds} forged, swapped, cut, replayed or oversized records`, async () => {
    const identity = { secretKey, layout: layoutFingerprint(layout), generation: 0 };
    const codec = new RecordCodec(identity);
    await using writer = await open();
    const seed = testSeed(20_401);
    const random = new SeededRandom(seed);
    const namesOf = async (): Promise<string[]> => {
      const kept = (
        await server.ask('EVAL', "return table.concat(redis.call('KEYS','*'), ' ')", '0')
      ).toString();
      return kept.split(' ').filter((name) => name !== '');
    };
    expect(codec.nameOf(new Uint32Array(4))).toMatch(/^tierkv:1:[0-9a-f]{32}$/);
    const key = new Uint32Array(4).fill(5);
    const digest = { lo: 1, hi: 2 };
    /** A record that is right in itself, made by another secret, layout or generation. */
    const madeBy = (other: object) => (old: Buffer) =>
      new RecordCodec({ ...identity, ...other }).seal({
        key,
        digest,
        bytes: new Uint8Array(old.length - RECORD_OVERHEAD_BYTES),
      });
    /** A record with a byte changed, from `from` to `to` of it. */
    const changed = (from: number, to: (length: number) => number) => (old: Buffer) => {
      const now = Buffer.from(old);
      now[from + random.below(to(now.length) - from)] ^= 1 + random.below(255);
      return now;
    };
    const replaced = (at: number, bytes: Buffer) => (old: Buffer) =>
      Buffer.concat([old.subarray(0, at), bytes, old.subarray(at + bytes.length)]);
    /** How a record is forged from what lies there, and what lies beside it; or what the server is asked. */
    const kinds: readonly (readonly [
      string,
      (old: Buffer, other: Buffer) => Buffer | readonly (readonly string[])[],
    ])[] = [
      ['a byte of its magic or version', changed(0, () => 6)],
      ['its flags', changed(6, () => 8)],
      ['a byte of its salt', changed(8, () => 24)],
      ['a byte of its facts', changed(24, () => 112)],
      ['a byte of the head’s authenticator', changed(112, () => HEADER_BYTES)],
      ['a byte of its payload', changed(HEADER_BYTES, (length) => length - 16)],
      ['a byte of its authenticator', (old) => changed(old.length - 16, (length) => length)(old)],
      ['the record of another block', (_, other) => other],
      [
        'its own head before the payload of another',
        (old, other) => replaced(0, old.subarray(0, HEADER_BYTES))(other),
      ],
      ['cut', (old) => old.subarray(0, random.below(old.length))],
      ['of another secret', madeBy({ secretKey: new Uint8Array(32).fill(8) })],
      ['of another layout', madeBy({ layout: 'other' })],
      ['of another generation', madeBy({ generation: 1 })],
      ['random', (old) => Buffer.from(Array.from(old, () => random.below(256)))],
      ['a byte longer', (old) => Buffer.concat([old, Buffer.of(0)])],
      ['32 MiB longer', () => [['SETRANGE', 'NAME', String(2 ** 25), 'x']]],
      [
        'of another type',
        () => [
          ['DEL', 'NAME'],
          ['RPUSH', 'NAME', 'x'],
        ],
      ],
    ];
    expect(kinds).toHaveLength(17);
    let refused = 0;
    for (let round = 0; round < forgedRounds; round++) {
      const [kind, forge] = kinds[round % kinds.length];
      const where = `${kind}, round ${round}, seed ${seed}`;
      await server.ask('FLUSHALL');
      await ask(writer, 10 + round);
      const names = await namesOf();
      const old = await Promise.all(names.map((name) => server.ask('GET', name)));
      for (const [i, name] of names.entries()) {
        const forged = forge(old[i], old[(i + 1) % names.length]);
        const asked = Buffer.isBuffer(forged) ? [['SET', name, forged]] : forged;
        for (const words of asked) await server.ask(...words.map((word) => (word === 'NAME' ? name : word)));
      }
      await using reader = await open();
      const { cachedTokens, right } = await ask(reader, 10 + round);
      expect(right, where).toBe(true);
      expect(cachedTokens, where).toBe(0);
      refused += names.length;
    }
    expect(refused).toBe(4 * forgedRounds);
    // the control: the same way with the records as they are
    await server.ask('FLUSHALL');
    await ask(writer, 200);
    await using reader = await open();
    expect((await ask(reader, 200)).cachedTokens).toBe(whole);
  });

  it('serves on, with every begin ended, while the server is killed, comes back, stalls, lies and slows', async () => {
    const random = new SeededRandom(testSeed(20_402));
    await using proxied = await startRedis();
    await using proxy = await FaultProxy.open(proxied.port, random);
    const remote = { url: proxy.url, deadlineMs: 300, lookupMs: 100, connectMs: 1000 };
    await using one = await open({}, remote);
    await using other = await open({}, remote);
    const ways = ['pass', 'garble', 'cut', 'stall', 'halfOpen', 'slow', 'refuse', 'pass'] as const;
    for (const [i, way] of ways.entries()) {
      proxy.way = way;
      if (way === 'slow') await proxied.restart();
      for (const seed of [30 + i, 31 + i]) {
        expect((await ask(one, seed)).right, `${way} ${seed}`).toBe(true);
        expect((await ask(other, seed)).right, `${way} ${seed}`).toBe(true);
      }
    }
    proxy.way = 'pass';
    await proxied.kill();
    for (let seed = 60; seed < 66; seed++) expect((await ask(one, seed)).right).toBe(true);
    expect(one.describe().remote.leftOut).toBeGreaterThan(0);
  });

  it('comes back by itself once the server is there again', async () => {
    await using mortal = await startRedis();
    const remote = { url: mortal.url, deadlineMs: 300, lookupMs: 300, connectMs: 300 };
    await using one = await open({}, remote);
    const read = (name: string): readonly MetricSample[] | undefined =>
      metrics.find((metric) => metric.name === name)?.read(watchRuntime(one));
    const labels = { tier: 'remote' };
    expect(read('tierkv_breaker_state')).toEqual([{ labels, value: 0 }]);
    await mortal.kill();
    for (let seed = 70; seed < 76; seed++) await ask(one, seed);
    expect(one.describe().remote.state).not.toBe('closed');
    expect(read('tierkv_breaker_state')?.[0].value).not.toBe(0);
    expect(read('tierkv_breaker_openings_total')?.[0].value).toBeGreaterThan(0);
    await mortal.restart();
    let seed = 80;
    while (one.describe().remote.state !== 'closed') {
      await ask(one, seed++ % 90);
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
    expect(one.describe().remote.state).toBe('closed');
  });

  it('takes a server that is full, or a replica that must not be written, as an outcome', async () => {
    await using full = await startRedis('--maxmemory', '2mb', '--maxmemory-policy', 'noeviction');
    await using writer = await open({}, { url: full.url });
    for (let seed = 120; seed < 140; seed++) expect((await ask(writer, seed)).right).toBe(true);
    expect(writer.describe().remote.refusedWrites).toBeGreaterThan(0);
    // what it has is found by who writes in vain beside
    await using reader = await open({ hbmBytes: blocks(8), ddrBytes: 0 }, { url: full.url });
    for (let seed = 160; seed < 180; seed++) {
      expect(await ask(reader, seed)).toEqual({ cachedTokens: 0, right: true });
      expect(await ask(reader, 120)).toEqual({ cachedTokens: whole, right: true });
    }
    expect(reader.describe().remote).toMatchObject({ leftOut: 0, state: 'closed' });
    expect(reader.describe().remote.refusedWrites).toBeGreaterThan(2);
    await server.ask('CONFIG', 'SET', 'min-replicas-to-write', '3');
    await using second = await open();
    expect((await ask(second, 150)).right).toBe(true);
    await server.ask('CONFIG', 'SET', 'min-replicas-to-write', '0');
  });
});
