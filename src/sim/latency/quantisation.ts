/**
 * In which precision a checkpoint keeps weights and KV, by what its files say: the section `quantization_config` of
 * `config.json`, or `hf_quant_config.json` beside it, as ModelOpt writes it. Without either, by the name's custom (`w4a16`,
 * `fp8`). An engine that quantises while it loads is asked for by `quantised`.
 */

import { configError } from '../../runtime/errors.ts';
import type { SpecNode } from '../description/fields.ts';

/** How weights lie in memory, as tables of kernels name it; 16-bit floats, FP8 by tensor or by blocks, 4 bits. */
export type WeightFormat = 'bfloat16' | 'fp8' | 'fp8_block' | 'nvfp4' | 'mxfp4' | 'int8' | 'int4';

/** A model as quantisation makes it. */
export interface Quantisation {
  /** 16-bit floats, or FP8 where a weight has a byte, unless said. */
  readonly weightFormat?: WeightFormat;
  /** Bytes of a weight by its bits alone. */
  readonly weightBytes: number;
  /** With its share of scales and zero points, where that is more. */
  readonly storedWeightBytes?: number;
  /** Multiples to which kernels pad the hidden size and a GPU's share of an expert's width. */
  readonly expertPadding?: { readonly hidden: number; readonly width: number };
  /** Whether attention stays in the precision of activations. */
  readonly keepsAttention: boolean;
  /** Bytes of a KV element, where the checkpoint was made for another precision than activations have. */
  readonly kvElementBytes?: number;
}

const maxBits = 64;
/** Weights that share a scale, unless a file says how many. */
const usualGroup = 128;
/** NVFP4: 16 weights of 4 bits share a scale of 8. */
const nvfp4Bits = 4.5;
/** MXFP4: 32 weights of 4 bits share an exponent of 8. */
const mxfp4Bits = 4.25;

const none = (activationBytes: number): Quantisation => ({
  weightFormat: 'bfloat16',
  weightBytes: activationBytes,
  keepsAttention: false,
});

const bitsOfWord: Readonly<Record<string, number>> = {
  fp8: 8,
  int8: 8,
  nvfp4: nvfp4Bits,
  mxfp4: mxfp4Bits,
  awq: 4,
  gptq: 4,
  int4: 4,
};

/** Bits by the naming custom of quantised checkpoints: `w4a16`, `fp8`, `NVFP4`, `AWQ`. 0 when the name says nothing. */
function bitsByName(name: string): number {
  const scheme = /(?:^|[.\-_/])w(\d+)a\d+(?:$|[.\-_])/i.exec(name);
  if (scheme !== null && Number(scheme[1]) > 0 && Number(scheme[1]) <= maxBits) return Number(scheme[1]);
  const word = /(?:^|[.\-_/])(fp8|nvfp4|mxfp4|awq|gptq|int4|int8)(?:$|[.\-_])/i.exec(name)?.[1].toLowerCase();
  return word === undefined ? 0 : bitsOfWord[word];
}

/** The first group of `compressed-tensors` whose weights say their bits, in the order of names. */
function weightsOf(
  quantization: SpecNode,
): { readonly weights: SpecNode; readonly bits: number } | undefined {
  const groups = quantization.section('config_groups');
  for (const name of groups?.keys().sort() ?? []) {
    const weights = groups!.section(name)?.section('weights');
    const bits = weights?.optionalNumber('num_bits', { min: 0, max: maxBits }) ?? 0;
    if (weights !== undefined && bits > 0) return { weights, bits };
  }
  return undefined;
}

/** 4 or 8 bits of bitsandbytes; 0 where it says neither. */
function bitsAndBytes(quantization: SpecNode): number {
  const flag = (key: string): boolean =>
    (quantization.flag(`load_in_${key}`) ?? quantization.flag(`_load_in_${key}`)) === true;
  return flag('4bit') ? 4 : flag('8bit') ? 8 : 0;
}

