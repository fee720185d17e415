/**
 * What a server asks of the runtime beyond begin and release: each call in both directions, on the software
 * device.
 */

import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { AdmissionQueue } from '../../src/embed/context.ts';
import type { CacheEvent, KVRuntime, KVSequence } from '../../src/index.ts';
import { replayLog } from '../../src/runtime/log/replayer.ts';
import { blocks, byteOf, layout, openRuntime } from './liveRuntime.ts';

const dir = mkdtempSync(join(tmpdir(), 'tierkv-asks-'));
afterAll(() => rmSync(dir, { recursive: true }));

const tenant = 'alice';
const tokensOf = (count: number, from = 0): Uint32Array =>
  Uint32Array.from({ length: count }, (_, i) => from + i);

/** Writes one byte over the whole of block `index`. */
function write(kv: KVRuntime, sequence: KVSequence, index: number, byte: number, group = 0): void {
  const { buffer, offsetBytes, sizeBytes } = kv.slot(sequence, index, group);
  kv.device.queue.writeBuffer(buffer, offsetBytes, new Uint8Array(sizeBytes).fill(byte));
}

function writeOpen(kv: KVRuntime, sequence: KVSequence, byte: number): number[] {
  const open = kv.openBlocks(sequence);
  for (const { index, group } of open) write(kv, sequence, index, byte, group);
  return open.map(({ index }) => index);
}

async function compute(kv: KVRuntime, tokens: Uint32Array, byte: number, who = tenant): Promise<KVSequence> {
  const sequence = await kv.begin(tokens, { tenant: who });
  writeOpen(kv, sequence, byte);
  expect(await kv.seal(sequence)).toBe('done');
  return sequence;
}

describe('drafts', () => {
  it('never leave the bytes of other tokens under their keys', async () => {
    await using kv = await openRuntime({});
    const prompt = tokensOf(28);
    const draft = tokensOf(32);
    const real = Uint32Array.from(draft, (token, i) => (i < 28 ? token : token + 5000));
    const sequence = await compute(kv, prompt, 1);
    expect(await kv.append(sequence, draft)).toBe('done');
    await expect(kv.append(sequence, real)).rejects.toMatchObject({ code: 'TKV_INPUT', field: 'tokens[28]' });
    expect(await kv.truncate(sequence, 28)).toBe('done');
    expect(await kv.append(sequence, real)).toBe('done');
    writeOpen(kv, sequence, 2);
    await kv.seal(sequence);
    kv.release(sequence);
    const asked = await kv.begin([...draft, 1], { tenant });
    expect(asked.cachedTokens, 'the draft was never computed').toBe(16);
    kv.release(asked);
    const again = await kv.begin([...real, 1], { tenant });
    expect(again.cachedTokens).toBe(32);
    expect(await byteOf(kv, again, 1)).toBe(2);
    kv.release(again);
  });

  it('that are taken back within a sealed block leave it to others, and go on in a copy', async () => {
    await using kv = await openRuntime({});
    const sequence = await compute(kv, tokensOf(32), 7);
    expect(await kv.truncate(sequence, 20)).toBe('done');
    expect(kv.openBlocks(sequence).map(({ index }) => index)).toEqual([1]);
    expect(await byteOf(kv, sequence, 1), 'the copy has the bytes').toBe(7);
    write(kv, sequence, 1, 9);
    const other = await kv.begin(tokensOf(33), { tenant });
    expect(other.cachedTokens).toBe(32);
    expect(await byteOf(kv, other, 1)).toBe(7);
    await expect(kv.truncate(sequence, 21)).rejects.toMatchObject({ code: 'TKV_INPUT', field: 'tokens' });
    kv.release(other);
    kv.release(sequence);
  });
});

