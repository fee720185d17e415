/** The engine's kernels, compiled for one device and one model. */

import { TierKVError } from '../../../../src/index.ts'; // in your project: 'tierkv'
import type { ModelConfig } from '../checkpoint/index.ts';
import { shaderText } from './shaderText.ts';
import { paddedVocabulary } from './weights.ts';

/** Rows that one invocation of a matrix product goes through at a time. */
const tiles = [1, 4, 8] as const;

/** A matrix product in every tile height. */
export type Product = readonly { readonly rows: number; readonly pipeline: GPUComputePipeline }[];

export interface Kernels {
  readonly embed: GPUComputePipeline;
  readonly norm: GPUComputePipeline;
  readonly finalNorm: GPUComputePipeline;
  readonly qkv: Product;
  readonly rope: GPUComputePipeline;
  readonly output: Product;
  readonly gateUp: Product;
  readonly swiglu: GPUComputePipeline;
  readonly down: Product;
  readonly head: Product;
  /** Over K and V of a layer. */
  readonly finiteKv: GPUComputePipeline;
  /** Over what the last layer gives. */
  readonly finiteX: GPUComputePipeline;
}

/** By device and model: engines that share a device compile once. */
const compiled = new WeakMap<GPUDevice, Map<string, Promise<Kernels>>>();

/** @param waitFor as of a `KVRuntime` */
export function compileKernels(
  device: GPUDevice,
  config: ModelConfig,
  waitFor: <T>(start: () => Promise<T>) => Promise<T>,
): Promise<Kernels> {
  let ofDevice = compiled.get(device);
  if (ofDevice === undefined) {
    ofDevice = new Map();
    compiled.set(device, ofDevice);
  }
  const key = JSON.stringify(config);
  let kernels = ofDevice.get(key);
  if (kernels === undefined) {
    kernels = compileAll(device, config, waitFor);
    ofDevice.set(key, kernels);
    const forget = (): boolean => ofDevice.delete(key);
    kernels.catch(forget);
  }
  return kernels;
}

async function compileAll(
  device: GPUDevice,
  config: ModelConfig,
  waitFor: <T>(start: () => Promise<T>) => Promise<T>,
): Promise<Kernels> {
  const { hidden, heads, kvHeads, headDim, ffn, vocabulary, normEpsilon } = config;
  const compile = async (
    name: string,
    constants: Readonly<Record<string, number>>,
    repeats: Readonly<Record<string, number>> = {},
    word = '',
  ): Promise<GPUComputePipeline> => {
    const code = shaderText(name, repeats).replaceAll('TILE', word);
    const module = device.createShaderModule({ label: name, code });
    const compute = { module, constants: { ...constants } };
    try {
      return await waitFor(() => device.createComputePipelineAsync({ label: name, layout: 'auto', compute }));
    } catch (cause) {
      const [why] = (cause instanceof Error ? cause.message : String(cause)).split('\n');
      const message = `The device does not compile the kernel ${name} (${why}). Take another with TIERKV_ADAPTER.`;
      throw new TierKVError('TKV_DEVICE', message, { cause });
    }
  };
  const product = (
    inputs: number,
    outputs: number,
    how: { readonly adds?: boolean; readonly samplesOnly?: boolean } = {},
  ): Promise<Product> => {
    const constants = {
      in4: inputs / 4,
      out4: outputs / 4,
      adds: how.adds ? 1 : 0,
      samplesOnly: how.samplesOnly ? 1 : 0,
    };
    return Promise.all(
      tiles.map(async (rows) => {
        return { rows, pipeline: await compile('matmul', constants, { row: rows }, `${rows}u`) };
      }),
    );
  };
  const headDim4 = headDim / 4;
  const qkv4 = {
    stride4: (heads + 2 * kvHeads) * headDim4,
    first4: heads * headDim4,
    count4: 2 * kvHeads * headDim4,
  };
  const norm = { hidden4: hidden / 4, epsilon: normEpsilon };
  return {
    embed: await compile('embed', { hidden, tableStride: paddedVocabulary(vocabulary) }),
    norm: await compile('rmsNorm', { ...norm, gathers: 0 }),
    finalNorm: await compile('rmsNorm', { ...norm, gathers: 1 }),
    qkv: await product(hidden, (heads + 2 * kvHeads) * headDim),
    rope: await compile('rope', { qHeads: heads, kvHeads, half: headDim / 2 }),
    output: await product(heads * headDim, hidden, { adds: true }),
    gateUp: await product(hidden, 2 * ffn),
    swiglu: await compile('swiglu', { ffn4: ffn / 4 }),
    down: await product(ffn, hidden, { adds: true }),
    head: await product(hidden, paddedVocabulary(vocabulary), { samplesOnly: true }),
    finiteKv: await compile('finite', qkv4),
    finiteX: await compile('finite', { stride4: hidden / 4, first4: 0, count4: hidden / 4 }),
  };
}
