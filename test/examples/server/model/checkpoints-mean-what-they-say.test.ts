/** What a checkpoint's files say besides their tensors: read as meant, or refused with the name of the field. */

import { execFileSync } from 'node:child_process';
import { cpSync, mkdtempSync, readFileSync, rmSync, truncateSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import {
  GgufFile,
  openCheckpoint,
  SafetensorsFile,
} from '../../../../examples/server/engine/checkpoint/index.ts';
import { TextTokenizer } from '../../../../examples/server/engine/text/index.ts';
import { tinyModelDirectory } from '../../../../examples/server/tinyModel/make.ts';
import { TierKVError } from '../../../../src/index.ts';
import { type GgufMetadata, ggufOf, headCountsOf, u32Of, u64Of } from './ggufWriter.ts';

let directory: string;
beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), 'tierkv-checkpoint-'));
  cpSync(tinyModelDirectory, directory, { recursive: true });
});
afterEach(() => rmSync(directory, { recursive: true }));

const at = (name: string): string => join(directory, name);
const json = (name: string): Record<string, unknown> => JSON.parse(readFileSync(at(name), 'utf8'));
const change = (name: string, fields: object): void =>
  writeFileSync(at(name), JSON.stringify({ ...json(name), ...fields }));

/** @returns the error, which must be one of the input: never a raw one of the engine */
function refusal(open: () => unknown): TierKVError {
  try {
    open();
  } catch (error) {
    expect(error).toBeInstanceOf(TierKVError);
    expect((error as TierKVError).code).toMatch(/^TKV_(INPUT|IO)$/);
    return error as TierKVError;
  }
  throw new Error('it was not refused');
}
const refused = (words: RegExp): void =>
  expect(refusal(() => openCheckpoint(directory)).message).toMatch(words);

describe('the base of the rotary embedding', () => {
  const base = (fields: object): number => {
    change('config.json', { rope_theta: undefined, ...fields });
    return openCheckpoint(directory).config.ropeBase;
  };
  it.each([
    [{}, 10_000],
    [{ rope_theta: 500_000 }, 500_000],
    [{ rope_scaling: null, rope_theta: 20_000 }, 20_000],
    [{ rope_scaling: { type: 'default', factor: 1 }, rope_theta: 20_000 }, 20_000],
    [{ rope_parameters: { rope_type: 'default', rope_theta: 500_000 } }, 500_000],
    [{ rope_parameters: { rope_theta: 30_000 }, rope_theta: 30_000 }, 30_000],
    [{ rope_parameters: { full_attention: { rope_type: 'default', rope_theta: 1e6 } } }, 1e6],
    [
      {
        rope_parameters: {
          full_attention: { rope_theta: 1e6 },
          sliding_attention: { rope_theta: 1e6, rope_type: 'default' },
        },
      },
      1e6,
    ],
  ])('%j is %d', (fields, expected) => expect(base(fields)).toBe(expected));

  it.each([
    [{ rope_parameters: { rope_type: 'llama3', rope_theta: 5e5 } }, /rope_parameters is of type llama3/],
    [{ rope_parameters: { rope_type: 'default' } }, /rope_parameters has no rope_theta/],
    [{ rope_parameters: { rope_theta: 5e5, factor: 8 } }, /rope_parameters.factor is 8/],
    [{ rope_parameters: { rope_theta: 5e5 }, rope_theta: 1e4 }, /rope_theta is said as 500000 and as 10000/],
    [{ rope_parameters: { full_attention: { rope_type: 'yarn' } } }, /full_attention is of type yarn/],
    [
      { rope_parameters: { full_attention: { rope_theta: 1e6 }, sliding_attention: { rope_theta: 1e4 } } },
      /is said as 1000000 and as 10000/,
    ],
    [{ rope_parameters: { other: { rope_theta: 1e6 } } }, /rope_parameters.other is for an unknown type/],
    [{ rope_parameters: [] }, /rope_parameters is \[\]/],
    [{ rope_scaling: { type: 'linear', factor: 2 } }, /rope_scaling is of type linear/],
    [{ rope_scaling: { factor: 2 } }, /rope_scaling.factor is 2/],
    [{ rope_scaling: 'linear' }, /rope_scaling is "linear"/],
    [{ rope_parameters: { rope_theta: '1e6' } }, /rope_parameters.rope_theta is 1e6/],
    [{ rope_parameters: { rope_theta: 1e6, partial_rotary_factor: 0.5 } }, /partial_rotary_factor is 0.5/],
    [{ partial_rotary_factor: 0.5 }, /partial_rotary_factor is 0.5/],
    [{ quantization_config: { quant_method: 'gptq' } }, /quantization_config is \{"quant_method":"gptq"\}/],
    [{ tie_word_embeddings: 'yes' }, /tie_word_embeddings is "yes"/],
    [{ eos_token_id: 512 }, /eos_token_id is 512, and the model has 512 tokens/],
  ])('%j is refused', (fields, words) => {
    change('config.json', { rope_theta: undefined, ...fields });
    refused(words);
  });
});

