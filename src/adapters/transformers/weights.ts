/**
 * Which weights a model has, by the content of its ONNX files.
 *
 * A hash over gigabytes takes seconds, so it is kept beside the file (`model.onnx.sha256.json`) with what the file
 * system says of the file: size, inode, and times of its last changes in nanoseconds. If any of them differs, the
 * content is hashed again. A file that changed within the last two seconds before it was hashed is hashed again next time,
 * since one tick of a coarse clock can hide a second change. What is kept is a memory of a hash and decides nothing: a
 * key has the hash alone.
 */

import fs from 'node:fs';
import path from 'node:path';
import { hashFile } from '../../files/inputs.ts';
import { writeText } from '../../files/results.ts';
import { described } from '../../runtime/options.ts';
import type { EngineModule } from './engine.ts';
import { decoderNames, fileSuffix, weightNames, weightsFault } from './identity.ts';

/**
 * The files that hold a model's weights: those named, or those of a directory with the dtype.
 * @throws TKV_CONFIG where one does not exist, and for a directory without them
 */
export function weightFiles(weights: string | readonly string[], dtype: string | undefined): string[] {
  return weightNames(weights).flatMap((name) => {
    const stat = fs.statSync(name, { throwIfNoEntry: false });
    if (stat === undefined) throw weightsFault(`names ${name}, which does not exist`, { path: name });
    return stat.isDirectory() ? filesOfDirectory(name, dtype) : [name];
  });
}

function filesOfDirectory(directory: string, dtype: string | undefined): string[] {
  const suffix = fileSuffix(dtype);
  for (const folder of [path.join(directory, 'onnx'), directory]) {
    for (const name of decoderNames) {
      const file = path.join(folder, `${name}${suffix}.onnx`);
      if (!fs.existsSync(file)) continue;
      const data = fs
        .readdirSync(folder)
        .filter((each) => each.startsWith(`${name}${suffix}.onnx_data`) && !each.endsWith(memoryEnding));
      return [file, ...data.sort().map((each) => path.join(folder, each))];
    }
  }
  const looked = decoderNames.map((name) => `onnx/${name}${suffix}.onnx`).join(', ');
  throw weightsFault(`names ${directory}, which has none of ${looked}`, { path: directory });
}

export interface HashOptions {
  readonly dtype: string | undefined;
  readonly notice: (line: string) => void;
  /** A page takes a file from where the engine does. */
  readonly engine: EngineModule;
}

/** Hashes of the content of a model's files, in order. @throws TKV_CONFIG as `weightFiles` and `contentHash` */
export async function weightHashes(
  weights: string | readonly string[],
  { dtype, notice }: HashOptions,
): Promise<string[]> {
  return weightFiles(weights, dtype).map((file) => contentHash(file, notice));
}

// What is kept beside a file.

const memoryEnding = '.sha256.json';

/** Nanoseconds for which a file must have been at rest before its hash is kept. */
const restNs = 2_000_000_000n;

interface HashMemory {
  readonly sha256: string;
  /** What the file system said of the file when it was hashed. */
  readonly seen: string;
}

function seenOf(stat: fs.BigIntStats): string {
  return `size=${stat.size} dev=${stat.dev} ino=${stat.ino} mtimeNs=${stat.mtimeNs} ctimeNs=${stat.ctimeNs}`;
}

function readMemory(file: string): HashMemory | undefined {
  try {
    const memory = JSON.parse(fs.readFileSync(file + memoryEnding, 'utf8')) as HashMemory;
    return /^[0-9a-f]{64}$/.test(memory.sha256) && typeof memory.seen === 'string' ? memory : undefined;
  } catch {
    return undefined; // missing, or damaged: the content is hashed
  }
}

/**
 * The SHA-256 of a file's content.
 * @param notice receives a line where the hash cannot be kept
 * @param nowMs the time of day
 * @throws TKV_CONFIG where the file cannot be read, or changes while it is
 */
export function contentHash(
  file: string,
  notice: (line: string) => void = () => {},
  nowMs: number = Date.now(),
): string {
  try {
    const stat = fs.statSync(file, { bigint: true });
    const memory = readMemory(file);
    if (memory?.seen === seenOf(stat)) return memory.sha256;
    const sha256 = hashFile(file);
    const after = fs.statSync(file, { bigint: true });
    if (seenOf(after) !== seenOf(stat)) throw new Error('it changed while it was read');
    const nowNs = BigInt(nowMs) * 1_000_000n;
    if (nowNs - after.ctimeNs > restNs && nowNs - after.mtimeNs > restNs)
      keep(file, { sha256, seen: seenOf(after) }, notice);
    return sha256;
  } catch (cause) {
    throw weightsFault(`cannot be read: ${cause instanceof Error ? cause.message : described(cause)}`, {
      path: file,
      cause,
    });
  }
}

function keep(file: string, memory: HashMemory, notice: (line: string) => void): void {
  try {
    writeText(file + memoryEnding, `${JSON.stringify(memory)}\n`);
  } catch (error) {
    const why = error instanceof Error ? error.message : described(error);
    notice(`The hash of ${file} is not kept, so that every start reads the file: ${why}`);
  }
}
