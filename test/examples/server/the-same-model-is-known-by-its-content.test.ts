/**
 * A model is known by the content of its files: names, sizes and times say nothing. What is cached is found
 * with a copy of the model, and never with another one; it keeps no server down.
 */

import { createHash } from 'node:crypto';
import {
  appendFileSync,
  cpSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  statSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { identified, openCheckpoint } from '../../../examples/server/engine/checkpoint/index.ts';
import { tinyModelDirectory } from '../../../examples/server/tinyModel/make.ts';
import { blockBytes, LiveServer, model, removeStateDirectories, stateDirectory } from './liveServer.ts';
import { setWeight, tinyCopy, untiedCopy } from './tinyCopy.ts';

afterAll(removeStateDirectories);

function identityOf(directory: string): string {
  const checkpoint = openCheckpoint(directory);
  try {
    return identified(directory, checkpoint).identity;
  } finally {
    checkpoint.tensors.close();
  }
}

const tiny = identityOf(tinyModelDirectory);

/** Everything that transformers reads of a model beside its weights. */
const files: Readonly<Record<string, string>> = {
  'generation_config.json': '{"eos_token_id": 2}',
  'special_tokens_map.json': '{"eos_token": "<|im_end|>"}',
  'added_tokens.json': '{}',
  'chat_template.jinja': '{{ messages }}',
  'chat_template.json': '{"chat_template": "{{ messages }}"}',
  'additional_chat_templates/tool_use.jinja': '{{ tools }}',
  'tokenizer.model': 'sentences and pieces',
  'vocab.json': '{"a": 1}',
  'vocab.txt': 'a\nb',
  'merges.txt': 'a b',
  'adapter_config.json': '{"r": 8}',
  'adapter_model.safetensors': 'weights',
};

describe('the identity of a model', () => {
  it('is the same for a copy, after a touch, and in a directory of another name', () => {
    const copy = tinyCopy();
    expect(identityOf(copy)).toBe(tiny);
    for (const name of readdirSync(copy)) utimesSync(join(copy, name), 1e9, 1e9);
    expect(identityOf(copy)).toBe(tiny);
    const renamed = join(stateDirectory(), 'another-name');
    cpSync(copy, renamed, { recursive: true });
    expect(identityOf(renamed)).toBe(tiny);
    writeFileSync(join(renamed, 'README.md'), 'what it is');
    expect(identityOf(renamed)).toBe(tiny);
  });

  it('is the same however the weights lie in files, and whatever these are called', () => {
    const names = (at: number): string[] => [`part-${at}.safetensors`, `rest-${at}.safetensors`];
    const found = [1, 2].map((at) => {
      const copy = tinyCopy();
      const [first, second] = names(at);
      cpSync(join(copy, 'model.safetensors'), join(copy, first));
      renameSync(join(copy, 'model.safetensors'), join(copy, second));
      const checkpoint = openCheckpoint(tinyModelDirectory);
      const map = checkpoint.tensors.names.map((name, i) => [name, i % 2 === 0 ? first : second]);
      checkpoint.tensors.close();
      const index = { weight_map: Object.fromEntries(map) };
      writeFileSync(join(copy, 'model.safetensors.index.json'), JSON.stringify(index));
      return copy;
    });
    expect(found.map(identityOf)).toEqual([tiny, tiny]);
    // The same files, of which one has another value in a tensor that is taken from the other.
    const [copy] = found;
    renameSync(join(copy, 'rest-1.safetensors'), join(copy, 'model.safetensors'));
    setWeight(copy, 'model.norm.weight', 0, 0x3f00);
    renameSync(join(copy, 'model.safetensors'), join(copy, 'rest-1.safetensors'));
    const indexPath = join(copy, 'model.safetensors.index.json');
    const { weight_map: map } = JSON.parse(readFileSync(indexPath, 'utf8'));
    const identities = names(1).map((file) => {
      writeFileSync(indexPath, JSON.stringify({ weight_map: { ...map, 'model.norm.weight': file } }));
      return identityOf(copy);
    });
    expect(identities[0]).toBe(tiny);
    expect(identities[1]).not.toBe(tiny);
  });

  it('is another one for any file that determines tokens: added, and with one byte changed', () => {
    const seen = new Map([[tiny, 'the tiny model']]);
    const note = (identity: string, what: string): void => {
      expect(seen.get(identity), what).toBe(undefined);
      seen.set(identity, what);
    };
    for (const [name, text] of Object.entries(files)) {
      const copy = tinyCopy();
      mkdirSync(join(copy, 'additional_chat_templates'), { recursive: true });
      writeFileSync(join(copy, name), text);
      const times = statSync(join(copy, name));
      const bytesOf = (at: number): Buffer => {
        const bytes = Buffer.from(text);
        if (at >= 0) bytes[at] ^= 1;
        return bytes;
      };
      for (const at of new Set([-1, 0, Math.floor(text.length / 2), text.length - 1])) {
        writeFileSync(join(copy, name), bytesOf(at));
        utimesSync(join(copy, name), times.atime, times.mtime);
        const what = at < 0 ? `${name} is there` : `byte ${at} of ${name} is another`;
        let identity: string;
        try {
          identity = identityOf(copy);
        } catch (error) {
          // an adapter is refused, and so is a file that cannot be read any more
          expect(error, what).toMatchObject({ code: 'TKV_INPUT' });
          expect(at >= 0 || name.startsWith('adapter_'), what).toBe(true);
          continue;
        }
        note(identity, what);
      }
    }
  });

  it('is another one for any change of what the tiny model has', () => {
    const seen = new Set([tiny]);
    const next = (change: (copy: string) => void): void => {
      const copy = tinyCopy();
      change(copy);
      const identity = identityOf(copy);
      expect(seen.has(identity), change.toString()).toBe(false);
      seen.add(identity);
    };
    const edit = (copy: string, name: string, from: string, to: string): void => {
      const text = readFileSync(join(copy, name), 'utf8');
      expect(text).toContain(from);
      writeFileSync(join(copy, name), text.replace(from, to));
    };
    next((copy) => edit(copy, 'config.json', '"rope_theta": 10000', '"rope_theta": 10001'));
    next((copy) => edit(copy, 'config.json', '"rms_norm_eps": 0.00001', '"rms_norm_eps": 0.00002'));
    next((copy) => edit(copy, 'tokenizer.json', '"special": true', '"special": false'));
    next((copy) => edit(copy, 'tokenizer_config.json', 'assistant', 'assistent'));
    next((copy) => appendFileSync(join(copy, 'config.json'), ' '));
    next((copy) => setWeight(copy, 'model.embed_tokens.weight', 65_535, 0x3f00));
    next((copy) => setWeight(copy, 'model.layers.2.mlp.down_proj.weight', 12, 0x3f01));
    const untied = identityOf(untiedCopy());
    expect(seen.has(untied)).toBe(false);
  });

  it('is held to: a file that is changed under a running server is not taken for the one before', () => {
    const copy = tinyCopy();
    const { checkpoint } = identified(copy, openCheckpoint(copy));
    checkpoint.tensors.read('model.norm.weight');
    setWeight(copy, 'model.norm.weight', 3, 0x3f00);
    expect(() => checkpoint.tensors.read('model.norm.weight')).toThrow(/other values than at the start/);
    checkpoint.tensors.close();
  });
});

describe('a restart with the KV of an earlier run', () => {
  const sizes = { hbmBytes: 64 * blockBytes, ddrBytes: 64 * blockBytes, nvmeBytes: 256 * blockBytes };
  const body = { model, prompt: 'The captain knew every island. '.repeat(4), max_tokens: 6, temperature: 0 };
  interface Run {
    readonly cached: number;
    readonly lines: readonly string[];
    readonly text: string;
  }
  const run = async (directory: string, state: string, name = model): Promise<Run> => {
    await using server = await LiveServer.start({ ...sizes, directory, state, name });
    const answer = await server.client().completions.create({ ...body, model: name });
    const { counters } = server.serving.engine.cache.kv.metrics();
    const cached = counters['hits.hbm'] + counters['hits.ddr'] + counters['hits.nvme'];
    await server.serving.stop();
    return {
      cached,
      lines: server.lines.filter((line) => /begins empty/.test(line)),
      text: answer.choices[0].text,
    };
  };

  let state: string;
  let first: Run;
  beforeAll(async () => {
    state = stateDirectory();
    first = await run(tinyModelDirectory, state);
  });
  const stateCopy = (): string => {
    const copy = stateDirectory();
    cpSync(state, copy, { recursive: true });
    return copy;
  };

  it('finds it with a copy of the model under another name and with other times', async () => {
    const copy = tinyCopy();
    for (const name of readdirSync(copy)) utimesSync(join(copy, name), 1e9, 1e9);
    const again = await run(copy, stateCopy(), 'another name');
    expect(again).toMatchObject({ lines: [], text: first.text });
    expect(again.cached).toBeGreaterThan(1);
  });

  it('begins empty, and says so, with weights of the same sizes and times', async () => {
    const copy = tinyCopy();
    const path = join(copy, 'model.safetensors');
    const { atime, mtime } = statSync(join(tinyModelDirectory, 'model.safetensors'));
    setWeight(copy, 'model.layers.0.self_attn.v_proj.weight', 0, 0x3f80);
    utimesSync(path, atime, mtime);
    const own = stateCopy();
    const other = await run(copy, own);
    expect(other.cached).toBe(0);
    expect(other.lines).toHaveLength(1);
    const again = await run(copy, own);
    expect(again.lines).toEqual([]);
    expect(again.cached).toBeGreaterThan(1);
    expect(again.text).toBe(other.text);
  });

  it.each<[string, (own: string) => void]>([
    ['a secret that was not written to its end', (own) => writeFileSync(join(own, 'secret.key'), 'short')],
    ['another secret', (own) => writeFileSync(join(own, 'secret.key'), Buffer.alloc(32, 7))],
    [
      'files that are no cache',
      (own) => {
        for (const name of readdirSync(join(own, 'kv'))) {
          writeFileSync(join(own, 'kv', name), createHash('sha512').update(name).digest());
        }
      },
    ],
  ])('begins empty, without a failure, with %s', async (_what, change) => {
    const own = stateCopy();
    change(own);
    const other = await run(tinyModelDirectory, own);
    expect(other).toMatchObject({ cached: 0, text: first.text });
    expect(other.lines.length).toBe(1);
    const again = await run(tinyModelDirectory, own);
    expect(again.cached).toBeGreaterThan(1);
    expect(existsSync(join(own, 'kv'))).toBe(true);
  });
});
