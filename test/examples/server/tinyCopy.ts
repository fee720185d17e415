/** The tiny model in a directory of its own, where a test may change it. */

import { cpSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { tinyModelDirectory } from '../../../examples/server/tinyModel/make.ts';
import { stateDirectory } from './liveServer.ts';

/** It goes with the directories of `removeStateDirectories`. */
export function tinyCopy(): string {
  const directory = stateDirectory();
  cpSync(tinyModelDirectory, directory, { recursive: true });
  return directory;
}

/** Writes one element of a tensor, as the upper half of an f32. */
export function setWeight(directory: string, tensor: string, index: number, bf16: number): void {
  const path = join(directory, 'model.safetensors');
  const bytes = readFileSync(path);
  const headerBytes = Number(bytes.readBigUInt64LE(0));
  const header = JSON.parse(bytes.toString('utf8', 8, 8 + headerBytes));
  bytes.writeUInt16LE(bf16, 8 + headerBytes + header[tensor].data_offsets[0] + 2 * index);
  writeFileSync(path, bytes);
}

/** The head has weights of its own then, at first those of the embedding. */
export function untiedCopy(): string {
  const directory = tinyCopy();
  const configPath = join(directory, 'config.json');
  const config = JSON.parse(readFileSync(configPath, 'utf8'));
  writeFileSync(configPath, JSON.stringify({ ...config, tie_word_embeddings: false }));
  const path = join(directory, 'model.safetensors');
  const bytes = readFileSync(path);
  const headerBytes = Number(bytes.readBigUInt64LE(0));
  const header = JSON.parse(bytes.toString('utf8', 8, 8 + headerBytes));
  const data = bytes.subarray(8 + headerBytes);
  const embedding = header['model.embed_tokens.weight'];
  const table = data.subarray(...(embedding.data_offsets as [number, number]));
  header['lm_head.weight'] = { ...embedding, data_offsets: [data.length, data.length + table.length] };
  const text = Buffer.from(JSON.stringify(header));
  const length = Buffer.alloc(8);
  length.writeBigUInt64LE(BigInt(text.length));
  writeFileSync(path, Buffer.concat([length, text, data, table]));
  return directory;
}
