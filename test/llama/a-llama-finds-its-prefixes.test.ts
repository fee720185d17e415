/** llama.cpp itself over the tiers: answers with hits are the answers without, and what is damaged or foreign is not found. */

import { mkdirSync, readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { makeGguf } from '../../examples/tinyDecoder/gguf.ts';
import { copyRows, readState, StateWriter, tokenBytes } from '../../src/adapters/llama/stateFile.ts';
import { SeededRandom, testSeed } from '../../src/testing/index.ts';
import {
  answer,
  blockTokens,
  contextSize,
  llama,
  modelFile,
  openPrefixes,
  plainAnswer,
  removeScratch,
  scratch,
} from './llama.ts';

afterAll(async () => {
  await llama.dispose();
  removeScratch();
});

const seed = testSeed(20_261_128);
const random = new SeededRandom(seed);
const randomTokens = (count: number): number[] => Array.from({ length: count }, () => 3 + random.below(400));
const folder = (name: string): string => {
  const dir = join(scratch, name);
  mkdirSync(dir);
  return dir;
};
const nvmeIn = (dir: string) => ({ nvme: { dir, bytes: 2 ** 24, allocation: 'extents' as const } });

describe(`prefixes of llama.cpp (seed ${seed})`, () => {
  it('are found live, in memory, and in files after a restart, with the same answers', async () => {
    const dir = folder('restart');
    const document = randomTokens(200);
    const asks = [1, 2, 3].map((n) => [...document, ...randomTokens(4 + 5 * n)]);
    const plain = await Promise.all(asks.map((ask) => plainAnswer(ask)));
    const first = await openPrefixes({ ...nvmeIn(dir), sequences: 1 });
    // K and V of two layers, two heads, 16 elements of half precision
    expect(first.runtime.layout.tokenBytes).toBe(2 * 2 * 2 * 16 * 2);
    const computed = await answer(first, asks[0]);
    expect(computed).toMatchObject({ tokens: plain[0], cachedTokens: 0, from: 'computed' });
    const live = await answer(first, asks[1]);
    expect(live).toMatchObject({ tokens: plain[1], from: 'live', cachedTokens: 200 });
    await answer(first, randomTokens(40)); // takes the only sequence
    const restored = await answer(first, asks[2]);
    expect(restored).toMatchObject({ tokens: plain[2], from: 'restored', cachedTokens: 192 });
    // a conversation that goes on: what was said is found too
    const turn = [...asks[2], ...restored.tokens, ...randomTokens(5)];
    expect((await answer(first, turn)).cachedTokens).toBeGreaterThan(asks[2].length);
    expect(await first.close()).toBeGreaterThan(12);
    // with another number of sequences the KV is the same
    const second = await openPrefixes({ ...nvmeIn(dir), sequences: 3 });
    for (const [i, ask] of asks.entries()) {
      const again = await answer(second, ask);
      expect(again.tokens).toEqual(plain[i]);
      expect(again.cachedTokens).toBeGreaterThan(190);
    }
    await second.close();
  });

  it('answer random prompts that share beginnings as without a cache, two and more at once', async () => {
    const roots = [randomTokens(64), randomTokens(130), randomTokens(37)];
    const prompts = Array.from({ length: 60 }, () => {
      const root = roots[random.below(roots.length)];
      return [...root.slice(0, 8 + random.below(root.length - 8)), ...randomTokens(1 + random.below(24))];
    });
    await using prefixes = await openPrefixes({ ddrBytes: 2 ** 16 });
    const said = await Promise.all(prompts.map((prompt) => answer(prefixes, prompt)));
    for (const [i, { tokens }] of said.entries())
      expect(tokens, `prompt ${i}`).toEqual(await plainAnswer(prompts[i]));
    expect(said.filter(({ cachedTokens }) => cachedTokens > 0).length).toBeGreaterThan(20);
    prefixes.runtime.manager.checkIntegrity();
    expect(prefixes.running).toBe(0);
  });

  it('have the bytes of the same tokens computed at once', async () => {
    const prompt = randomTokens(100);
    await using prefixes = await openPrefixes({ sequences: 1 });
    const stateOf = async (tokens: readonly number[]) => {
      const turn = await prefixes.begin(tokens);
      await turn.sequence.evaluateWithoutGeneratingNewTokens(turn.rest);
      const file = join(scratch, 'state.bin');
      await turn.sequence.saveStateToFile(file);
      await turn.end();
      return { bytes: readFileSync(file), from: turn.from };
    };
    const computed = await stateOf(prompt);
    await stateOf(randomTokens(30));
    const restored = await stateOf(prompt);
    expect([computed.from, restored.from]).toEqual(['computed', 'restored']);
    expect(restored.bytes.equals(computed.bytes)).toBe(true);
    // control: other tokens have other bytes
    expect((await stateOf([...prompt.slice(0, -2), 7, 8])).bytes.equals(computed.bytes)).toBe(false);
  });

  it('are not found by another tenant, another secret, or in other weights', async () => {
    const dir = folder('foreign');
    const prompt = randomTokens(90);
    const first = await openPrefixes({ ...nvmeIn(dir), sequences: 1 });
    await answer(first, prompt);
    expect((await answer(first, prompt, { tenant: 'you' })).cachedTokens).toBe(0);
    await first.close();
    const other = join(scratch, 'other.gguf');
    makeGguf(other, 2);
    await expect(openPrefixes({ ...nvmeIn(dir), model: other })).rejects.toMatchObject({
      code: 'TKV_MISMATCH',
    });
    const foreign = openPrefixes({ ...nvmeIn(dir), secretKey: new Uint8Array(32).fill(8) });
    await expect(foreign).rejects.toMatchObject({ code: 'TKV_MISMATCH' });
    const again = await openPrefixes({ ...nvmeIn(dir) });
    expect((await answer(again, prompt)).cachedTokens).toBe(80);
    await again.close();
  });

  it('that are damaged on disk are computed anew', async () => {
    const dir = folder('damaged');
    const prompt = randomTokens(150);
    const first = await openPrefixes({ ...nvmeIn(dir), ddrBytes: 2 ** 20 });
    const { tokens } = await answer(first, prompt);
    await first.close();
    const files = (readdirSync(dir, { recursive: true }) as string[])
      .map((each) => join(dir, each))
      .filter((each) => statSync(each).isFile() && statSync(each).size >= 2 ** 16);
    expect(files.length).toBeGreaterThan(0);
    for (const file of files) {
      const bytes = readFileSync(file);
      // the middle of a block's bytes: heads of records stay as they are
      for (let at = 6000; at < bytes.length; at += 8192) bytes[at] ^= 1;
      writeFileSync(file, bytes);
    }
    const second = await openPrefixes({ ...nvmeIn(dir) });
    const again = await answer(second, prompt);
    expect(again.tokens).toEqual(tokens);
    expect(again.cachedTokens).toBeLessThan(144);
    await second.close();
  });

  it('keep within the bytes of the tiers, and cost no answer where room is missing', async () => {
    const blockBytes = 256 * blockTokens;
    await using prefixes = await openPrefixes({ sequences: 1, ddrBytes: 5 * blockBytes });
    for (let i = 0; i < 4; i++) {
      const prompt = randomTokens(40 + 60 * i);
      const said = await answer(prefixes, prompt);
      expect(said.tokens).toEqual(await plainAnswer(prompt));
      expect(said.stored).toBeLessThanOrEqual(5);
    }
    expect(prefixes.runtime.metrics().gauges['residentBytes.ddr']).toBeLessThanOrEqual(5 * blockBytes);
  });
});

describe('a turn', () => {
  it('waits for a sequence, leaves when its signal says so, and ends once', async () => {
    const prefixes = await openPrefixes({ sequences: 1 });
    const prompt = randomTokens(20);
    const held = await prefixes.begin(prompt);
    const leaving = new AbortController();
    const left = prefixes.begin(prompt, { signal: leaving.signal });
    const waiting = prefixes.begin(prompt);
    leaving.abort(new Error('gone'));
    await expect(left).rejects.toThrow('gone');
    await expect(prefixes.close()).rejects.toMatchObject({ code: 'TKV_STATE' });
    await held.sequence.evaluateWithoutGeneratingNewTokens(held.rest);
    expect(await held.end()).toBe(1);
    expect(await held.end()).toBe(1);
    const next = await waiting;
    expect(next.cachedTokens).toBe(18);
    await next.end({ keeps: false });
    await prefixes.close();
    await expect(prefixes.begin(prompt)).rejects.toMatchObject({ code: 'TKV_STATE' });
  });

  it.each<[string, unknown, object, string]>([
    ['no tokens', [], { code: 'TKV_INPUT', field: 'tokens' }, 'me'],
    ['a text', 'text', { code: 'TKV_INPUT', field: 'tokens' }, 'me'],
    ['a token that cannot be', [1, -2], { code: 'TKV_INPUT', field: 'tokens[1]' }, 'me'],
    [
      'more than a sequence holds',
      Array(contextSize).fill(5),
      { code: 'TKV_CAPACITY', field: 'tokens' },
      'me',
    ],
    ['no tenant', [1, 2], { code: 'TKV_INPUT', field: 'tenant' }, ''],
  ])('refuses %s', async (_what, tokens, error, tenant) => {
    await using prefixes = await openPrefixes({ sequences: 1 });
    await expect(prefixes.begin(tokens as number[], { tenant })).rejects.toMatchObject(error);
  });

  it.each<[string, object, string]>([
    ['no file', { model: join(scratch, 'absent.gguf') }, 'model'],
    ['no secret', { secretKey: undefined }, 'secretKey'],
    ['an option that is not there', { lora: 'x' }, 'lora'],
    ['no sequence', { sequences: 0 }, 'sequences'],
    ['a context of nothing', { contextSize: 0 }, 'contextSize'],
  ])('is not begun with %s', async (_what, options, field) => {
    await expect(openPrefixes(options)).rejects.toMatchObject({ field });
  });
});

describe('a state of llama.cpp', () => {
  it('comes together again out of its rows, also where V lies in columns', async () => {
    for (const flashAttention of [false, true]) {
      const model = await llama.loadModel({ modelPath: modelFile });
      const context = await model.createContext({ contextSize, sequences: 1, threads: 1, flashAttention });
      const sequence = context.getSequence();
      await sequence.evaluateWithoutGeneratingNewTokens(randomTokens(48));
      const file = join(scratch, 'parts.bin');
      await sequence.saveStateToFile(file);
      const bytes = readFileSync(file);
      const state = readState(bytes);
      expect(state.shape.isTransposed).toBe(!flashAttention);
      const writer = new StateWriter(state.shape, state.tokens);
      const block = new Uint8Array(blockTokens * tokenBytes(state.shape));
      for (let from = 0; from < 48; from += blockTokens) {
        copyRows(state, from, blockTokens, block);
        writer.put(from, blockTokens, block);
      }
      expect(writer.bytes.equals(bytes)).toBe(true);
      // a file that is cut, longer, or of another magic is refused
      for (let length = 0; length < bytes.length; length += 97)
        expect(() => readState(bytes.subarray(0, length))).toThrow(/does not read/);
      expect(() => readState(Buffer.concat([bytes, Buffer.alloc(4)]))).toThrow(/behind its end/);
      bytes[0] ^= 1;
      expect(() => readState(bytes)).toThrow(/begins with/);
      await context.dispose();
      await model.dispose();
    }
  });
});