/** Bits of a weight and their form, by method and algorithm; undefined where the section says neither. */
function weightsBy(
  quantization: SpecNode,
): { readonly bits: number; readonly format: WeightFormat } | undefined {
  const method = quantization.text('quant_method').toLowerCase();
  const algorithm = quantization.text('quant_algo').toUpperCase();
  const format = quantization.text('format');
  const given = Number(quantization.text('bits', '0'));
  if (given > maxBits) throw quantization.error('bits', `is ${given}`, `Set it to at most ${maxBits}`);
  const integer = (bits: number): WeightFormat => (bits <= 4 ? 'int4' : 'int8');
  if (given > 0) return { bits: given, format: method === 'mxfp4' ? 'mxfp4' : integer(given) };
  if (method === 'mxfp4' || format.startsWith('mxfp4')) return { bits: mxfp4Bits, format: 'mxfp4' };
  const isBlock =
    quantization.says('weight_block_size') ||
    algorithm.startsWith('FP8_PB') ||
    algorithm.startsWith('FP8_BLOCK');
  if (algorithm.includes('NVFP4')) return { bits: nvfp4Bits, format: 'nvfp4' };
  if (algorithm.startsWith('W4A16') || algorithm.startsWith('W4A8')) return { bits: 4, format: 'int4' };
  if (method === 'fp8' || method === 'fbgemm_fp8' || algorithm.startsWith('FP8'))
    return { bits: 8, format: isBlock ? 'fp8_block' : 'fp8' };
  if (method === 'experts_int8') return { bits: 8, format: 'int8' };
  if (method === 'bitsandbytes') {
    const bits = bitsAndBytes(quantization);
    return bits > 0 ? { bits, format: integer(bits) } : undefined;
  }
  const group = weightsOf(quantization);
  if (group === undefined) return undefined;
  const { weights, bits } = group;
  if (weights.text('type') !== 'float') return { bits, format: integer(bits) };
  if (bits >= 8) return { bits, format: weights.text('strategy') === 'block' ? 'fp8_block' : 'fp8' };
  return method === 'modelopt' ? { bits: nvfp4Bits, format: 'nvfp4' } : { bits, format: 'nvfp4' };
}

/** Bytes that scales and zero points of groups add to a weight. */
function groupBytes(quantization: SpecNode): number {
  const method = quantization.text('quant_method').toLowerCase();
  if (['gptq', 'awq', 'auto-round', 'auto_round'].includes(method)) {
    const bits = Number(quantization.text('bits', '0'));
    const size = Number(quantization.text('group_size', String(usualGroup)));
    // -1: one group a column, whose scales are nothing beside it
    return bits > 0 && size > 0 ? (2 + bits / 8) / size : 0;
  }
  const format = quantization.text('format');
  if (format.startsWith('nvfp4')) return (nvfp4Bits - 4) / 8;
  if (format === 'pack-quantized') {
    const size = weightsOf(quantization)?.weights.optionalInteger('group_size', { min: -1, max: 1e6 });
    return size === undefined ? 2 / usualGroup : size > 0 ? 2 / size : 0;
  }
  // 4 bits of bitsandbytes: 64 weights share a scale of 32 bits
  return method === 'bitsandbytes' && bitsAndBytes(quantization) === 4 ? 4 / 64 : 0;
}

/** Keys of the lists of what was left in 16 bits. */
const leftKeys = ['modules_to_not_convert', 'exclude_modules', 'ignore', 'ignored_layers'] as const;

/** Whether quantisation left attention out: a pattern over the layers, or more than half of them by name. */
function keepsAttention(quantization: SpecNode, layers: number): boolean {
  const left = leftKeys
    .flatMap((key) => quantization.texts(key))
    .filter((name) => name.includes('self_attn'));
  if (left.some((name) => /\*\.?self_attn|\*self_attn/.test(name))) return true;
  const named = new Set(
    left.map((name) => /layers\.(\d+)\./.exec(name)?.[1]).filter((each) => each !== undefined),
  );
  return named.size > layers / 2;
}