describe('files beside config.json', () => {
  it('generation_config.json names the end tokens, and must not constrain tokens', () => {
    writeFileSync(at('generation_config.json'), JSON.stringify({ eos_token_id: [1, 2], temperature: 0.6 }));
    expect(openCheckpoint(directory).config.endTokens).toEqual([1, 2]);
    writeFileSync(at('generation_config.json'), '{}');
    expect(openCheckpoint(directory).config.endTokens).toEqual([0, 2]);
    writeFileSync(at('generation_config.json'), JSON.stringify({ suppress_tokens: [5] }));
    refused(/generation_config.json: suppress_tokens/);
  });

  it('what transformers means by an absent field is what is meant', () => {
    change('config.json', { eos_token_id: undefined });
    expect(openCheckpoint(directory).config.endTokens).toEqual([2]);
    change('config.json', { eos_token_id: null });
    expect(openCheckpoint(directory).config.endTokens).toEqual([]);
    change('config.json', { architectures: ['MistralForCausalLM'] });
    expect(openCheckpoint(directory).config.window).toBe(4096);
    change('config.json', { sliding_window: null });
    expect(openCheckpoint(directory).config.window).toBe(0);
  });

  it('an adapter, other versions of a tokenizer, and weights under other names are refused by name', () => {
    writeFileSync(at('adapter_config.json'), '{}');
    refused(/adapter_config.json/);
    rmSync(at('adapter_config.json'));
    change('tokenizer_config.json', { fast_tokenizer_files: ['tokenizer.4.0.0.json', 'tokenizer.json'] });
    expect(refusal(() => new TextTokenizer(directory, 512)).message).toMatch(/fast_tokenizer_files/);
    rmSync(at('model.safetensors'));
    writeFileSync(at('pytorch_model.bin'), '');
    refused(/pytorch_model.bin is not read/);
  });

  it('a tensor that is never read may be of any type', () => {
    const file = readFileSync(at('model.safetensors'));
    const length = Number(file.readBigUInt64LE());
    const header = JSON.parse(file.toString('utf8', 8, 8 + length));
    header['model.rotary_emb.scale'] = { dtype: 'F8_E4M3', shape: [4], data_offsets: [0, 4] };
    header.counts = { dtype: 'I64', shape: [1], data_offsets: [0, 8] };
    const text = Buffer.from(JSON.stringify(header));
    const bytes = Buffer.concat([u64Of(text.length), text, file.subarray(8 + length)]);
    writeFileSync(at('model.safetensors'), bytes);
    const { tensors } = openCheckpoint(directory);
    expect(refusal(() => tensors.read('counts')).message).toMatch(/counts is stored as I64/);
    writeFileSync(at('more.safetensors'), bytes);
    rmSync(at('model.safetensors'));
    const map = Object.fromEntries(Object.keys(header).map((name) => [name, 'more.safetensors']));
    writeFileSync(at('model.safetensors.index.json'), JSON.stringify({ weight_map: map }));
    expect(openCheckpoint(directory).tensors.names).toContain('counts');
  });
});

