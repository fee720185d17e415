import { spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { type AddressInfo, createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { Breaker } from '../../../src/backends/remote/breaker.ts';
import { loadNativeCipher } from '../../../src/backends/remote/nativeCipher.ts';
import { RemoteStore, type RemoteStoreOptions } from '../../../src/backends/remote/remoteStore.ts';
import { parseRemoteUrl } from '../../../src/backends/remote/remoteUrl.ts';
import { RecordCodec } from '../../../src/backends/remote/sealedRecord.ts';
import { poolShape } from '../../../src/runtime/tables/slotPool.ts';
import { Outcome } from '../../../src/runtime/tier/tier.ts';
import {
  emptyItem,
  mismatchedWords,
  patternItem,
  patternKey,
  SeededRandom,
  testSeed,
} from '../../../src/testing/index.ts';
import { portOfOurOwn } from '../../ports.ts';
import { FaultProxy } from './faultProxy.ts';
import {
  askRedis,
  hasRedis,
  type RedisServer,
  sayRedisIsAbsent,
  startCluster,
  startRedis,
} from './redisServer.ts';

const shape = poolShape(8, 8192, [8192]);
const secretKey = new Uint8Array(32).fill(7);
const open = (url: string, more: Partial<RemoteStoreOptions> = {}): Promise<RemoteStore> =>
  RemoteStore.open(shape, {
    url,
    secretKey,
    layout: 'a layout',
    deadlineMs: 60_000,
    lookupMs: 60_000,
    connectMs: 20_000,
    ...more,
  });

async function roundTrip(store: RemoteStore): Promise<void> {
  const items = [0, 1, 2, 3].map((slot) => patternItem(shape, slot, 0, 1));
  expect((await store.write(items)).map(({ reason }) => reason)).toEqual(['', '', '', '']);
  const keys = new Uint32Array(16);
  for (const [i, { key }] of items.entries()) keys.set(key, 4 * i);
  const [found] = await store.lookup([{ keys, from: 0, to: 4, sizeClass: 0 }]);
  expect(found).toHaveLength(4);
  const targets = items.map((item) => emptyItem(item));
  expect((await store.read(targets)).map(({ reason }) => reason)).toEqual(['', '', '', '']);
  for (const target of targets) expect(mismatchedWords(target)).toBe(0);
}

describe('the address of a server', () => {
  it('is one text', () => {
    expect(parseRemoteUrl('redis://127.0.0.1')).toMatchObject({
      kind: 'standalone',
      tls: false,
      database: 0,
    });
    expect(parseRemoteUrl('rediss://me:a%3Ab@host:7000/3')).toMatchObject({
      tls: true,
      username: 'me',
      password: 'a:b',
      database: 3,
      addresses: [{ host: 'host', port: 7000 }],
      shown: 'rediss://me:***@host:7000/3',
    });
    expect(parseRemoteUrl('valkey+cluster://a:1,b:2').addresses).toHaveLength(2);
    expect(parseRemoteUrl('redis+sentinel://a,b:2/main')).toMatchObject({
      primary: 'main',
      addresses: [
        { host: 'a', port: 26379 },
        { host: 'b', port: 2 },
      ],
    });
    expect(parseRemoteUrl('redis://[::1]:1').addresses).toEqual([{ host: '::1', port: 1 }]);
  });

  for (const [url, says] of [
    ['localhost:6379', 'is not an address'],
    ['http://localhost', 'http://'],
    ['redi://localhost', 'Did you mean redis'],
    ['redis://', 'host or port'],
    ['redis://a:0', 'host or port'],
    ['redis://a:99999', 'host or port'],
    ['redis://a,b', '+cluster://'],
    ['redis://a/x', 'A database must be a number'],
    ['redis+sentinel://a', 'which primary'],
    ['redis+cluster://a/3', 'a cluster has not'],
    ['redis://me@a', 'no password'],
    ['redis://me:%zz@a', 'bare %'],
  ]) {
    it(`${url} is refused, with the remedy`, () => {
      expect(() => parseRemoteUrl(url)).toThrowError(
        expect.objectContaining({
          code: 'TKV_CONFIG',
          field: 'remote.url',
          message: expect.stringContaining(says),
        }),
      );
    });
  }
});

describe('a record', () => {
  const identity = { secretKey, layout: 'a layout', generation: 3 };
  const codec = new RecordCodec(identity);
  const item = { ...patternItem(shape, 1, 0, 1), tokens: 16, parent: patternKey(0, 1) };

  for (const encrypt of [true, false]) {
    it(`opens under its own key only, and with each byte as it was (${encrypt ? 'encrypted' : 'plain'})`, () => {
      const record = new RecordCodec({ ...identity, encrypt }).seal(item);
      const into = new Uint8Array(8192);
      expect(codec.open(record, item.key, into)).toEqual({
        parent: item.parent,
        tokens: 16,
        digest: item.digest,
        payloadBytes: 8192,
      });
      expect(into).toEqual(item.bytes);
      for (let at = 0; at < record.length; at += at < 200 ? 1 : 397) {
        const changed = Buffer.from(record);
        changed[at] ^= 1;
        expect(codec.open(changed, item.key, into), `byte ${at}`).toHaveProperty('fault');
      }
      expect(codec.open(record, patternKey(2, 1), into)).toHaveProperty('fault', 'foreign');
      for (const other of [{ generation: 4 }, { layout: 'another' }, { secretKey: new Uint8Array(16) }]) {
        const reader = new RecordCodec({ ...identity, ...other });
        expect(reader.open(record, item.key, into)).toHaveProperty('fault', 'foreign');
        expect(reader.nameOf(item.key)).not.toBe(codec.nameOf(item.key));
      }
    });
  }

  it('is the same by OpenSSL called beside, which Node and it open for each other', async () => {
    const native = await loadNativeCipher();
    if (native === undefined) return void console.log('SKIPPED: koffi is not installed: npm install koffi');
    for (const bytes of [0, 1, 8192, 100_001]) {
      for (const encrypt of [true, false]) {
        const block = { ...item, bytes: new Uint8Array(bytes).map((_, i) => (i * 31) >>> 2) };
        const by = [
          new RecordCodec({ ...identity, encrypt }, native),
          new RecordCodec({ ...identity, encrypt }),
        ];
        for (const writer of by) {
          const record = await writer.sealBeside(block);
          for (const reader of by) {
            const into = new Uint8Array(bytes);
            expect(await reader.openBeside(record, item.key, into)).toHaveProperty('payloadBytes', bytes);
            expect(Buffer.compare(into, block.bytes)).toBe(0);
            for (const at of [130, 128 + (bytes >> 1), record.length - 1]) {
              const changed = Buffer.from(record);
              changed[at] ^= 1;
              expect(await reader.openBeside(changed, item.key, into)).toHaveProperty('fault', 'foreign');
            }
          }
        }
      }
    }
  });

  it('of another version is taken for a foreign value, never for a wrong block', () => {
    const record = codec.seal(item);
    record.writeUInt16LE(2, 4);
    expect(codec.open(record, item.key, new Uint8Array(8192))).toHaveProperty('fault', 'absent');
  });

  it('shows neither key, parent, digest nor payload', () => {
    const record = codec.seal(item);
    const words = [...item.key, ...item.parent, item.digest.lo, item.digest.hi];
    for (const word of words) {
      const bytes = Buffer.alloc(4);
      bytes.writeUInt32LE(word >>> 0);
      if (word > 0xffff) expect(record.includes(bytes)).toBe(false);
    }
    expect(record.includes(Buffer.from(item.bytes.subarray(0, 32)))).toBe(false);
    expect(codec.seal(item).subarray(24)).not.toEqual(record.subarray(24));
  });
});

describe('the breaker', () => {
  it('leaves a server out after three faults, tries one call after a pause, and waits longer each time', () => {
    let nowMs = 0;
    const breaker = new Breaker(() => nowMs);
    for (let i = 0; i < 3; i++) {
      expect(breaker.allows()).toBe(true);
      breaker.failed('gone');
    }
    expect(breaker.allows()).toBe(false);
    nowMs += 500;
    expect(breaker.allows()).toBe(true);
    expect(breaker.allows()).toBe(false); // one on trial
    breaker.failed('gone');
    nowMs += 500;
    expect(breaker.allows()).toBe(false);
    nowMs += 500;
    expect(breaker.allows()).toBe(true);
    breaker.succeeded();
    expect(breaker.state).toBe('closed');
  });

  it('leaves a server out that is slower than computing, and only then', () => {
    const breaker = new Breaker(() => 0);
    for (let i = 0; i < 100; i++) breaker.loaded(10, 11);
    for (let i = 0; i < 100; i++) breaker.loaded(10, undefined);
    expect(breaker.state).toBe('closed');
    for (let i = 0; i < 8; i++) breaker.loaded(100, 11);
    expect(breaker.state).toBe('open');
    expect(breaker.reason).toContain('as long as computing');
  });
});

if (!hasRedis) sayRedisIsAbsent('servers of each kind');
describe.skipIf(!hasRedis)('servers', () => {
  it('with user and password, and a wrong one is an error without the password in it', async () => {
    await using server = await startRedis('--requirepass', 'pass:word');
    await using store = await open(`redis://:pass%3Aword@127.0.0.1:${server.port}`);
    await roundTrip(store);
    const wrong = open(`redis://:secretwrong@127.0.0.1:${server.port}`);
    await expect(wrong).rejects.toMatchObject({ code: 'TKV_CONFIG', field: 'remote.url' });
    await expect(wrong).rejects.not.toThrow('secretwrong');
    await expect(open(server.url)).rejects.toMatchObject({ code: 'TKV_CONFIG' });
  });

  it('as a user with few rights, and without a right it needs says which', async () => {
    await using server = await startRedis();
    const rights = [
      '~tierkv:*',
      '+get',
      '+getrange',
      '+set',
      '+unlink',
      '+client',
      '+hello',
      '+info',
      '+select',
    ];
    await server.ask('ACL', 'SETUSER', 'kv', 'on', '>pass', ...rights);
    await using store = await open(`redis://kv:pass@127.0.0.1:${server.port}`);
    await roundTrip(store);
    await server.ask('ACL', 'SETUSER', 'kv', '-set');
    const [end] = await store.write([patternItem(shape, 5, 0, 1)]);
    expect(end.outcome).toBe(Outcome.REFUSED);
    expect(end.reason).toMatch(/set/i);
    await server.ask('ACL', 'SETUSER', 'blind', 'on', '>pass', '-@all', '+client', '+hello', '+info');
    await expect(open(`redis://blind:pass@127.0.0.1:${server.port}`)).rejects.toMatchObject({
      code: 'TKV_CONFIG',
      field: 'remote.url',
    });
  });

  it('as a cluster of three, also while slots move between its nodes', async () => {
    await using nodes = new AsyncDisposableStack();
    const cluster = await startCluster(3);
    for (const node of cluster) nodes.use(node);
    await using store = await open(
      `redis+cluster://127.0.0.1:${cluster[0].port},127.0.0.1:${cluster[1].port}`,
    );
    await roundTrip(store);
    const codec = new RecordCodec({ secretKey, layout: 'a layout', generation: 0 });
    const held = await Promise.all(
      cluster.map(async (node) => (await node.ask('EVAL', "return #redis.call('KEYS','*')", '0')).toString()),
    );
    expect(held.reduce((sum, count) => sum + Number(count.slice(1)), 0)).toBe(4);
    // each slot of a name goes to the next node, behind the client's back: it is told MOVED
    const items = [4, 5, 6, 7].map((slot) => patternItem(shape, slot, 0, 1));
    const ids = await Promise.all(
      cluster.map(async (node) => (await node.ask('CLUSTER', 'MYID')).toString()),
    );
    for (const { key } of items) {
      const slot = Number(
        (await cluster[0].ask('CLUSTER', 'KEYSLOT', codec.nameOf(key))).toString().slice(1),
      );
      const owner = Math.floor((slot * 3) / 16_384 + 1e-9);
      const next = (owner + 1) % 3;
      for (const node of [cluster[next], ...cluster]) {
        await node.ask('CLUSTER', 'SETSLOT', String(slot), 'NODE', ids[next]);
      }
    }
    expect((await store.write(items)).map(({ reason }) => reason)).toEqual(['', '', '', '']);
    const targets = items.map((item) => emptyItem(item));
    expect((await store.read(targets)).map(({ reason }) => reason)).toEqual(['', '', '', '']);
    for (const target of targets) expect(mismatchedWords(target)).toBe(0);
  });

  it('after a failover: a replica that was the primary is left for the one that sentinels name', async () => {
    await using one = await startRedis();
    await using other = await startRedis();
    await using sentinel = await startRedis('--sentinel');
    const monitor = (server: RedisServer): Promise<Buffer> =>
      sentinel.ask('SENTINEL', 'MONITOR', 'main', '127.0.0.1', String(server.port), '1');
    await monitor(one);
    await using store = await open(`redis+sentinel://127.0.0.1:${sentinel.port}/main`);
    await roundTrip(store);
    await one.ask('REPLICAOF', '127.0.0.1', String(other.port));
    await sentinel.ask('SENTINEL', 'REMOVE', 'main');
    await monitor(other);
    const item = patternItem(shape, 4, 0, 1);
    let [end] = await store.write([item]);
    expect(end.outcome).toBe(Outcome.REFUSED);
    expect(end.reason).toMatch(/read ?only/i);
    for (let generation = 2; end.outcome !== Outcome.LOADED; generation++) {
      [end] = await store.write([{ ...item, generation }]); // the breaker may want a pause first
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
    const codec = new RecordCodec({ secretKey, layout: 'a layout', generation: 0 });
    expect((await other.ask('EXISTS', codec.nameOf(item.key))).toString()).toBe(':1');
  });

  it('that evict by themselves: what is gone is missing, what is there is right', async () => {
    await using server = await startRedis('--maxmemory', '3mb', '--maxmemory-policy', 'allkeys-lru');
    const many = poolShape(400, 8192, [8192]);
    const patient = { deadlineMs: 60_000, lookupMs: 60_000, connectMs: 20_000 };
    const identity = { secretKey, layout: 'a layout' };
    await using store = await RemoteStore.open(many, { url: server.url, ...identity, ...patient });
    const items = Array.from({ length: 400 }, (_, slot) => patternItem(many, slot, 0, 1));
    for (const { reason } of await store.write(items)) expect(reason).toBe('');
    const targets = items.map((item) => emptyItem(item));
    const ends = await store.read(targets);
    const count = (outcome: Outcome): number => ends.filter((end) => end.outcome === outcome).length;
    expect(count(Outcome.MISSING)).toBeGreaterThan(0);
    expect(count(Outcome.LOADED)).toBeGreaterThan(0);
    expect(count(Outcome.MISSING) + count(Outcome.LOADED)).toBe(400);
    ends.forEach(({ outcome }, i) => {
      if (outcome === Outcome.LOADED) expect(mismatchedWords(targets[i])).toBe(0);
    });
  });

  it('where another version of the package wrote: its record is missing to us, and is replaced by a write', async () => {
    await using server = await startRedis();
    await using store = await open(server.url);
    const codec = new RecordCodec({ secretKey, layout: 'a layout', generation: 0 });
    const item = patternItem(shape, 0, 0, 1);
    expect((await store.write([item]))[0].reason).toBe('');
    const later = codec.seal(item);
    later.writeUInt16LE(2, 4);
    await server.ask('SET', codec.nameOf(item.key), later);
    const [end] = await store.read([emptyItem(item)]);
    expect(end.outcome).toBe(Outcome.MISSING);
    expect(end.reason).toContain('version 2');
    expect((await server.ask('GET', codec.nameOf(item.key))).equals(later)).toBe(true); // theirs to keep
    expect((await store.write([{ ...item, generation: 2 }]))[0].reason).toBe('');
    expect((await store.read([{ ...emptyItem(item), generation: 2 }]))[0].reason).toBe('');
  });

  it('that fall silent with the connection open: calls end, and a new connection serves', async () => {
    await using server = await startRedis();
    await using proxy = await FaultProxy.open(server.port, new SeededRandom(testSeed(20_403)));
    await using store = await open(proxy.url, { deadlineMs: 200, lookupMs: 200 });
    await store.write([patternItem(shape, 0, 0, 1)]);
    proxy.way = 'halfOpen';
    const targets = [0, 1, 2, 3].map(() => emptyItem(patternItem(shape, 0, 0, 1)));
    for (const target of targets) {
      expect((await store.read([target]))[0].outcome).not.toBe(Outcome.LOADED);
    }
    const before = Number(store.describe().connections);
    proxy.way = 'pass';
    let outcome: Outcome = Outcome.REFUSED;
    while (outcome !== Outcome.LOADED) {
      [{ outcome }] = await store.read([emptyItem(patternItem(shape, 0, 0, 1))]);
      if (outcome === Outcome.MISSING) [{ outcome }] = await store.write([patternItem(shape, 0, 0, 1)]);
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
    expect(Number(store.describe().connections)).toBeGreaterThanOrEqual(before);
    expect(before).toBeGreaterThan(2);
  });

  it('behind sentinels', async () => {
    await using server = await startRedis();
    await using sentinel = await startRedis('--sentinel');
    await sentinel.ask('SENTINEL', 'MONITOR', 'main', '127.0.0.1', String(server.port), '1');
    await using store = await open(`redis+sentinel://127.0.0.1:1,127.0.0.1:${sentinel.port}/main`);
    await roundTrip(store);
    const lines: string[] = [];
    await using other = await open(`redis+sentinel://127.0.0.1:${sentinel.port}/other`, {
      notice: (line) => lines.push(line),
    });
    expect((await other.write([patternItem(shape, 0, 0, 1)]))[0].outcome).toBe(Outcome.REFUSED);
    expect(lines.join()).toContain('knows no primary other');
  });

  it('over TLS', async () => {
    const dir = mkdtempSync(join(tmpdir(), 'tierkv-tls-'));
    try {
      const [key, cert] = [join(dir, 'key.pem'), join(dir, 'cert.pem')];
      const made = spawnSync('openssl', [
        ...['req', '-x509', '-newkey', 'rsa:2048', '-nodes', '-keyout', key, '-out', cert, '-days', '2'],
        ...['-subj', '/CN=localhost', '-addext', 'subjectAltName=DNS:localhost,IP:127.0.0.1'],
        ...['-addext', 'basicConstraints=critical,CA:FALSE'],
      ]);
      expect(made.status, String(made.stderr)).toBe(0);
      await using server = await startRedis(
        ...['--tls-port', 'PORT', '--tls-cert-file', cert, '--tls-key-file', key, '--tls-ca-cert-file', cert],
        ...['--tls-auth-clients', 'no'],
      );
      await using store = await open(`rediss://localhost:${server.port}`, { ca: readFileSync(cert, 'utf8') });
      await roundTrip(store);
    } finally {
      rmSync(dir, { recursive: true, force: true });
    }
  });

  it('that speak another protocol, or that are not there', async () => {
    const stranger = createServer((socket) => socket.end('HTTP/1.1 400 Bad Request\r\n\r\n'));
    await new Promise<void>((resolve) => stranger.listen(0, '127.0.0.1', resolve));
    const lines: string[] = [];
    const notice = (line: string): void => void lines.push(line);
    const { port } = stranger.address() as AddressInfo;
    const outcome = await open(`redis://127.0.0.1:${port}`, { notice, connectMs: 2000 }).then(
      async (store) => {
        await store[Symbol.asyncDispose]();
        return lines.join();
      },
      (error: Error) => error.message,
    );
    expect(outcome).toContain(`redis://127.0.0.1:${port}`);
    stranger.close();
    await using absent = await open(`redis://127.0.0.1:${await portOfOurOwn()}`, { notice, connectMs: 2000 });
    expect((await absent.write([patternItem(shape, 0, 0, 1)]))[0].outcome).not.toBe(Outcome.LOADED);
    expect(lines.length).toBeGreaterThan(0);
  });

  it('with another kind of value under a name of ours', async () => {
    await using server = await startRedis();
    await using store = await open(server.url);
    const codec = new RecordCodec({ secretKey, layout: 'a layout', generation: 0 });
    const item = patternItem(shape, 0, 0, 1);
    await askRedis(server.port, 'LPUSH', codec.nameOf(item.key), 'x');
    const [end] = await store.write([item]);
    expect(end.reason).toBe(''); // replaced
    await askRedis(server.port, 'DEL', codec.nameOf(item.key));
    await askRedis(server.port, 'LPUSH', codec.nameOf(item.key), 'x');
    expect((await store.read([emptyItem(item)]))[0].outcome).toBe(Outcome.CORRUPT);
    expect((await store.read([emptyItem(item)]))[0].outcome).toBe(Outcome.MISSING); // removed
  });
});
