import fs from 'node:fs';
import path from 'node:path';
import type { PreTrainedModel } from '@huggingface/transformers';
import * as transformers from '@huggingface/transformers';
import { afterAll, describe, expect, test, vi } from 'vitest';
import { makeDecoder } from '../../examples/tinyDecoder/make.ts';
import { weightsOf as pageWeights } from '../../src/adapters/browser/weights.ts';
import { type PrefixTurn, withPrefixCache } from '../../src/adapters/transformers/index.ts';
import { shapeOfModel } from '../../src/adapters/transformers/modelShape.ts';
import { contentOf, hashedWeights } from '../../src/adapters/transformers/weights.ts';
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
    contentOf(file, undefined, Date.now() + 60_000); // its hash is kept beside it
    expect(fs.existsSync(`${file}.sha256.json`)).toBe(true);
    expect(await foundBy(directory, runtime)).toBe(0);
    const before = fs.statSync(file);
    makeDecoder(directory, { seed: 5 });
    fs.utimesSync(file, before.atime, before.mtime);
    expect(fs.statSync(file).size).toBe(before.size);
    expect(await foundBy(directory, runtime)).toBe(0);
  });

  // the names of torch and of others, beside the one that transformers.js has
  test.each(['model.onnx_data', 'model.onnx.data', 'weights.bin', 'parts/a b.pb'])(
    'a file of data counts that the graph names %s',
    async (external) => {
      const directory = temporary('external');
      fs.mkdirSync(path.join(directory, 'onnx', path.dirname(external)), { recursive: true });
      const { model } = await loadDecoder({ external }, directory);
      await using runtime = await openedRuntime(model);
      const graphFile = path.join(directory, 'onnx', 'model.onnx');
      const data = path.join(directory, 'onnx', external);
      expect(hashedWeights(directory, 'fp32').map((file) => file.path)).toEqual([graphFile, data]);
      expect(hashedWeights([graphFile], 'fp32').map((file) => file.path)).toEqual([graphFile, data]);
      expect(await foundBy(directory, runtime)).toBe(0);
      expect(await foundBy(directory, runtime)).toBe(64);
      const graph = fs.readFileSync(graphFile);
      makeDecoder(directory, { external, seed: 6 });
      fs.writeFileSync(graphFile, graph); // it has the small weights
      expect(await foundBy(directory, runtime)).toBe(0);
      fs.rmSync(data);
      expect(() => hashedWeights(directory, 'fp32')).toThrow(/takes data from .*, which is missing/);
    },
  );
});

describe('weights that the model was not loaded from', () => {
  const refused = { code: 'TKV_CONFIG', field: 'weights' };

  test('are refused, whatever of them differs', async () => {
    const { directory, model } = await loadDecoder({ external: 'model.onnx.data' });
    await using runtime = await openedRuntime(model);
    const wrap = (weights: string): Promise<object> =>
      withPrefixCache(model, { weights, tenant: 'a', runtime });
    await wrap(directory);
    const other = await loadDecoder({ seed: 4 });
    await expect(wrap(other.directory)).rejects.toMatchObject(refused);
    await expect(wrap(other.directory)).rejects.toThrow(/the model computes with other weights/);

    // a single matrix of the last layer that is a hundredth larger, as another tuning of the same model may have
    const tuned = temporary('tuned');
    fs.cpSync(directory, tuned, { recursive: true });
    const file = path.join(tuned, 'onnx', 'model.onnx.data');
    const words = new Float32Array(new Uint8Array(fs.readFileSync(file)).buffer);
    const last = words.length / 3;
    for (let i = Math.floor(2 * last); i < words.length; i++) words[i] *= 1.01;
    fs.writeFileSync(file, words);
    await expect(wrap(tuned)).rejects.toMatchObject(refused);
    const model2 = await load(tuned);
    await withPrefixCache(model2, { weights: tuned, tenant: 'a', runtime });
    await expect(withPrefixCache(model2, { weights: directory, tenant: 'a', runtime })).rejects.toMatchObject(
      refused,
    );
  });

  test('are refused by what is kept beside the file, without a second session', async () => {
    const { directory, model } = await loadDecoder();
    const other = await loadDecoder({ seed: 4 });
    await using runtime = await openedRuntime(model);
    const file = path.join(directory, 'onnx', 'model.onnx');
    contentOf(file, undefined, Date.now() + 60_000);
    const options = { weights: directory, tenant: 'a', runtime };
    await withPrefixCache(model, options);
    const kept = JSON.parse(fs.readFileSync(`${file}.sha256.json`, 'utf8'));
    expect(kept.witness.sums.length).toBeGreaterThan(0);
    const Session = (model.sessions.model as object).constructor as unknown as { create: () => void };
    const create = vi.spyOn(Session, 'create');
    try {
      await withPrefixCache(model, options);
      await expect(withPrefixCache(other.model, options)).rejects.toMatchObject(refused);
      expect(create).not.toHaveBeenCalled();
      // damaged, it is made again
      fs.writeFileSync(`${file}.sha256.json`, JSON.stringify({ ...kept, witness: { of: 1 } }));
      await withPrefixCache(model, options);
      expect(create).toHaveBeenCalledTimes(1);
    } finally {
      create.mockRestore();
    }
  });
});

