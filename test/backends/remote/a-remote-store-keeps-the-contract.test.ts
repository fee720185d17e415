import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { RemoteStoreOptions } from '../../../src/backends/remote/remoteOptions.ts';
import { RemoteStore } from '../../../src/backends/remote/remoteStore.ts';
import { HEADER_BYTES, RecordCodec } from '../../../src/backends/remote/sealedRecord.ts';
import { type PoolShape, poolShape } from '../../../src/runtime/tables/slotPool.ts';
import { Outcome } from '../../../src/runtime/tier/tier.ts';
import { emptyItem, mismatchedWords, patternItem, patternKey } from '../../../src/testing/index.ts';
import type { TierUnderTest } from '../../../src/testing/tierContract.ts';
import { tierContract } from '../../../src/testing/tierContract.ts';
import { hasRedis, type RedisServer, sayRedisIsAbsent, startRedis } from './redisServer.ts';

const secretKey = new Uint8Array(32).fill(7);
const layout = 'kv-layout of a test';

if (!hasRedis) {
  sayRedisIsAbsent('the remote store keeps the contract');
  describe.skip('remote store', () => void it('needs redis-server', () => {}));
} else {
  let server: RedisServer;
  let generation = 0;
  beforeAll(async () => {
    server = await startRedis();
  });
  afterAll(() => server[Symbol.asyncDispose]());

  const optionsOf = (more: Partial<RemoteStoreOptions> = {}): RemoteStoreOptions => ({
    url: server.url,
    secretKey,
    layout,
    deadlineMs: 60_000,
    lookupMs: 60_000,
    connectMs: 60_000,
    ...more,
  });

  for (const encrypt of [true, false]) {
    tierContract(
      `remote, ${encrypt ? 'encrypted' : 'plain'}`,
      async (shape: PoolShape): Promise<TierUnderTest> => {
        const identity = { secretKey, layout, generation: ++generation, encrypt };
        const store = await RemoteStore.open(shape, optionsOf({ generation, encrypt }));
        const codec = new RecordCodec(identity);
        return {
          store,
          movesBytes: true,
          remembersKeys: true,
          remembersDigests: true,
          checksAlways: true,
          async flipBit(slot, _sizeClass, byteIndex) {
            // the contract flips a bit of the first generation of a slot
            const name = codec.nameOf(patternKey(slot, 1));
            const at = String(HEADER_BYTES + byteIndex);
            const record = flipped.get(name) ?? (await server.ask('GET', name));
            flipped.set(name, record);
            const now = Buffer.from(record);
            const isFlipped = odd.has(name);
            if (!isFlipped) now[Number(at)] ^= 0x10;
            if (isFlipped) odd.delete(name);
            else odd.add(name);
            await server.ask('SET', name, now);
          },
        };
      },
    );
  }
  const flipped = new Map<string, Buffer>();
  const odd = new Set<string>();

  describe('remote store', () => {
    const shape = poolShape(8, 8192, [8192, 2048]);

    it('finds and reads in one runtime what another one wrote', async () => {
      const options = optionsOf({ generation: ++generation });
      await using writer = await RemoteStore.open(shape, options);
      await using reader = await RemoteStore.open(shape, options);
      const items = [0, 1, 2].map((slot) => ({
        ...patternItem(shape, slot * shape.slotsPerPageMax, 0, 1),
        tokens: 16,
        ...(slot === 0 ? {} : { parent: patternKey((slot - 1) * shape.slotsPerPageMax, 1) }),
      }));
      expect((await writer.write(items)).map(({ outcome }) => outcome)).toEqual([0, 0, 0]);
      const keys = new Uint32Array(16);
      for (const [i, { key }] of items.entries()) keys.set(key, 4 * i);
      keys.set(patternKey(77, 1), 12);
      const [found] = await reader.lookup([{ keys, from: 0, to: 4, sizeClass: 0 }]);
      expect(found.map(({ key }) => [...key])).toEqual(items.map(({ key }) => [...key]));
      expect(found.map(({ digest }) => digest)).toEqual(items.map(({ digest }) => digest));
      expect(found.map(({ tokens }) => tokens)).toEqual([16, 16, 16]);
      expect(found[1].parent).toEqual(items[0].key);
      for (const [i, { key, digest }] of found.entries()) {
        const place = { slot: 4 * i, sizeClass: 0, generation: 5 };
        const bytes = new Uint8Array(8192);
        expect((await reader.read([{ ...place, key, digest, bytes }]))[0].outcome).toBe(Outcome.MISSING);
        reader.believe(place, key);
        expect((await reader.read([{ ...place, key, digest, bytes }]))[0].outcome).toBe(Outcome.LOADED);
        expect(bytes).toEqual(items[i].bytes);
      }
    });

    it('writes a record once: what is there already is not sent again', async () => {
      const options = optionsOf({ generation: ++generation });
      await using one = await RemoteStore.open(shape, options);
      await using other = await RemoteStore.open(shape, options);
      const item = patternItem(shape, 0, 0, 1);
      await one.write([item]);
      expect((await other.write([{ ...item, slot: 4, generation: 9 }]))[0].outcome).toBe(Outcome.LOADED);
      expect(other.describe()).toMatchObject({ written: 0, writtenByOthers: 1 });
      const target = { ...emptyItem(item), slot: 4, generation: 9 };
      expect((await other.read([target]))[0].outcome).toBe(Outcome.LOADED);
      expect(mismatchedWords({ ...target, slot: 0, generation: 1 })).toBe(0);
    });

    it('refuses to stand for a record with other bytes of the same block', async () => {
      const options = optionsOf({ generation: ++generation });
      await using one = await RemoteStore.open(shape, options);
      await using other = await RemoteStore.open(shape, options);
      const item = patternItem(shape, 0, 0, 1);
      await one.write([item]);
      const diverged = { ...item, bytes: item.bytes.map((byte) => byte ^ 1), digest: { lo: 1, hi: 2 } };
      const [end] = await other.write([diverged]);
      expect(end.outcome).toBe(Outcome.REFUSED);
      expect(end.reason).toContain('other bytes of this block');
      expect((await one.read([emptyItem(item)]))[0].outcome).toBe(Outcome.LOADED);
    });

    it('fetches no more of a record than it has, however long it was made', async () => {
      const options = optionsOf({ generation: ++generation });
      await using store = await RemoteStore.open(shape, options);
      const items = [0, 1].map((page) => patternItem(shape, page * shape.slotsPerPageMax, 0, 1));
      expect((await store.write(items)).map(({ outcome }) => outcome)).toEqual([0, 0]);
      const codec = new RecordCodec({ secretKey, layout, generation });
      const [longer, byOne] = items.map(({ key }) => codec.nameOf(key));
      await server.ask('SETRANGE', longer, String(2 ** 27), 'x'); // its head stays what it was
      await server.ask('APPEND', byOne, 'x');
      const sent = async (): Promise<number> => {
        const info = (await server.ask('INFO', 'stats')).toString();
        return Number(/total_net_output_bytes:(\d+)/.exec(info)?.[1]);
      };
      const before = await sent();
      const ends = await store.read(items.map((item) => emptyItem(item)));
      expect((await sent()) - before).toBeLessThan(2 ** 18);
      expect(ends.map(({ outcome }) => outcome)).toEqual([Outcome.CORRUPT, Outcome.CORRUPT]);
      // both are gone, so that the next write mends them
      expect((await server.ask('EXISTS', longer, byOne)).toString()).toContain('0');
      expect((await store.write(items)).map(({ outcome }) => outcome)).toEqual([0, 0]);
    });

    it('refuses writes beyond the memory that they may take, and goes on afterwards', async () => {
      const one = optionsOf({ generation: ++generation, writeBytesMax: 3 * 9000 });
      await using store = await RemoteStore.open(shape, one);
      const items = [0, 1, 2, 3, 4].map((page) => patternItem(shape, page * shape.slotsPerPageMax, 0, 1));
      const ends = (await store.write(items)).map(({ outcome }) => outcome);
      expect(ends).toEqual([0, 0, 0, Outcome.REFUSED, Outcome.REFUSED]);
      expect((await store.write(items.slice(3)))[0].outcome).toBe(Outcome.LOADED);
      expect(store.describe().writingBytes).toBe(0);
    });
  });
}