describe('a fork', () => {
  it('shares full blocks, and has its own copy of the partial one', async () => {
    await using kv = await openRuntime({});
    const parent = await compute(kv, tokensOf(40), 3);
    const child = await kv.fork(parent);
    if (child === 'interrupted') throw new Error('nothing interrupted it');
    expect(child.cachedTokens).toBe(40);
    expect(kv.slot(child, 0)).toEqual(kv.slot(parent, 0));
    expect(kv.slot(child, 2)).not.toEqual(kv.slot(parent, 2));
    expect(await byteOf(kv, child, 2)).toBe(3);
    write(kv, child, 2, 4);
    expect(await byteOf(kv, parent, 2)).toBe(3);
    const shorter = await kv.fork(child, 18);
    if (shorter === 'interrupted') throw new Error('nothing interrupted it');
    expect(shorter.blocks).toBe(2);
    await expect(kv.fork(parent, 41)).rejects.toMatchObject({ code: 'TKV_INPUT', field: 'atToken' });
    for (const each of [parent, child, shorter]) kv.release(each);
    kv.manager.checkIntegrity();
  });
});

describe('a decode step', () => {
  it('seals what has become full and makes room for the next token, for a whole batch', async () => {
    await using kv = await openRuntime({});
    const one = await compute(kv, tokensOf(31), 1);
    const two = await compute(kv, tokensOf(15, 1000), 2);
    for (let token = 0; token < 3; token++) {
      expect(
        await kv.step([
          { sequence: one, tokens: [31 + token] },
          { sequence: two, tokens: [1015 + token] },
        ]),
      ).toEqual(['done', 'done']);
      for (const sequence of [one, two]) writeOpen(kv, sequence, 5);
    }
    await kv.idle();
    expect([one.length, one.blocks, two.blocks]).toEqual([34, 3, 2]);
    expect(kv.lookup(tokensOf(32), { tenant }).blocks).toBe(2);
    expect(kv.lookup(tokensOf(16, 1000), { tenant }).blocks).toBe(1);
    kv.release(one);
    kv.release(two);
  });

  it('says of each sequence that finds no room, and leaves it as it was', async () => {
    await using kv = await openRuntime({ hbmBytes: blocks(4) });
    const one = await compute(kv, tokensOf(32), 1);
    const two = await compute(kv, tokensOf(32, 1000), 1);
    expect(
      await kv.step([
        { sequence: one, tokens: [7] },
        { sequence: two, tokens: [8] },
      ]),
    ).toEqual(['full', 'full']);
    expect(one.length).toBe(32);
    kv.release(two);
    expect(await kv.step([{ sequence: one, tokens: [7] }])).toEqual(['done']);
    kv.release(one);
  });

  it('and every other call refuses a sequence that has ended', async () => {
    await using kv = await openRuntime({});
    const other = await compute(kv, tokensOf(16), 1);
    const ended = await compute(kv, tokensOf(16, 1000), 1);
    kv.release(ended);
    const entries = [other, ended].map((sequence) => ({ sequence, tokens: [7] }));
    const calls = [
      () => kv.append(ended, tokensOf(20, 1000)),
      () => kv.seal(ended),
      () => kv.fork(ended),
      () => kv.truncate(ended, 3),
      () => kv.recover(ended),
    ];
    for (const call of calls) {
      await expect(call()).rejects.toMatchObject({ code: 'TKV_UNKNOWN_ID', field: 'sequence' });
    }
    const step = kv.step(entries);
    await expect(step).rejects.toMatchObject({ code: 'TKV_UNKNOWN_ID', field: 'entries[1].sequence' });
    expect([other.length, ended.length]).toEqual([16, 16]);
    kv.release(other);
  });

  it('grows no sequence when one of its entries is wrong', async () => {
    await using kv = await openRuntime({ hbmBytes: blocks(4) });
    const one = await compute(kv, tokensOf(16), 1);
    const two = await compute(kv, tokensOf(16, 1000), 1);
    const good = { sequence: one, tokens: [7] };
    const noId = kv.step([good, { sequence: two, tokens: [8, -1] }]);
    await expect(noId).rejects.toMatchObject({ code: 'TKV_INPUT', field: 'tokens[1]' });
    const tooLong = kv.step([good, { sequence: two, tokens: tokensOf(64) }]);
    await expect(tooLong).rejects.toMatchObject({ code: 'TKV_CAPACITY' });
    expect([one.length, two.length]).toEqual([16, 16]);
    kv.release(one);
    kv.release(two);
  });
});