describe('weights by their addresses, in a page', () => {
  const fetched: string[] = [];
  /** The engine with a page's way to its files. */
  const engine = {
    ...transformers,
    env: {
      useBrowserCache: false,
      fetch: async (address: string) => {
        fetched.push(address);
        const file = decodeURIComponent(address);
        return fs.existsSync(file) ? new Response(fs.readFileSync(file)) : new Response('', { status: 404 });
      },
    },
  };
  const told = (model: PreTrainedModel, weights: string): Promise<string[]> =>
    pageWeights(weights, {
      model,
      shape: shapeOfModel(model),
      engine: engine as never,
      versions: '',
      notice: () => {},
    });

  test('are all that the graph names, and what the model computes', async () => {
    const external = 'parts/a b.pb';
    const directory = temporary('external');
    fs.mkdirSync(path.join(directory, 'onnx', 'parts'), { recursive: true });
    const { model } = await loadDecoder({ external }, directory);
    const before = await told(model, directory);
    expect(await told(model, path.join(directory, 'onnx', 'model.onnx'))).toEqual(before);
    expect(before).toHaveLength(3);
    expect(fetched.at(-1)).toBe(`${directory}/onnx/parts/a%20b.pb`);
    // other data under the loaded model
    const data = path.join(directory, 'onnx', external);
    const bytes = fs.readFileSync(data);
    bytes[1000] ^= 1;
    fs.writeFileSync(data, bytes);
    const after = await told(model, directory);
    expect(after.map((hash, i) => hash === before[i])).toEqual([true, false, true]);
    // another model over the same files
    const other = await loadDecoder({ seed: 4 });
    const theirs = await told(other.model, directory);
    expect(theirs.map((hash, i) => hash === after[i])).toEqual([true, true, false]);
    fs.rmSync(data);
    await expect(told(model, directory)).rejects.toMatchObject({ code: 'TKV_CONFIG', field: 'weights' });
    fs.writeFileSync(path.join(directory, 'onnx', 'model.onnx'), '<!DOCTYPE html>');
    await expect(told(model, directory)).rejects.toThrow(/it is not an ONNX file/);
  });
});

describe('the hash that is kept', () => {
  const later = (): number => Date.now() + 60_000;

  function file(): string {
    const name = path.join(temporary('weights'), 'model.onnx_data');
    fs.writeFileSync(name, 'abc');
    return name;
  }
  const abc = 'ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad';

  test('is used while the file is as it was, and not after', () => {
    const name = file();
    expect(contentOf(name, undefined, later()).sha256).toBe(abc);
    const kept = JSON.parse(fs.readFileSync(`${name}.sha256.json`, 'utf8'));
    const marked = 'f'.repeat(64); // shows whether what is kept was taken
    fs.writeFileSync(`${name}.sha256.json`, JSON.stringify({ ...kept, sha256: marked }));
    expect(contentOf(name, undefined, later()).sha256).toBe(marked);
    fs.chmodSync(name, 0o600); // its inode changed, whatever did
    expect(contentOf(name, undefined, later()).sha256).toBe(abc);
  });

  test('is not kept for a file that has just changed', () => {
    const name = file();
    expect(contentOf(name).sha256).toBe(abc);
    expect(fs.existsSync(`${name}.sha256.json`)).toBe(false);
  });

  test.each(['', '{', '{}', '{"sha256":"0","seen":"x"}', '[]', 'null'])(
    'damaged as %j it is read anew',
    (text) => {
      const name = file();
      fs.writeFileSync(`${name}.sha256.json`, text);
      expect(contentOf(name, undefined, later()).sha256).toBe(abc);
    },
  );

  test('that cannot be kept costs a line', () => {
    const name = file();
    fs.mkdirSync(`${name}.sha256.json`);
    const lines: string[] = [];
    expect(contentOf(name, (line) => void lines.push(line), later()).sha256).toBe(abc);
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
  expect(() => hashedWeights(weights as string, 'fp32')).toThrow(message);
});
