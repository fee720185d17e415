/** Checkpoints: read as they are, or refused with the name of what is wrong. */

import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import {
  fromBf16,
  fromQ41,
  fromQ80,
  GgufFile,
  halvesOf,
  openCheckpoint,
  SafetensorsFile,
  toBf16,
} from '../../../../examples/server/engine/checkpoint/index.ts';
import { TextTokenizer } from '../../../../examples/server/engine/text/index.ts';
import { makeTinyModel, tinyModelDirectory } from '../../../../examples/server/tinyModel/make.ts';
import { writeGguf } from './ggufWriter.ts';

let directory: string;
beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), 'tierkv-model-'));
  cpSync(tinyModelDirectory, directory, { recursive: true });
});
afterEach(() => rmSync(directory, { recursive: true }));

const weights = (): Buffer => readFileSync(join(directory, 'model.safetensors'));
type Header = Record<string, { dtype: string; shape: number[]; data_offsets: [number, number] }>;

function headerOf(file: Buffer): { header: Header; data: Buffer } {
  const length = Number(file.readBigUInt64LE());
  return { header: JSON.parse(file.toString('utf8', 8, 8 + length)), data: file.subarray(8 + length) };
}

function writeTensors(name: string, header: object | string, data: Uint8Array): void {
  const text = Buffer.from(typeof header === 'string' ? header : JSON.stringify(header));
  const length = Buffer.alloc(8);
  length.writeBigUInt64LE(BigInt(text.length));
  writeFileSync(join(directory, name), Buffer.concat([length, text, data]));
}

function changeHeader(change: (header: Header) => void): void {
  const { header, data } = headerOf(weights());
  change(header);
  writeTensors('model.safetensors', header, data);
}

function changeConfig(change: object): void {
  const path = join(directory, 'config.json');
  writeFileSync(path, JSON.stringify({ ...JSON.parse(readFileSync(path, 'utf8')), ...change }));
}

const embedding = 'model.embed_tokens.weight';

describe('the tiny model', () => {
  it('is what its script makes, byte for byte', () => {
    const made = join(directory, 'made');
    makeTinyModel(made);
    for (const name of ['config.json', 'tokenizer.json', 'tokenizer_config.json', 'model.safetensors']) {
      expect(readFileSync(join(made, name)).equals(readFileSync(join(tinyModelDirectory, name))), name).toBe(
        true,
      );
    }
  });

  it('gives the same tensors in one file, in several behind an index, and as f32 or f16', () => {
    const { header, data } = headerOf(weights());
    const whole = openCheckpoint(directory).tensors;
    const values = whole.read(embedding);
    const names = Object.keys(header);
    const half = names.slice(0, 10);
    const part = (some: readonly string[]): Header =>
      Object.fromEntries(names.filter((name) => some.includes(name)).map((name) => [name, header[name]]));
    writeTensors('a.safetensors', part(half), data);
    writeTensors('b.safetensors', part(names.filter((name) => !half.includes(name))), data);
    const map = Object.fromEntries(
      names.map((name) => [name, half.includes(name) ? 'a.safetensors' : 'b.safetensors']),
    );
    writeFileSync(join(directory, 'model.safetensors.index.json'), JSON.stringify({ weight_map: map }));
    rmSync(join(directory, 'model.safetensors'));
    const sharded = openCheckpoint(directory).tensors;
    for (const name of names) expect(sharded.read(name)).toEqual(whole.read(name));
    const shape = [values.length];
    const f16 = Float16Array.from(values);
    const range = (bytes: number): [number, number] => [0, bytes];
    writeTensors(
      'f32.st',
      { x: { dtype: 'F32', shape, data_offsets: range(4 * values.length) } },
      new Uint8Array(values.slice().buffer),
    );
    writeTensors(
      'f16.st',
      { x: { dtype: 'F16', shape, data_offsets: range(2 * values.length) } },
      new Uint8Array(f16.buffer),
    );
    expect(new SafetensorsFile(join(directory, 'f32.st')).read('x')).toEqual(values);
    expect(new SafetensorsFile(join(directory, 'f16.st')).read('x')).toEqual(Float32Array.from(f16));
  });
});