describe('metadata of a GGUF file', () => {
  const write = (metadata: GgufMetadata, extra: readonly Buffer[] = []): void => {
    rmSync(at('model.safetensors'), { force: true });
    writeFileSync(at('model.gguf'), ggufOf(source, metadata, extra));
  };
  let source: ReturnType<typeof openCheckpoint>['tensors'];
  let counts: GgufMetadata;
  beforeEach(() => {
    const { tensors, config } = openCheckpoint(directory);
    source = tensors;
    counts = headCountsOf(config.heads, config.kvHeads);
  });

  it('that says the same as config.json is taken', () => {
    write({
      ...counts,
      'llama.embedding_length': u32Of(128),
      'llama.block_count': u32Of(3),
      'llama.feed_forward_length': u32Of(192),
      'llama.context_length': u32Of(8192),
      'llama.vocab_size': u32Of(512),
      'llama.rope.dimension_count': u32Of(32),
      'llama.rope.freq_base': { type: 6, value: 10_000 },
      'llama.attention.layer_norm_rms_epsilon': { type: 6, value: 1e-5 },
      'llama.expert_count': u32Of(0),
      'general.alignment': u32Of(64),
    });
    const read = openCheckpoint(directory).tensors;
    for (const name of source.names) expect(read.read(name)).toEqual(source.read(name));
  });

  it.each<[string, GgufMetadata, RegExp]>([
    ['no head counts', { 'llama.attention.head_count': undefined }, /llama.attention.head_count is missing/],
    [
      'no KV head counts',
      { 'llama.attention.head_count_kv': undefined },
      /head_count_kv is 4, but num_key_value_heads .* 2/,
    ],
    [
      'other head counts',
      { 'llama.attention.head_count': u32Of(8) },
      /head_count is 8, but num_attention_heads/,
    ],
    ['head counts of 0', { 'llama.attention.head_count': u32Of(0) }, /head_count is 0/],
    ['head counts as a text', { 'llama.attention.head_count': { type: 8, value: '4' } }, /head_count is "4"/],
    ['head counts as a float', { 'llama.attention.head_count': { type: 6, value: 4 } }, /head_count is 4/],
    [
      'head counts as a boolean',
      { 'llama.attention.head_count_kv': { type: 7, value: 1 } },
      /head_count_kv is true/,
    ],
    [
      'another architecture',
      { 'general.architecture': { type: 8, value: 'qwen2' } },
      /general.architecture is "qwen2"/,
    ],
    ['no architecture', { 'general.architecture': undefined }, /general.architecture is missing/],
    [
      'keys of another architecture',
      { 'mistral.attention.head_count': u32Of(4) },
      /mistral.attention.head_count is not known/,
    ],
    ['another width', { 'llama.embedding_length': u32Of(256) }, /embedding_length is 256, but hidden_size/],
    ['another depth', { 'llama.block_count': u32Of(4) }, /block_count is 4/],
    ['another key length', { 'llama.attention.key_length': u32Of(64) }, /key_length is 64, but head_dim/],
    [
      'another base',
      { 'llama.rope.freq_base': { type: 6, value: 500_000 } },
      /freq_base is 500000, but rope_theta/,
    ],
    [
      'a base that is not a number',
      { 'llama.rope.freq_base': { type: 6, value: Number.NaN } },
      /freq_base is/,
    ],
    ['a base of 0', { 'llama.rope.freq_base': { type: 6, value: 0 } }, /freq_base is 0/],
    [
      'another epsilon',
      { 'llama.attention.layer_norm_rms_epsilon': { type: 6, value: 1e-6 } },
      /rms_epsilon/,
    ],
    ['part of a head rotated', { 'llama.rope.dimension_count': u32Of(16) }, /dimension_count is 16/],
    ['scaled positions', { 'llama.rope.scaling.type': { type: 8, value: 'yarn' } }, /scaling.type is "yarn"/],
    ['a scaling factor', { 'llama.rope.scaling.factor': { type: 6, value: 4 } }, /scaling.factor is 4/],
    ['a window', { 'llama.attention.sliding_window': u32Of(64) }, /sliding_window is 64/],
    ['experts', { 'llama.expert_count': u32Of(8) }, /llama.expert_count is not known/],
    ['one of several parts', { 'split.count': u32Of(3) }, /split.count is 3/],
    ['an adapter', { 'general.type': { type: 8, value: 'adapter' } }, /general.type is "adapter"/],
    ['an alignment of 0', { 'general.alignment': u32Of(0) }, /general.alignment is 0/],
    [
      'an alignment that is a text',
      { 'general.alignment': { type: 8, value: '32' } },
      /general.alignment is 32/,
    ],
  ])('is refused with %s', (_name, changed, words) => {
    write({ ...counts, ...changed });
    refused(words);
  });

  it('is asked for head counts also without config.json, so that no row is taken in the wrong order', () => {
    write({ ...counts, 'llama.attention.head_count': undefined });
    const file = new GgufFile(at('model.gguf'));
    expect(refusal(() => file.read('model.layers.0.self_attn.q_proj.weight')).message).toMatch(/is missing/);
    expect(file.read('model.norm.weight')).toEqual(source.read('model.norm.weight'));
  });

  it('is refused with several files, whichever comes first', () => {
    write(counts);
    cpSync(at('model.gguf'), at('a.gguf'));
    refused(/has 2 .gguf files: a.gguf, model.gguf/);
  });

  it('may have tensors of any type that are never read, but none that change the result', () => {
    const info = (name: string, type: number): Buffer => {
      const text = Buffer.from(name);
      return Buffer.concat([
        u64Of(text.length),
        text,
        Buffer.from([1, 0, 0, 0]),
        u64Of(256),
        Buffer.from([type, 0, 0, 0]),
        u64Of(0),
      ]);
    };
    write(counts, [info('unused.weight', 12)]);
    expect(openCheckpoint(directory).tensors.names).toContain('unused.weight');
    write(counts, [info('rope_freqs.weight', 0)]);
    refused(/rope_freqs.weight scales/);
    write(counts, [info('blk.0.attn_q.bias', 0)]);
    refused(/blk.0.attn_q.bias is a bias/);
    write(counts, [info('output_norm.weight', 0)]);
    refused(/has the tensor output_norm.weight twice/);
  });
});

