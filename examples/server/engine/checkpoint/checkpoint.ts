/**
 * A model directory: `config.json`, and weights in `model.safetensors`, in several files behind
 * `model.safetensors.index.json`, or in one `.gguf`. Every tensor that the model needs is looked for, and its
 * shape checked, before anything is read.
 */

import fs from 'node:fs';
import nodePath from 'node:path';
import { GgufFile } from './gguf.ts';
import { requireSameModel } from './ggufModel.ts';
import { type ModelConfig, readModelConfig } from './modelConfig.ts';
import { SafetensorsFile } from './safetensors.ts';
import { ShardedTensors } from './shardedTensors.ts';
import { checkpointError, elementsOf, type StoredTensors, type TensorSource } from './tensorSource.ts';

export interface Checkpoint {
  readonly config: ModelConfig;
  readonly tensors: TensorSource;
}

/** @throws TKV_IO, TKV_INPUT for a model that is not there, not whole or not supported */
export function openCheckpoint(directory: string): Checkpoint {
  const config = readModelConfig(nodePath.join(directory, 'config.json'));
  const adapter = nodePath.join(directory, 'adapter_config.json');
  if (fs.existsSync(adapter)) {
    throw checkpointError(
      adapter,
      'names an adapter, which is not applied',
      'Merge it into the weights first.',
    );
  }
  const tensors = openTensors(directory, config);
  try {
    requireTensors(config, tensors);
  } catch (error) {
    tensors.close();
    throw error;
  }
  return { config, tensors };
}

function openTensors(directory: string, config: ModelConfig): StoredTensors {
  const within = (name: string): string => nodePath.join(directory, name);
  if (fs.existsSync(within('model.safetensors'))) return new SafetensorsFile(within('model.safetensors'));
  const index = within('model.safetensors.index.json');
  if (fs.existsSync(index)) return new ShardedTensors(index);
  const names = fs.readdirSync(directory);
  const ggufs = names.filter((name) => name.toLowerCase().endsWith('.gguf')).sort();
  if (ggufs.length > 1) {
    const problem = `has ${ggufs.length} .gguf files: ${ggufs.slice(0, 8).join(', ')}`;
    throw checkpointError(directory, problem, 'Leave the one that is meant.');
  }
  if (ggufs.length === 1) {
    const file = new GgufFile(within(ggufs[0]));
    try {
      requireSameModel(file, config);
    } catch (error) {
      file.close();
      throw error;
    }
    return file;
  }
  const other = names.find((name) => /\.(bin|pt|pth|safetensors)$/.test(name));
  if (other !== undefined) {
    const problem = `has no weights under a name that is read; ${other} is not read`;
    throw checkpointError(directory, problem, 'Convert them to model.safetensors.');
  }
  const remedy = 'Give a directory with model.safetensors, its index, or one .gguf file.';
  throw checkpointError(directory, 'has no weights', remedy);
}

/** Name and shape of every tensor that a model of this shape has. */
export function tensorShapes(config: ModelConfig): Map<string, readonly number[]> {
  const { hidden, heads, kvHeads, headDim, ffn, vocabulary } = config;
  const shapes = new Map<string, readonly number[]>([
    ['model.embed_tokens.weight', [vocabulary, hidden]],
    ['model.norm.weight', [hidden]],
  ]);
  if (!config.tied) shapes.set('lm_head.weight', [vocabulary, hidden]);
  for (let layer = 0; layer < config.layers; layer++) {
    const of = (part: string): string => `model.layers.${layer}.${part}.weight`;
    shapes.set(of('input_layernorm'), [hidden]);
    shapes.set(of('self_attn.q_proj'), [heads * headDim, hidden]);
    shapes.set(of('self_attn.k_proj'), [kvHeads * headDim, hidden]);
    shapes.set(of('self_attn.v_proj'), [kvHeads * headDim, hidden]);
    shapes.set(of('self_attn.o_proj'), [hidden, heads * headDim]);
    shapes.set(of('post_attention_layernorm'), [hidden]);
    shapes.set(of('mlp.gate_proj'), [ffn, hidden]);
    shapes.set(of('mlp.up_proj'), [ffn, hidden]);
    shapes.set(of('mlp.down_proj'), [hidden, ffn]);
  }
  return shapes;
}

/** A buffer of the device holds no more, and neither does an array of the host. */
const tensorBytesMax = 2 ** 33;

function requireTensors(config: ModelConfig, tensors: StoredTensors): void {
  for (const [name, expected] of tensorShapes(config)) {
    const shape = tensors.shape(name);
    if (shape === undefined) {
      const remedy = 'Fetch the whole model, or correct config.json.';
      throw checkpointError(tensors.path, `has no tensor ${name}`, remedy, name);
    }
    if (shape.length !== expected.length || shape.some((size, i) => size !== expected[i])) {
      const problem = `tensor ${name} has the shape [${shape.join(', ')}], not [${expected.join(', ')}]`;
      throw checkpointError(tensors.path, problem, 'Give the config.json of these weights.', name);
    }
    tensors.requireReadable(name);
    const bytes = elementsOf(shape) * 4;
    if (bytes > tensorBytesMax) {
      const problem = `tensor ${name} takes ${bytes} bytes as f32, more than ${tensorBytesMax}`;
      throw checkpointError(tensors.path, problem, 'Give a smaller model.', name);
    }
  }
}