describe('a checkpoint is refused', () => {
  const refused: readonly (readonly [string, () => void, RegExp])[] = [
    ['without config.json', () => rmSync(join(directory, 'config.json')), /config\.json: cannot be read/],
    ['with a config that is not JSON', () => writeFileSync(join(directory, 'config.json'), '{'), /not JSON/],
    [
      'of another architecture',
      () => changeConfig({ architectures: ['GPT2LMHeadModel'] }),
      /architectures is \["GPT2LMHeadModel"\]/,
    ],
    ['without an architecture', () => changeConfig({ architectures: undefined }), /architectures is missing/],
    ['with biases', () => changeConfig({ attention_bias: true }), /attention_bias is true/],
    ['with another activation', () => changeConfig({ hidden_act: 'gelu' }), /hidden_act is gelu/],
    [
      'with scaled rotary embeddings',
      () => changeConfig({ rope_scaling: { rope_type: 'yarn' } }),
      /type yarn/,
    ],
    [
      'with heads that do not divide',
      () => changeConfig({ num_key_value_heads: 3 }),
      /num_key_value_heads is 3/,
    ],
    ['with half a layer', () => changeConfig({ num_hidden_layers: 2.5 }), /num_hidden_layers is 2.5/],
    [
      'with more layers than weights',
      () => changeConfig({ num_hidden_layers: 4 }),
      /no tensor model\.layers\.3/,
    ],
    [
      'with another width',
      () => changeConfig({ intermediate_size: 196 }),
      /shape \[192, 128\], not \[196, 128\]/,
    ],
    ['without weights', () => rmSync(join(directory, 'model.safetensors')), /has no weights/],
    [
      'with a tensor missing',
      () => changeHeader((header) => delete header[embedding]),
      /no tensor model\.embed_tokens/,
    ],
    [
      'with a tensor of another shape',
      () => changeHeader((header) => header[embedding].shape.reverse()),
      /shape \[128, 512\]/,
    ],
    [
      'with a range that does not fit',
      () => changeHeader((header) => header[embedding].data_offsets[1]--),
      /131071 bytes, but its shape/,
    ],
    [
      'with an unknown type',
      () => changeHeader((header) => Object.assign(header[embedding], { dtype: 'F8_E4M3' })),
      /stored as F8_E4M3/,
    ],
    [
      'with a file cut short',
      () => writeFileSync(join(directory, 'model.safetensors'), weights().subarray(0, -100)),
      /of a file of/,
    ],
    [
      'with a file of five bytes',
      () => writeFileSync(join(directory, 'model.safetensors'), 'hello'),
      /5 bytes, too few/,
    ],
    [
      'with a header longer than the file',
      () => writeFileSync(join(directory, 'model.safetensors'), Buffer.alloc(16, 1)),
      /header has/,
    ],
    [
      'with a header that is not JSON',
      () => writeTensors('model.safetensors', '{"x"', new Uint8Array()),
      /not JSON/,
    ],
    [
      'with an index that leads elsewhere',
      () => {
        rmSync(join(directory, 'model.safetensors'));
        const map = { weight_map: { [embedding]: '../model.safetensors' } };
        writeFileSync(join(directory, 'model.safetensors.index.json'), JSON.stringify(map));
      },
      /without a folder/,
    ],
  ];
  it.each(refused)('%s', (_name, damage, words) => {
    damage();
    expect(() => openCheckpoint(directory)).toThrow(words);
  });

  it('with a tokenizer that has more tokens than the model, or cannot be read as one', () => {
    expect(() => new TextTokenizer(directory, 500)).toThrow(/the model has 500 tokens/);
    writeFileSync(join(directory, 'tokenizer.json'), '{}');
    expect(() => new TextTokenizer(directory, 512)).toThrow(/tokenizer/);
    rmSync(join(directory, 'tokenizer.json'));
    expect(() => new TextTokenizer(directory, 512)).toThrow(/cannot be read as JSON/);
  });
});

describe('number formats', () => {
  it('bf16 rounds to the nearest, ties to even, and back exactly', () => {
    const values = Float32Array.from([1, -2.5, 1 + 2 ** -8, 1 + 3 * 2 ** -8, 3.14, 0]);
    const back = fromBf16(Uint8Array.from(Buffer.from(toBf16(values).buffer)));
    expect([...back]).toEqual([1, -2.5, 1, 1 + 2 ** -6, 3.140625, 0]);
  });

  it('Q8_0 and Q4_1 are scale times integer, and a minimum', () => {
    const q80 = new DataView(new ArrayBuffer(34));
    q80.setFloat16(0, 0.5, true);
    for (let i = 0; i < 32; i++) q80.setInt8(2 + i, i - 16);
    expect([...fromQ80(new Uint8Array(q80.buffer))]).toEqual(
      Array.from({ length: 32 }, (_, i) => (i - 16) / 2),
    );
    const q41 = new DataView(new ArrayBuffer(20));
    q41.setFloat16(0, 0.25, true);
    q41.setFloat16(2, -1, true);
    for (let i = 0; i < 16; i++) q41.setUint8(4 + i, i | ((15 - i) << 4));
    const [low, high] = [(i: number): number => i / 4 - 1, (i: number): number => (15 - i) / 4 - 1];
    const expected = Array.from({ length: 32 }, (_, i) => (i < 16 ? low(i) : high(i - 16)));
    expect([...fromQ41(new Uint8Array(q41.buffer))]).toEqual(expected);
  });

  it('rows of GGUF are put back in order, head by head', () => {
    const rows = Float32Array.from({ length: 8 }, (_, i) => i);
    expect([...halvesOf(rows, 2, 1)]).toEqual([0, 2, 1, 3, 4, 6, 5, 7]);
  });
});

describe('GGUF', () => {
  it('gives the tensors of the safetensors file, under its names', () => {
    const { tensors, config } = openCheckpoint(directory);
    const path = join(directory, 'model.gguf');
    writeFileSync(path, writeGguf(tensors, config.heads, config.kvHeads));
    rmSync(join(directory, 'model.safetensors'));
    const again = openCheckpoint(directory).tensors;
    expect(again).toBeInstanceOf(GgufFile);
    for (const name of tensors.names) {
      expect(again.shape(name)).toEqual(tensors.shape(name));
      expect(again.read(name)).toEqual(tensors.read(name));
    }
  });

  it('is refused when it is cut, of another version, or not GGUF', () => {
    const { tensors, config } = openCheckpoint(directory);
    const path = join(directory, 'model.gguf');
    const whole = writeGguf(tensors, config.heads, config.kvHeads);
    const readAll = (file: GgufFile): unknown => file.names.map((name) => file.read(name));
    const refuse = (bytes: Uint8Array, words: RegExp): void => {
      writeFileSync(path, bytes);
      expect(() => readAll(new GgufFile(path))).toThrow(words);
    };
    refuse(whole.subarray(0, 100), /ends within its header/);
    refuse(whole.subarray(0, whole.length - 200_000), /before byte/);
    refuse(Buffer.concat([whole.subarray(0, 4), Buffer.from([9, 0, 0, 0]), whole.subarray(8)]), /version 9/);
    refuse(Buffer.from('not a model at all'), /not a GGUF file/);
  });
});