describe('room', () => {
  it('full now and never are different; who waits is served in order, the urgent first', async () => {
    await using kv = await openRuntime({ hbmBytes: blocks(4) });
    await expect(kv.begin(tokensOf(80), { tenant })).rejects.toMatchObject({ code: 'TKV_CAPACITY' });
    const holder = await compute(kv, tokensOf(64), 1);
    await expect(kv.begin(tokensOf(33, 1000), { tenant })).rejects.toMatchObject({ code: 'TKV_FULL' });
    expect(kv.room).toMatchObject({ blocks: 0, waiting: 0 });
    const served: string[] = [];
    const ask = (name: string, from: number, priority: number) =>
      kv.begin(tokensOf(64, from), { tenant, wait: true, priority }).then((sequence) => {
        served.push(name);
        kv.release(sequence);
      });
    const all = [ask('first', 1000, 1), ask('second', 2000, 1), ask('urgent', 3000, 0)];
    await new Promise((resolve) => setImmediate(resolve));
    expect(kv.room.waiting).toBe(3);
    kv.release(holder);
    await Promise.all(all);
    expect(served).toEqual(['urgent', 'first', 'second']);
    expect(kv.room).toMatchObject({ blocks: 4, waiting: 0 });
  });

  it('who stops waiting leaves the others their turn', async () => {
    await using kv = await openRuntime({ hbmBytes: blocks(4) });
    const holder = await compute(kv, tokensOf(64), 1);
    const gone = new AbortController();
    const first = kv.begin(tokensOf(64, 1000), { tenant, wait: true, signal: gone.signal });
    const second = kv.begin(tokensOf(64, 2000), { tenant, wait: true });
    gone.abort();
    await expect(first).rejects.toMatchObject({ name: 'AbortError' });
    kv.release(holder);
    kv.release(await second);
    expect(kv.room.waiting).toBe(0);
  });
});

describe('room that a request was given', () => {
  it('is not given to another one while its cached tail is on the way', async () => {
    await using kv = await openRuntime({ hbmBytes: blocks(10), ddrBytes: blocks(20) });
    const first = await kv.begin(tokensOf(20), { tenant });
    writeOpen(kv, first, 8);
    await kv.seal(first, { tail: true });
    kv.release(first);
    kv.manager.evict(0, 2, kv.nowUs());
    await kv.idle();
    const holder = await compute(kv, tokensOf(160, 5000), 1);
    const served: string[] = [];
    const ask = async (name: string, tokens: Uint32Array): Promise<number> => {
      const sequence = await kv.begin(tokens, { tenant, wait: true });
      served.push(name);
      kv.release(sequence);
      return sequence.cachedTokens;
    };
    const asked = [ask('first', tokensOf(128)), ask('second', tokensOf(80, 1000))];
    kv.release(holder);
    expect(await Promise.all(asked)).toEqual([20, 0]);
    expect(served).toEqual(['first', 'second']);
    kv.manager.checkIntegrity();
  });

  it('comes back to it, ahead of those with its priority, when it is lost on the way', () => {
    const queue = new AdmissionQueue();
    const [urgent, second] = [queue.join(1, 0), queue.join(1, 1)];
    const again = queue.join(1, 1, true);
    for (const ticket of [urgent, again, second]) {
      expect(queue.isFirst(ticket)).toBe(true);
      queue.leave(ticket);
    }
    expect(queue.waiting).toBe(0);
  });

  it('is never more than there is, in what TKV_FULL says', async () => {
    await using kv = await openRuntime({ hbmBytes: blocks(32) }); // two of them are landing room
    const all = await kv.begin(tokensOf(32 * 16), { tenant });
    const error: unknown = await kv.begin(tokensOf(1, 9000), { tenant }).catch((reason: unknown) => reason);
    const [, used, whole] = /now: (\d+) of (\d+) bytes/.exec(String(error)) ?? [];
    expect([Number(used), Number(whole)]).toEqual([blocks(32), blocks(32)]);
    kv.release(all);
  });
});

