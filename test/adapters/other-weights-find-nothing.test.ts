import fs from 'node:fs';
import path from 'node:path';
import { afterAll, describe, expect, test } from 'vitest';
import { makeDecoder } from '../../examples/tinyDecoder/make.ts';
import { type PrefixTurn, withPrefixCache } from '../../src/adapters/transformers/index.ts';
import { contentHash, weightFiles } from '../../src/adapters/transformers/weights.ts';
import type { KVRuntime } from '../../src/index.ts';
import {
  generated,
  load,
  loadDecoder,
  openedRuntime,
  randomIds,
  randomNumbers,
  removeDirectories,
  temporary,
} from './decoders.ts';

afterAll(removeDirectories);

const prompt = randomIds(randomNumbers(13), 80);

/** Tokens that were found of the prompt by a cache over these weights. */
async function foundBy(
  directory: string,
  runtime: KVRuntime,
  options: object = {},
  weights: string | string[] = directory,
): Promise<number> {
  const model = await load(directory);
  const plain = await generated(model, prompt);
  const turns: PrefixTurn[] = [];
  const report = (turn: PrefixTurn): void => void turns.push(turn);
  const cached = await withPrefixCache(model, { weights, tenant: 'a', runtime, report, ...options });
  expect(await generated(cached, prompt)).toEqual(plain);
  return turns[0].cachedTokens;
}

describe('a runtime that several models share', () => {
  test('the same content is found from any path, and nothing is found with anything else', async () => {
    const { directory, model } = await loadDecoder();
    await using runtime = await openedRuntime(model);
    expect(await foundBy(directory, runtime)).toBe(0);
    expect(await foundBy(directory, runtime)).toBe(64);

    const copy = temporary('copy');
    fs.cpSync(directory, copy, { recursive: true });
    expect(await foundBy(copy, runtime)).toBe(64);
    expect(await foundBy(copy, runtime, {}, [path.join(copy, 'onnx', 'model.onnx')])).toBe(64);

    expect(await foundBy(directory, runtime, { tenant: 'b' })).toBe(0);
    expect(await foundBy(directory, runtime, { revision: '2' })).toBe(0);
    expect(await foundBy(directory, runtime, { extras: { adapter: 'sql' } })).toBe(0);
    const other = await loadDecoder({ seed: 4 });
    expect(await foundBy(other.directory, runtime)).toBe(0);
    const turned = await loadDecoder({ ropeBase: 20_000 });
    expect(await foundBy(turned.directory, runtime)).toBe(0);
    expect(await foundBy(directory, runtime)).toBe(64);
  });

  test('a setting of config.json counts', async () => {
    const { directory, model } = await loadDecoder();
    await using runtime = await openedRuntime(model);
    expect(await foundBy(directory, runtime)).toBe(0);
    const file = path.join(directory, 'config.json');
    const config = JSON.parse(fs.readFileSync(file, 'utf8'));
    fs.writeFileSync(file, JSON.stringify({ ...config, rope_scaling: { type: 'linear', factor: 2 } }));
    expect(await foundBy(directory, runtime)).toBe(0);
    // the same settings in another order are the same
    fs.writeFileSync(file, JSON.stringify(Object.fromEntries(Object.entries(config).reverse())));
    expect(await foundBy(directory, runtime)).toBe(64);
  });

  test('weights that take the place of others, with the same size and time, are others', async () => {
    const { directory, model } = await loadDecoder();
    await using runtime = await openedRuntime(model);
    const file = path.join(directory, 'onnx', 'model.onnx');
    contentHash(file, undefined, Date.now() + 60_000); // its hash is kept beside it
    expect(fs.existsSync(`${file}.sha256.json`)).toBe(true);
    expect(await foundBy(directory, runtime)).toBe(0);
    const before = fs.statSync(file);
    makeDecoder(directory, { seed: 5 });
    fs.utimesSync(file, before.atime, before.mtime);
    expect(fs.statSync(file).size).toBe(before.size);
    expect(await foundBy(directory, runtime)).toBe(0);
  });

  test('a file of data beside the graph counts', async () => {
    const { directory, model } = await loadDecoder({ external: true });
    await using runtime = await openedRuntime(model);
    expect(weightFiles(directory, 'fp32').map((file) => path.basename(file))).toEqual([
      'model.onnx',
      'model.onnx_data',
    ]);
    expect(await foundBy(directory, runtime)).toBe(0);
    const graph = fs.readFileSync(path.join(directory, 'onnx', 'model.onnx'));
    makeDecoder(directory, { external: true, seed: 6 });
    fs.writeFileSync(path.join(directory, 'onnx', 'model.onnx'), graph);
    expect(await foundBy(directory, runtime)).toBe(0);
  });
});

describe('the hash that is kept', () => {
  const later = Date.now() + 60_000;

  function file(): string {
    const name = path.join(temporary('weights'), 'model.onnx');
    fs.writeFileSync(name, 'abc');
    return name;
  }
  const abc = 'ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad';

  test('is used while the file is as it was, and not after', () => {
    const name = file();
    expect(contentHash(name, undefined, later)).toBe(abc);
    const kept = JSON.parse(fs.readFileSync(`${name}.sha256.json`, 'utf8'));
    const marked = 'f'.repeat(64); // shows whether what is kept was taken
    fs.writeFileSync(`${name}.sha256.json`, JSON.stringify({ ...kept, sha256: marked }));
    expect(contentHash(name, undefined, later)).toBe(marked);
    fs.chmodSync(name, 0o600); // its inode changed, whatever did
    expect(contentHash(name, undefined, later)).toBe(abc);
  });

  test('is not kept for a file that has just changed', () => {
    const name = file();
    expect(contentHash(name)).toBe(abc);
    expect(fs.existsSync(`${name}.sha256.json`)).toBe(false);
  });

  test.each(['', '{', '{}', '{"sha256":"0","seen":"x"}', '[]', 'null'])(
    'damaged as %j it is read anew',
    (text) => {
      const name = file();
      fs.writeFileSync(`${name}.sha256.json`, text);
      expect(contentHash(name, undefined, later)).toBe(abc);
    },
  );

  test('that cannot be kept costs a line', () => {
    const name = file();
    fs.mkdirSync(`${name}.sha256.json`);
    const lines: string[] = [];
    expect(contentHash(name, (line) => void lines.push(line), later)).toBe(abc);
    expect(lines.join()).toMatch(/is not kept, so that every start reads the file/);
  });
});

test.each([
  ['/nowhere/model', /weights names \/nowhere\/model, which does not exist/],
  ['', /weights must be a path or a list of paths/],
  [[], /weights must be a path or a list of paths/],
  [7, /weights must be a path or a list of paths, and it is 7/],
  ['.', /weights names \., which has none of onnx\/model.onnx, onnx\/decoder_model_merged.onnx/],
])('weights of %j are refused', (weights, message) => {
  expect(() => weightFiles(weights as string, 'fp32')).toThrow(message);
});
