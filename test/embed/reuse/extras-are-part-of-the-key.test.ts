/**
 * What a request says beside its tokens, such as an adapter or an image, is part of its keys from the block on
 * that it names: what it determines is never found without it, and what lies before is shared.
 */

import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import type { BeginOptions, KVRuntime, KVSequence } from '../../../src/index.ts';
import { LogReader, LogWriter, type RequestExtras } from '../../../src/runtime/index.ts';
import { replayLog } from '../../../src/runtime/log/replayer.ts';
import { blocks, byteOf, openRuntime, write } from '../liveRuntime.ts';
import { answerTo, ReadingEngine } from '../scheduling/readingEngine.ts';
import { serveAll } from '../scheduling/serving.ts';

const tenant = 'alice';
const tokens = Array.from({ length: 65 }, (_, i) => i);
const image = (text: string, fromToken: number): RequestExtras => ({
  image: { value: Uint8Array.from(text, (letter) => letter.charCodeAt(0)), fromToken },
});
const dir = mkdtempSync(join(tmpdir(), 'tierkv-extras-'));
afterAll(() => rmSync(dir, { recursive: true }));

async function compute(kv: KVRuntime, extras: RequestExtras | undefined, seed: number): Promise<KVSequence> {
  const sequence = await kv.begin(tokens, { tenant, extras });
  write(kv, sequence, seed);
  expect(await kv.seal(sequence)).toBe('done');
  return sequence;
}

/** Tokens that a request finds, the same by each call that says so. */
async function found(kv: KVRuntime, extras: RequestExtras | undefined): Promise<number> {
  const match = kv.lookup(tokens, { tenant, extras });
  const queue = kv.requestQueue();
  queue.add(tokens, tenant, { extras });
  const [{ cachedTokens: queued }] = queue.lookup();
  const options: BeginOptions = { tenant, extras, shareWaitMs: 0 };
  const sequence = await kv.begin(tokens, options);
  kv.cancel(sequence);
  expect(queued).toBe(sequence.cachedTokens);
  expect(Math.min(match.blocks, 4) * 16).toBe(sequence.cachedTokens);
  return sequence.cachedTokens;
}