describe('the same prompt twice at once', () => {
  it('is computed once: the second waits for the first', async () => {
    await using kv = await openRuntime({});
    const first = await kv.begin(tokensOf(65), { tenant });
    const second = kv.begin(tokensOf(65), { tenant, shareWaitMs: 60_000 });
    await new Promise((resolve) => setImmediate(resolve));
    writeOpen(kv, first, 6);
    await kv.seal(first);
    const shared = await second;
    expect(shared.cachedTokens).toBe(64);
    kv.release(first);
    kv.release(shared);
  });

  it('is computed again where the first gives up, or no request waits', async () => {
    await using kv = await openRuntime({});
    const first = await kv.begin(tokensOf(65), { tenant });
    const impatient = await kv.begin(tokensOf(65), { tenant, shareWaitMs: 0 });
    expect(impatient.cachedTokens).toBe(0);
    const patient = kv.begin(tokensOf(65), { tenant, shareWaitMs: 60_000 });
    kv.cancel(first);
    kv.cancel(impatient);
    expect((await patient).cachedTokens).toBe(0);
    kv.release(await patient);
  });
});

it('a sealed tail is found by a prompt that goes on from it, as a copy', async () => {
  await using kv = await openRuntime({});
  const first = await kv.begin(tokensOf(25), { tenant });
  writeOpen(kv, first, 8);
  expect(await kv.seal(first, { tail: true })).toBe('done');
  const next = await kv.begin(tokensOf(40), { tenant });
  expect(next.cachedTokens).toBe(25);
  expect(await byteOf(kv, next, 1)).toBe(8);
  expect(kv.openBlocks(next).map(({ index }) => index)).toEqual([1, 2]);
  expect(kv.slot(next, 1)).not.toEqual(kv.slot(first, 1));
  expect(await kv.append(first, tokensOf(27)), 'who sealed it goes on in a copy too').toBe('done');
  write(kv, first, 1, 1);
  expect(await byteOf(kv, next, 1)).toBe(8);
  const other = await kv.begin(tokensOf(24).with(20, 999), { tenant });
  expect(other.cachedTokens, 'other tokens, other tail').toBe(16);
  for (const each of [first, next, other]) kv.release(each);
  kv.manager.checkIntegrity();
});

describe('slots that change their tenant', () => {
  const fill = async (kv: KVRuntime): Promise<void> => {
    const first = await compute(kv, tokensOf(64), 0xaa);
    kv.release(first);
  };

  it('are cleared before the next tenant can read them', async () => {
    await using kv = await openRuntime({ hbmBytes: blocks(4) });
    await fill(kv);
    const other = await kv.begin(tokensOf(64), { tenant: 'mallory' });
    expect(other.cachedTokens).toBe(0);
    for (let i = 0; i < 4; i++) expect(await byteOf(kv, other, i)).toBe(0);
    kv.release(other);
  });

  it('are left alone for the same tenant, and where it was switched off', async () => {
    await using kv = await openRuntime({ hbmBytes: blocks(4), scrub: false });
    await fill(kv);
    const other = await kv.begin(tokensOf(64), { tenant: 'mallory' });
    expect(await byteOf(kv, other, 0)).toBe(0xaa);
    kv.release(other);
    await using scrubbed = await openRuntime({ hbmBytes: blocks(4) });
    await fill(scrubbed);
    const same = await scrubbed.begin(tokensOf(64, 500), { tenant });
    expect(await byteOf(scrubbed, same, 0)).toBe(0xaa);
    scrubbed.release(same);
  });
});

