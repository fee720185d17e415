/**
 * What a model is: a hash of all that determines its KV and its tokens. It is made of bytes, never of the
 * name, the size or the time of a file, so that a copy of a model is the same model, and a changed one never
 * is.
 *
 * Weights enter as the values that go to the device, tensor by tensor: how they are distributed over files,
 * and how the files are named, says nothing. They are read again for each new device, and compared with the
 * hash then.
 */

import { createHash, type Hash } from 'node:crypto';
import fs from 'node:fs';
import nodePath from 'node:path';
import type { Checkpoint } from './checkpoint.ts';
import { tensorShapes } from './checkpoint.ts';
import { checkpointError, type TensorSource } from './tensorSource.ts';

/** Files beside the weights that say what the model computes, or which tokens a text is. */
const namesThatCount: readonly RegExp[] = [
  /^(config|generation_config|preprocessor_config)\.json$/,
  /^(tokenizer|tokenizer_config|special_tokens_map|added_tokens|vocab|chat_template)\.json$/,
  /^(tokenizer\.model|vocab\.txt|merges\.txt)$/,
  /\.jinja$/,
  /^adapter_config\.json$/,
  /^adapter_model\./,
];
/** Folders in which all files count. */
const foldersThatCount: readonly string[] = ['additional_chat_templates'];

/**
 * @returns the identity, and the checkpoint with tensors that are compared with it whenever they are read
 * again
 * @throws TKV_IO, TKV_INPUT for a file that cannot be read
 */
export function identified(
  directory: string,
  checkpoint: Checkpoint,
): { checkpoint: Checkpoint; identity: string } {
  const hash = createHash('sha256');
  for (const name of filesThatCount(directory)) {
    part(hash, `file ${name.split(nodePath.sep).join('/')}`, fs.readFileSync(nodePath.join(directory, name)));
  }
  const { config, tensors } = checkpoint;
  const values = Object.entries(config).sort(([a], [b]) => (a < b ? -1 : 1));
  part(hash, 'config', Buffer.from(JSON.stringify(values)));
  const digests = new Map<string, string>();
  for (const name of tensorShapes(config).keys()) {
    const digest = digestOf(tensors.read(name));
    digests.set(name, digest);
    part(hash, `tensor ${name}`, Buffer.from(digest));
  }
  const known = { config, tensors: new KnownTensors(tensors, digests) };
  return { checkpoint: known, identity: `sha256:${hash.digest('hex')}` };
}

function filesThatCount(directory: string): string[] {
  const names = fs.readdirSync(directory).filter((name) => namesThatCount.some((each) => each.test(name)));
  for (const folder of foldersThatCount) {
    const path = nodePath.join(directory, folder);
    if (!fs.existsSync(path)) continue;
    for (const name of fs.readdirSync(path)) names.push(nodePath.join(folder, name));
  }
  return names.filter((name) => fs.statSync(nodePath.join(directory, name)).isFile()).sort();
}

/** Each part with its length, so that no two lists of parts come to the same bytes. */
function part(hash: Hash, name: string, bytes: Uint8Array): void {
  hash.update(`${Buffer.byteLength(name)} ${name} ${bytes.length}\n`).update(bytes);
}

function digestOf(values: Float32Array): string {
  const hash = createHash('sha256');
  const bytes = new Uint8Array(values.buffer, values.byteOffset, values.byteLength);
  const most = 2 ** 30; // an update takes less than 2 GiB
  for (let at = 0; at < bytes.length; at += most) hash.update(bytes.subarray(at, at + most));
  return hash.digest('hex');
}

/**
 * Tensors whose files may be changed while a server runs: what is read again has to be what was read first.
 */
class KnownTensors implements TensorSource {
  readonly #tensors: TensorSource;
  readonly #digests: ReadonlyMap<string, string>;

  constructor(tensors: TensorSource, digests: ReadonlyMap<string, string>) {
    this.#tensors = tensors;
    this.#digests = digests;
  }

  get path(): string {
    return this.#tensors.path;
  }

  get names(): readonly string[] {
    return this.#tensors.names;
  }

  shape(name: string): readonly number[] | undefined {
    return this.#tensors.shape(name);
  }

  read(name: string): Float32Array {
    const values = this.#tensors.read(name);
    const digest = this.#digests.get(name);
    if (digest === undefined || digest === digestOf(values)) return values;
    const problem = `tensor ${name} has other values than at the start`;
    throw checkpointError(this.path, problem, 'Restart the server, and leave its files as they are.', name);
  }

  close(): void {
    this.#tensors.close();
  }
}