/** Bytes of a KV element as vLLM takes them from a checkpoint (`kv_cache_scheme`, `kv_cache_quant_algo`). */
function kvElementBytes(quantization: SpecNode): number | undefined {
  if (quantization.says('kv_cache_scheme') && quantization.bare('kv_cache_scheme') === undefined) {
    const bits = quantization.section('kv_cache_scheme')!.optionalNumber('num_bits', { min: 1, max: 32 });
    if (bits === 8 || bits === 4) return bits / 8;
    const remedy = 'Leave it out where KV is in the precision of activations, or set num_bits to 8 or 4';
    throw quantization.error('kv_cache_scheme', `has num_bits ${bits}, which is not known here`, remedy);
  }
  const key = ['kv_cache_quant_algo', 'kv_cache_scheme'].find((each) => quantization.says(each));
  const algorithm = key === undefined ? '' : quantization.text(key).toUpperCase();
  if (key === undefined || ['', 'NONE', 'NULL', 'AUTO', 'BF16', 'FP16'].includes(algorithm)) return undefined;
  if (algorithm.startsWith('FP8')) return 1;
  if (algorithm === 'NVFP4') return nvfp4Bits / 8;
  throw quantization.error(key, `is "${algorithm}", and must be FP8 or NVFP4`, 'Leave it out for 16 bits');
}

/**
 * @param quantization what the model's files say, where they say anything
 * @param name of the model, which may say bits
 */
export function readQuantisation(
  quantization: SpecNode | undefined,
  name: string,
  layers: number,
  activationBytes: number,
): Quantisation {
  if (quantization === undefined) {
    const bits = bitsByName(name);
    if (bits === 0) return none(activationBytes);
    const four = bits === nvfp4Bits ? 'nvfp4' : bits === mxfp4Bits ? 'mxfp4' : 'int4';
    const weightFormat = bits > 8 ? 'bfloat16' : bits >= 8 ? 'fp8' : four;
    return { weightFormat, weightBytes: bits / 8, keepsAttention: false };
  }
  const kv = kvElementBytes(quantization);
  const ofKv = kv === undefined ? {} : { kvElementBytes: kv };
  const weights = weightsBy(quantization);
  if (weights === undefined)
    return { ...readQuantisation(undefined, name, layers, activationBytes), ...ofKv };
  const weightBytes = weights.bits / 8;
  const more = groupBytes(quantization);
  return {
    weightFormat: weights.format,
    weightBytes,
    ...(more > 0 ? { storedWeightBytes: weightBytes + more } : {}),
    // vLLM's kernels for MXFP4 take hidden sizes in multiples of 256 and widths in multiples of 128
    // (vllm/model_executor/layers/quantization/mxfp4.py, Marlin)
    ...(quantization.text('quant_method').toLowerCase() === 'mxfp4'
      ? { expertPadding: { hidden: 256, width: 128 } }
      : {}),
    keepsAttention: keepsAttention(quantization, layers),
    ...ofKv,
  };
}

export function weightFormatOf(model: Pick<Quantisation, 'weightFormat' | 'weightBytes'>): WeightFormat {
  return (
    model.weightFormat ?? (model.weightBytes > 1 ? 'bfloat16' : model.weightBytes === 1 ? 'fp8' : 'int4')
  );
}

/** Precisions in which an engine quantises a model of 16 bits while it loads it. */
export const loadedFormats = ['fp8'] as const;

/**
 * A model as an engine holds it that quantises while it loads: FP8 with a scale a matrix, of all but embeddings, router and output head.
 * A checkpoint that is in that precision stays as it is.
 * @throws TKV_CONFIG for a checkpoint in another precision than 16 bits
 */
export function quantised<T extends Quantisation & { readonly name: string }>(
  model: T,
  format: (typeof loadedFormats)[number],
): T {
  const own = weightFormatOf(model);
  if (own === 'fp8' || own === 'fp8_block') return model;
  if (own !== 'bfloat16') {
    const problem = `is ${format}, and the weights of ${model.name} are ${own} already`;
    throw configError('quantization', problem, 'Leave it out, or name a checkpoint of 16 bits.');
  }
  return { ...model, weightFormat: format, weightBytes: 1 };
}
