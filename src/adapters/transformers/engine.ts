/// <reference types="@webgpu/types" preserve="true" />

/**
 * The part of transformers.js that is used, as types of its shape: a program that never loads the package needs none of
 * it, and the package's own classes fit (`test/adapters` holds that against the real types).
 */

import { described, TierKVError } from '../../runtime/errors.ts';

/** A tensor of transformers.js. */
export interface EngineTensor {
  readonly type: string;
  readonly dims: readonly number[];
  /** `cpu`, `gpu-buffer`, ... */
  readonly location: string;
  readonly data: unknown;
  readonly ort_tensor?: OrtTensor | undefined;
  dispose(): void;
}

/** The tensor of onnxruntime inside. */
interface OrtTensor {
  /** Copies it to host memory, where it lies from then on. @param releaseData gives its buffer back */
  getData(releaseData?: boolean): Promise<unknown>;
  /** In a page a GPUBuffer; in Node an opaque handle. Throws for a tensor that lies elsewhere. */
  readonly gpuBuffer?: unknown;
}

/** `DynamicCache`: tensors by name, replaced in place by each step. */
export interface EngineCache {
  get_seq_length(): number;
  update(entries: Record<string, EngineTensor>): void;
  dispose(): Promise<void>;
}

/** One input of a session. Axes of any size have a name. */
export interface SessionInput {
  readonly name: string;
  readonly type?: string;
  readonly shape?: readonly (number | string)[];
}

export interface EngineSession {
  readonly inputMetadata: readonly SessionInput[];
  /** The dtype of the files and the device, as transformers.js chose them. */
  readonly config?: { readonly dtype?: string; readonly device?: string };
}

/** A model of transformers.js: `AutoModelForCausalLM.from_pretrained(...)`. */
export interface DecoderModel {
  readonly config: object;
  readonly sessions: Readonly<Record<string, unknown>>;
  generate(options: never): Promise<unknown>;
}

/** The module itself. */
export interface EngineModule {
  readonly Tensor: new (type: never, data: never, dims: number[]) => EngineTensor;
  readonly DynamicCache: new (entries?: never) => EngineCache;
  readonly env: object;
}

/** @throws TKV_CONFIG where the package is missing */
export async function loadEngine(given?: EngineModule): Promise<EngineModule> {
  if (given !== undefined) {
    const names = ['Tensor', 'DynamicCache', 'env'] as const;
    const missing = names.find((name) => (given as EngineModule | null)?.[name] === undefined);
    if (missing === undefined) return given;
    throw new TierKVError(
      'TKV_CONFIG',
      `transformers has no ${missing}. Pass the module: import * as transformers from '@huggingface/transformers'.`,
      { field: 'transformers' },
    );
  }
  try {
    return await import('@huggingface/transformers');
  } catch (cause) {
    throw new TierKVError(
      'TKV_CONFIG',
      'tierkv/transformers needs the package @huggingface/transformers, which cannot be loaded: ' +
        `${cause instanceof Error ? cause.message : described(cause)}. ` +
        'Install it: npm install @huggingface/transformers.',
      { field: 'transformers', cause },
    );
  }
}

/** The device on which sessions of a page run; undefined in Node, and before the first session on WebGPU. */
export async function engineDevice({ env }: EngineModule): Promise<GPUDevice | undefined> {
  const { backends } = env as {
    readonly backends?: { readonly onnx?: { readonly webgpu?: { readonly device?: unknown } } };
  };
  const device = (await backends?.onnx?.webgpu?.device) as GPUDevice | undefined;
  return typeof device?.createBuffer === 'function' ? device : undefined;
}

/** The buffer of a tensor that lies on a device of this page; undefined for every other tensor. */
export function bufferOf({ location, ort_tensor }: EngineTensor): GPUBuffer | undefined {
  if (location !== 'gpu-buffer') return undefined;
  const buffer = ort_tensor?.gpuBuffer as GPUBuffer | undefined;
  return typeof buffer?.mapAsync === 'function' ? buffer : undefined;
}

/**
 * A tensor over a buffer of the engine's device, which is destroyed with the tensor.
 * @param download gives the bytes as the array that the engine has for the type
 */
export function tensorOver(
  engine: EngineModule,
  buffer: GPUBuffer,
  { type, dims, download }: { readonly type: string; readonly dims: number[]; download(): Promise<unknown> },
): EngineTensor {
  const tensor = new engine.Tensor('float32' as never, new Float32Array(0) as never, [0]);
  // the package's types hide the tensor of onnxruntime that each of its tensors holds
  const { fromGpuBuffer } = (
    tensor as unknown as {
      readonly ort_tensor: { readonly constructor: { fromGpuBuffer(of: GPUBuffer, as: object): OrtTensor } };
    }
  ).ort_tensor.constructor;
  // the package's own class makes no tensor over a buffer, but takes one of onnxruntime's
  const inside = fromGpuBuffer(buffer, { dataType: type, dims, download, dispose: () => buffer.destroy() });
  return Object.assign(tensor, { ort_tensor: inside });
}

/** The tensors of a cache object, by name. */
export function entriesOf(cache: EngineCache): Record<string, EngineTensor> {
  // its properties are the tensors, by names that its type does not know
  return { ...(cache as unknown as Record<string, EngineTensor>) };
}

export function isCache(value: unknown): value is EngineCache {
  if (typeof value !== 'object' || value === null) return false;
  const { get_seq_length: length, update } = value as Partial<EngineCache>;
  return typeof length === 'function' && typeof update === 'function';
}