describe('tenants and keys', () => {
  it('a tenant is text and nothing else; the secret is copied when the runtime opens', async () => {
    const secretKey = new Uint8Array(32).fill(9);
    await using kv = await openRuntime({ secretKey });
    secretKey.fill(0);
    await using zeroed = await openRuntime({ secretKey });
    kv.release(await compute(kv, tokensOf(32), 1));
    zeroed.release(await compute(zeroed, tokensOf(32), 1));
    const key = async (runtime: KVRuntime, who: string): Promise<string> => {
      const sequence = await runtime.begin(tokensOf(33), { tenant: who });
      runtime.release(sequence);
      return sequence.groups[0].keys.toHex(0);
    };
    expect(await key(kv, tenant)).not.toBe(await key(zeroed, tenant));
    expect(await key(kv, 'met later')).not.toBe(await key(zeroed, 'met later'));
    for (const bad of [Buffer.from('alice'), undefined, 7, null]) {
      await expect(kv.begin(tokensOf(4), { tenant: bad as never })).rejects.toMatchObject({
        code: 'TKV_INPUT',
        field: 'tenant',
      });
    }
    for (const bad of [[1, Number.NaN, 3], [1.5], [-1], ['7']]) {
      await expect(kv.begin(bad as never, { tenant })).rejects.toMatchObject({ code: 'TKV_INPUT' });
    }
  });
});

it('layer groups are units of their own: sizes, keys, readiness, block tables', async () => {
  const layerGroups = [
    { first: 0, end: 1 },
    { first: 1, end: 2 },
  ];
  await using kv = await openRuntime({ layerGroups, ddrBytes: blocks(20) });
  const sequence = await kv.begin(tokensOf(33), { tenant });
  expect(kv.openBlocks(sequence).map(({ index, group }) => [index, group])).toEqual([
    [0, 0],
    [0, 1],
    [1, 0],
    [1, 1],
    [2, 0],
    [2, 1],
  ]);
  expect(kv.slot(sequence, 0, 1).sizeBytes).toBe(layout.blockBytes / 2);
  for (const { index, group } of kv.openBlocks(sequence))
    write(kv, sequence, index, 10 * group + index, group);
  await kv.seal(sequence);
  const { slabs, entries } = kv.deviceBlockTable(sequence, 1);
  const { buffer, offsetBytes } = kv.slot(sequence, 1, 1);
  expect([slabs[entries[2]], entries[3]]).toEqual([buffer, offsetBytes]);
  kv.release(sequence);
  kv.manager.evict(0, 3, kv.nowUs()); // units of both groups, not of every block
  await kv.idle();
  const again = await kv.begin(tokensOf(33), { tenant });
  expect(again.cachedTokens).toBe(32);
  expect(await byteOf(kv, again, 1, 1)).toBe(11);
  expect(await byteOf(kv, again, 1, 0)).toBe(1);
  kv.release(again);
  expect(() => kv.slot(again, 0, 2)).toThrow(/group is 2, and there are 2/);
  await expect(openRuntime({ layerGroups: [{ first: 0, end: 1 }] })).rejects.toMatchObject({
    code: 'TKV_CONFIG',
    field: 'layerGroups',
  });
});

it('events say what was stored and removed, in which tier, without a gap for who reads', async () => {
  await using kv = await openRuntime({ ddrBytes: blocks(8) });
  const events: CacheEvent[] = [];
  const reading = (async () => {
    for await (const event of kv.events()) events.push(event);
  })();
  const sequence = await compute(kv, tokensOf(32), 1);
  kv.release(sequence);
  kv.manager.evict(0, 1, kv.nowUs());
  await kv.idle();
  await kv.close();
  await reading;
  const short = events.map(({ type, tier, number }) => [type, tier, number - events[0].number]);
  expect(short).toEqual([
    ['stored', 'hbm', 0],
    ['stored', 'hbm', 1],
    ['removed', 'hbm', 2],
    ['stored', 'ddr', 3],
  ]);
  const [first, second, removed] = events;
  expect(first.type === 'stored' && first.parent).toBe(null);
  expect(second.type === 'stored' && second.parent).toBe(first.key);
  expect(removed.key).toBe(second.key);
});