describe('a request with extras', () => {
  it.each([
    ['an adapter', { adapter: 'sql' }, { adapter: 'chat' }, 0],
    ['a salt of bytes', { salt: Uint8Array.of(1) }, { salt: Uint8Array.of(2) }, 0],
    ['an image of block 2', image('cat', 35), image('dog', 35), 32],
    ['an image whose placeholder begins a block', image('cat', 48), image('dog', 48), 48],
  ] as const)('%s: what it computes is its own from there on, both ways', async (_, mine, other, common) => {
    await using kv = await openRuntime({ hbmBytes: blocks(40) });
    kv.release(await compute(kv, mine, 10));
    expect([await found(kv, mine), await found(kv, other), await found(kv, undefined)]).toEqual([
      64,
      common,
      common,
    ]);
    kv.release(await compute(kv, undefined, 50));
    expect([await found(kv, mine), await found(kv, other), await found(kv, undefined)]).toEqual([
      64,
      common,
      64,
    ]);
    const again = await kv.begin(tokens, { tenant, extras: mine });
    expect(await byteOf(kv, again, 3), 'each reads what it computed').toBe(13);
    kv.release(again);
  });

  it('branches, goes on and seals its tail under its extras', async () => {
    await using kv = await openRuntime({ hbmBytes: blocks(40) });
    const extras = { adapter: 'sql' };
    const first = await compute(kv, extras, 10);
    const branch = (await kv.fork(first)) as KVSequence;
    const longer = [...tokens, ...Array.from({ length: 25 }, (_, i) => 500 + i)];
    expect(await kv.append(branch, longer)).toBe('done');
    write(kv, branch, 90);
    await kv.seal(branch, { tail: true });
    kv.release(first);
    kv.release(branch);
    const next = [...longer, 7];
    const same = await kv.begin(next, { tenant, extras, shareWaitMs: 0 });
    const plain = await kv.begin(next, { tenant, shareWaitMs: 0 });
    expect([same.cachedTokens, plain.cachedTokens]).toEqual([longer.length, 0]);
    kv.release(same);
    kv.release(plain);
  });

  it('is found by prefetch after a restart, and its log replays byte for byte', async () => {
    const disk = mkdtempSync(join(dir, 'disk-'));
    const log = join(dir, 'extras.log');
    const config = { hbmBytes: blocks(20), nvme: { dir: disk, bytes: blocks(64) }, log };
    const mine = image('cat', 20);
    {
      await using kv = await openRuntime(config);
      kv.release(await compute(kv, mine, 10));
      await kv.save();
    }
    const lines = readFileSync(log, 'utf8').trimEnd().split('\n');
    const head = new LogReader(log);
    head.read(lines[0]);
    const again: string[] = [];
    const writer = new LogWriter(head.config, { log: (text) => again.push(text) });
    replayLog(lines, log, writer);
    writer.end();
    expect(again.join('').trimEnd().split('\n')).toEqual(lines);
    {
      await using kv = await openRuntime(config);
      expect(kv.prefetch(tokens, { tenant })).toBe(1);
      expect(kv.prefetch(tokens, { tenant, extras: image('dog', 20) })).toBe(0);
      expect(kv.prefetch(tokens, { tenant, extras: mine })).toBe(3);
      await kv.idle();
      expect([await found(kv, mine), await found(kv, image('dog', 20))]).toEqual([64, 16]);
    }
  });

  it('is served by the scheduler with KV of its own', async () => {
    await using kv = await openRuntime({ hbmBytes: blocks(60) });
    const scheduler = kv.scheduler();
    const engine = new ReadingEngine(kv);
    const add = (id: string, extras?: RequestExtras): void =>
      scheduler.add({ id, tokens, tenant, maxTokens: 2, extras });
    add('plain');
    add('sql', { adapter: 'sql' });
    add('sql again', { adapter: 'sql' });
    add('image', image('cat', 32));
    const { finished } = await serveAll(kv, scheduler, engine);
    for (const each of finished.values()) expect([...each.tokens]).toEqual(answerTo(tokens, 2));
    expect(engine.written, 'two whole prompts, a last token, half a prompt, and an answer each').toBe(
      65 + 65 + 1 + 33 + 4,
    );
  });
});

it('invalid extras are refused by name, and nothing has begun', async () => {
  await using kv = await openRuntime({});
  const scheduler = kv.scheduler();
  for (const [field, extras] of [
    ['extras', null],
    ['extras', 'sql'],
    ['extras', [1]],
    ['extras.adapter', { adapter: undefined }],
    ['extras.adapter', { adapter: 7 }],
    ['extras.image.value', { image: { fromToken: 1 } }],
    ['extras.image.fromToken', { image: { value: 'x', fromToken: -1 } }],
    ['extras.image.fromTokn', { image: { value: 'x', fromTokn: 1 } }],
  ] as const) {
    // a request of the scheduler names itself where one of its fields is null
    const named = extras === null ? expect.stringMatching(/^(request\.)?extras$/) : field;
    const refused = { code: 'TKV_INPUT', field: named };
    const options = { tenant, extras } as never;
    await expect(kv.begin(tokens, options)).rejects.toMatchObject(refused);
    for (const call of [
      () => kv.lookup(tokens, options),
      () => kv.prefetch(tokens, options),
      () => kv.requestQueue().add(tokens, tenant, { extras } as never),
      () => scheduler.add({ id: 'a', tokens, tenant, maxTokens: 1, extras } as never),
    ]) {
      expect(call).toThrow(expect.objectContaining(refused));
    }
  }
  expect(kv.manager.inspect.openSequences).toBe(0);
});
