/** Several files as one source: an index names the file of each tensor. */

import nodePath from 'node:path';
import { jsonBounds, readJsonObject } from './jsonFiles.ts';
import { SafetensorsFile } from './safetensors.ts';
import { checkpointError, type StoredTensors } from './tensorSource.ts';

export class ShardedTensors implements StoredTensors {
  readonly path: string;
  readonly #files: ReadonlyMap<string, SafetensorsFile>;
  readonly #fileOf: ReadonlyMap<string, SafetensorsFile>;

  /** @throws TKV_INPUT for an index that names files outside its directory, or tensors that a file has not */
  constructor(indexPath: string) {
    this.path = indexPath;
    const names = weightMap(indexPath);
    const files = new Map<string, SafetensorsFile>();
    const fileOf = new Map<string, SafetensorsFile>();
    this.#files = files;
    this.#fileOf = fileOf;
    try {
      for (const [tensor, name] of names) {
        const file = files.get(name) ?? new SafetensorsFile(nodePath.join(nodePath.dirname(indexPath), name));
        files.set(name, file);
        if (file.shape(tensor) === undefined) {
          throw checkpointError(
            indexPath,
            `${name} has no tensor ${tensor}`,
            'Fetch the model again.',
            tensor,
          );
        }
        fileOf.set(tensor, file);
      }
    } catch (error) {
      this.close();
      throw error;
    }
  }

  get names(): readonly string[] {
    return [...this.#fileOf.keys()];
  }

  shape(name: string): readonly number[] | undefined {
    return this.#fileOf.get(name)?.shape(name);
  }

  requireReadable(name: string): void {
    this.#fileWith(name).requireReadable(name);
  }

  read(name: string): Float32Array {
    return this.#fileWith(name).read(name);
  }

  #fileWith(name: string): SafetensorsFile {
    const file = this.#fileOf.get(name);
    if (file !== undefined) return file;
    throw checkpointError(this.path, `has no tensor ${name}`, 'Fetch it again.', name);
  }

  close(): void {
    for (const file of this.#files.values()) file.close();
  }
}

function weightMap(indexPath: string): [tensor: string, file: string][] {
  const { weight_map: map } = readJsonObject(indexPath, jsonBounds.header, 'Fetch the model again.');
  if (typeof map !== 'object' || map === null || Array.isArray(map)) {
    throw checkpointError(indexPath, 'has no weight_map', 'Fetch the model again.', 'weight_map');
  }
  return Object.entries(map).map(([tensor, file]) => {
    if (typeof file === 'string' && file === nodePath.basename(file) && file !== '' && file !== '..') {
      return [tensor, file];
    }
    const problem = `names ${String(file)} as the file of ${tensor}`;
    throw checkpointError(
      indexPath,
      problem,
      'Files lie beside the index: name them without a folder.',
      tensor,
    );
  });
}