it('what the manager is asked from outside goes to the driver at once', async () => {
  await using kv = await openRuntime({ ddrBytes: blocks(8) });
  kv.release(await compute(kv, tokensOf(32), 1));
  kv.manager.evict(0, 2, kv.nowUs());
  while (kv.manager.inspect.jobsInFlight > 0) await new Promise((resolve) => setTimeout(resolve, 1));
  expect(kv.lookup(tokensOf(32), { tenant }).byTier).toEqual([0, 2]);
  expect(kv.prefetch(tokensOf(32), { tenant })).toBe(2);
  await kv.idle();
  expect(kv.lookup(tokensOf(32), { tenant }).byTier).toEqual([2, 0]);
});

it('the decision log of a live runtime runs again on a manager alone, to the same cache', async () => {
  const log = join(dir, 'run.log');
  const kv = await openRuntime({ ddrBytes: blocks(8), hbmBytes: blocks(8), log });
  for (let round = 0; round < 6; round++) {
    const sequence = await compute(kv, tokensOf(65, 100 * (round % 4)), 1);
    const child = await kv.fork(sequence, 40);
    if (child !== 'interrupted') kv.release(child);
    await kv.truncate(sequence, 20);
    kv.release(sequence, { retention: { priority: 3, keepMs: 50 } });
  }
  await kv.idle();
  const { hitBlocks, copies } = kv.manager.inspect.counters;
  const usage = kv.manager.inspect.usage(1);
  await kv.close();
  expect(existsSync(log)).toBe(true);
  const replayed = replayLog(readFileSync(log, 'utf8').trimEnd().split('\n'), log);
  replayed.checkIntegrity();
  expect(replayed.inspect.counters).toMatchObject({ hitBlocks, copies });
  expect(replayed.inspect.usage(1)).toEqual(usage);
  await expect(openRuntime({ log: join(dir, 'no', 'such', 'folder') })).rejects.toMatchObject({
    code: 'TKV_IO',
    field: 'log',
  });
});

it('metrics move with what happens', async () => {
  await using kv = await openRuntime({ hbmBytes: blocks(6), ddrBytes: blocks(4) });
  const before = kv.metrics();
  const first = await compute(kv, tokensOf(64), 1);
  const child = await kv.fork(first, 40);
  if (child !== 'interrupted') kv.release(child);
  expect(kv.metrics().gauges.sequences).toBe(1);
  kv.release(first);
  kv.release(await compute(kv, tokensOf(64, 1000), 1));
  kv.release(await compute(kv, tokensOf(64), 1));
  await kv.idle();
  const { counters, gauges } = kv.metrics();
  const moved = Object.keys(counters).filter((name) => counters[name] > (before.counters[name] ?? 0));
  expect(moved).toEqual(
    expect.arrayContaining([
      'misses',
      'copies',
      'hits.hbm',
      'evictions.hbm',
      'demotions.hbm',
      'offloads',
      'writtenBytes.ddr',
      'movedBytes.hbmToDdr',
    ]),
  );
  expect(gauges['capacityBytes.hbm']).toBeGreaterThan(0);
  expect(gauges['residentBytes.hbm']).toBeLessThanOrEqual(gauges['capacityBytes.hbm']);
  expect(Object.values({ ...counters, ...gauges }).every(Number.isFinite)).toBe(true);
});

it('a notice that throws stops no call', async () => {
  await using kv = await openRuntime({
    ddrBytes: blocks(8),
    notice: () => {
      throw new Error('a faulty logger');
    },
  });
  kv.release(await compute(kv, tokensOf(32), 1));
  kv.device.destroy();
  while (kv.devicesLost === 0) await new Promise((resolve) => setTimeout(resolve, 1));
  const again = await kv.begin(tokensOf(32), { tenant });
  expect(again.blocks).toBe(2);
  kv.release(again);
});