describe('files made to cost much are refused by size, depth and count', () => {
  const deep = (open: string, close: string): string => open.repeat(1_000_000) + close.repeat(1_000_000);
  const arrays = deep('[', ']');

  it.each([
    ['config.json', `{"architectures": ${arrays}}`],
    ['config.json', deep('{"a":', '}')],
    ['generation_config.json', `{"a": ${arrays}}`],
    ['config.json', `{"a":[${'0,'.repeat(200_000)}0]}`],
    ['config.json', ' '.repeat(5_000_000)],
  ])('%s', (name, text) => {
    writeFileSync(at(name), text);
    refused(/deep|values|bytes/);
  });

  it.each(['tokenizer.json', 'tokenizer_config.json', 'special_tokens_map.json', 'chat_template.json'])(
    '%s',
    (name) => {
      writeFileSync(at(name), `{"a": ${arrays}}`);
      expect(refusal(() => new TextTokenizer(directory, 512)).message).toMatch(
        /nests JSON more than 64 deep/,
      );
    },
  );

  it('an index', () => {
    rmSync(at('model.safetensors'));
    writeFileSync(at('model.safetensors.index.json'), `{"weight_map": ${arrays}}`);
    refused(/nests JSON/);
  });

  it('a header of safetensors: deep, of many keys, sparse, and larger than its file', () => {
    const write = (header: string | Buffer, says = header.length): void =>
      writeFileSync(at('model.safetensors'), Buffer.concat([u64Of(says), Buffer.from(header)]));
    write(`{"a": ${arrays}}`);
    refused(/nests JSON/);
    write(`{${'"":0,'.repeat(1_100_000)}"":0}`);
    refused(/more than 1000000 values/);
    write('{}', 99_000_000);
    truncateSync(at('model.safetensors'), 99_000_008);
    refused(/header has 99000000 bytes, more than/);
    write('{}', 2 ** 60);
    refused(/header has 115292150460684\d+ bytes, but the file has/);
  });

  it('a GGUF header: deep and long arrays, many values, texts longer than the file', () => {
    const text = (value: string): Buffer => Buffer.concat([u64Of(value.length), Buffer.from(value)]);
    const u32 = (value: number): Buffer => Buffer.from(Uint32Array.of(value).buffer);
    const head = (tensors: number, values: number): Buffer =>
      Buffer.concat([Buffer.from('GGUF'), u32(3), u64Of(tensors), u64Of(values)]);
    const open = (bytes: Buffer, size = bytes.length): string => {
      writeFileSync(at('x.gguf'), bytes);
      truncateSync(at('x.gguf'), size);
      return refusal(() => new GgufFile(at('x.gguf'))).message;
    };
    const nested = Array.from({ length: 100_000 }, () => Buffer.concat([u32(9), u64Of(1)]));
    expect(open(Buffer.concat([head(0, 1), text('a'), u32(9), ...nested]))).toMatch(
      /nests arrays more than 4/,
    );
    const long = Buffer.concat([head(0, 1), text('a'), u32(9), u32(0), u64Of(10_000_000)]);
    expect(open(long, 20_000_000)).toMatch(/count of 10000000 elements of an array/);
    const some = Buffer.concat([text('a'), u32(9), u32(4), u64Of(4_000_000)]);
    expect(open(Buffer.concat([head(0, 1), some]))).toMatch(/ends within its header/);
    expect(open(head(10_000_000, 0), 2 ** 30)).toMatch(/count of 10000000 tensors/);
    expect(open(head(0, 10_000_000), 2 ** 30)).toMatch(/count of 10000000 metadata values/);
    expect(open(Buffer.concat([head(0, 1), u64Of(2 ** 27)]))).toMatch(/ends within its header/);
  });

  it('1 TiB of weights that 1 KB claims', () => {
    change('config.json', {
      vocab_size: 4_194_304,
      hidden_size: 65_536,
      num_attention_heads: 512,
      num_key_value_heads: 512,
      head_dim: 128,
    });
    const bytes = 2 * 4_194_304 * 65_536;
    const entry = { dtype: 'BF16', shape: [4_194_304, 65_536], data_offsets: [0, bytes] };
    const header = Buffer.from(JSON.stringify({ 'model.embed_tokens.weight': entry }));
    const write = (name: string): void =>
      writeFileSync(at(name), Buffer.concat([u64Of(header.length), header]));
    write('model.safetensors');
    refused(/ends at byte/);
    truncateSync(at('model.safetensors'), 8 + header.length + bytes);
    refused(/takes 1099511627776 bytes as f32/);
    expect(refusal(() => new SafetensorsFile(at('config.json'))).message).toMatch(/header/);
  });

  it('token ids beyond the model, in each place that gives one', () => {
    const tokenizer = json('tokenizer.json');
    const model = tokenizer.model as { vocab: Record<string, number> };
    const refusedWith = (fields: object, words: RegExp): void => {
      writeFileSync(at('tokenizer.json'), JSON.stringify({ ...tokenizer, ...fields }));
      expect(refusal(() => new TextTokenizer(directory, 512)).message).toMatch(words);
    };
    for (const id of [4_000_000_000, 2 ** 52, 512]) {
      refusedWith({ model: { ...model, vocab: { ...model.vocab, more: id } } }, /"more" the id/);
      refusedWith({ added_tokens: [{ id, content: 'more', special: true }] }, /"more" the id/);
    }
    for (const id of [-1, 1.5, '3', null]) {
      refusedWith({ model: { ...model, vocab: { ...model.vocab, more: id } } }, /"more" the id/);
    }
    writeFileSync(at('tokenizer.json'), JSON.stringify(tokenizer));
    change('tokenizer_config.json', { added_tokens_decoder: { 4000000000: { content: 'more' } } });
    expect(refusal(() => new TextTokenizer(directory, 512)).message).toMatch(/"more" the id 4000000000/);
  });

  it('a tokenizer whose expression backtracks for ever', () => {
    for (const Regex of ['(a+)+$', '(a|aa)+$', '(\\s*)*b', '([0-9]+)*x']) {
      const split = { type: 'Split', pattern: { Regex }, behavior: 'Isolated', invert: false };
      writeFileSync(
        at('tokenizer.json'),
        JSON.stringify({ ...json('tokenizer.json'), pre_tokenizer: split }),
      );
      expect(refusal(() => new TextTokenizer(directory, 512)).message).toMatch(
        /an expression of it backtracks/,
      );
    }
  });

  it.each<readonly [string, string, object]>([
    ['a replacement', 'normalizer', { type: 'Replace', pattern: { String: 'l' }, content: 'll' }],
    [
      'a replacement by an expression',
      'normalizer',
      { type: 'Replace', pattern: { Regex: 'l' }, content: 'll' },
    ],
    ['one that looks ahead', 'normalizer', { type: 'Replace', pattern: { Regex: '(?=l)' }, content: 'l' }],
    ['one between all characters', 'normalizer', { type: 'Replace', pattern: { String: '' }, content: 'l' }],
    ['a replacement of parts', 'pre_tokenizer', { type: 'Replace', pattern: { String: 'l' }, content: 'll' }],
    [
      'bytes as characters',
      'pre_tokenizer',
      { type: 'ByteLevel', add_prefix_space: false, use_regex: false },
    ],
    ['spaces as marks', 'pre_tokenizer', { type: 'Metaspace', replacement: '  ', prepend_scheme: 'never' }],
    ['a replacement of tokens', 'decoder', { type: 'Replace', pattern: { String: 'l' }, content: 'll' }],
    ['an end of words that is empty', 'decoder', { type: 'BPEDecoder', suffix: '' }],
  ])('a tokenizer that doubles a text forty times: %s', (_, part, step) => {
    const names = { normalizer: 'normalizers', pre_tokenizer: 'pretokenizers', decoder: 'decoders' };
    const repeated = (times: number): object => ({
      type: 'Sequence',
      [names[part as keyof typeof names]]: new Array(times).fill(step),
    });
    const write = (value: object): void =>
      writeFileSync(at('tokenizer.json'), JSON.stringify({ ...json('tokenizer.json'), [part]: value }));
    for (const value of [
      repeated(40),
      { type: 'Sequence', [names[part as keyof typeof names]]: [repeated(40)] },
    ]) {
      write(value);
      expect(refusal(() => new TextTokenizer(directory, 512)).message).toMatch(
        /makes up to .* times a text of it/,
      );
    }
    write(repeated(1));
    expect(new TextTokenizer(directory, 512).encode('hello', false).length).toBeGreaterThan(0);
  });

  it('a pipe that nothing writes to', () => {
    rmSync(at('model.safetensors'));
    execFileSync('mkfifo', [at('model.safetensors')]);
    refused(/must be a regular file/);
    rmSync(at('config.json'));
    execFileSync('mkfifo', [at('config.json')]);
    refused(/must be a regular file/);
  });
});
