/**
 * Which weights a model has, by the content of its ONNX files.
 *
 * A hash over gigabytes takes seconds, so it is kept beside the file (`model.onnx.sha256.json`) with what the file
 * system says of the file: size, inode, and times of its last changes in nanoseconds. If any of them differs, the
 * content is hashed again. A file that changed within the last two seconds before it was hashed is hashed again next time,
 * since one tick of a coarse clock can hide a second change. What is kept is a memory of a hash and decides nothing: a
 * key has the hash alone.
 */

import { createHash } from 'node:crypto';
import fs from 'node:fs';
import path from 'node:path';
import { hashFile } from '../../files/inputs.ts';
import { writeText } from '../../files/results.ts';
import { TierKVError } from '../../runtime/errors.ts';
import { described } from '../../runtime/options.ts';

/** How transformers.js ends the names of files, by dtype. */
const suffixes: Readonly<Record<string, string>> = {
  fp32: '',
  fp16: '_fp16',
  int8: '_int8',
  uint8: '_uint8',
  q8: '_quantized',
  q4: '_q4',
  q2: '_q2',
  q1: '_q1',
  q4f16: '_q4f16',
  q2f16: '_q2f16',
  q1f16: '_q1f16',
  bnb4: '_bnb4',
};

/** Names of a decoder's file, in the order in which they are looked for. */
const decoderNames = ['model', 'decoder_model_merged'];

function fault(problem: string, facts: { path?: string; cause?: unknown } = {}): TierKVError {
  return new TierKVError(
    'TKV_CONFIG',
    `weights ${problem}. Name the directory of the model, or its ONNX files with their files of data.`,
    { field: 'weights', ...facts },
  );
}

/**
 * The files that hold a model's weights: those named, or those of a directory with the dtype.
 * @throws TKV_CONFIG where one does not exist, and for a directory without them
 */
export function weightFiles(weights: string | readonly string[], dtype: string | undefined): string[] {
  const named = typeof weights === 'string' ? [weights] : weights;
  const isList = Array.isArray(named) && named.length > 0;
  if (!isList || named.some((each) => typeof each !== 'string' || each === '')) {
    throw fault(`must be a path or a list of paths, and it is ${described(weights)}`);
  }
  return named.flatMap((name) => {
    const stat = fs.statSync(name, { throwIfNoEntry: false });
    if (stat === undefined) throw fault(`names ${name}, which does not exist`, { path: name });
    return stat.isDirectory() ? filesOfDirectory(name, dtype) : [name];
  });
}

function filesOfDirectory(directory: string, dtype: string | undefined): string[] {
  const suffix = suffixes[dtype ?? 'fp32'];
  if (suffix === undefined) throw fault(`is a directory, and files of dtype ${dtype} are not known`);
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
  throw fault(`names ${directory}, which has none of ${looked}`, { path: directory });
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
    throw fault(`cannot be read: ${cause instanceof Error ? cause.message : described(cause)}`, {
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

// All that determines the KV besides tokens and tenant.

export interface IdentityParts {
  readonly weights: readonly string[];
  readonly dtype: string | undefined;
  readonly device: string | undefined;
  readonly revision: string | undefined;
  /** The model's configuration: rope settings and all else. */
  readonly config: object;
  /** Versions of what computes. */
  readonly engine: string;
}

/** 32 bytes that differ wherever one part does. */
export function identityOf(parts: IdentityParts, notice?: (line: string) => void): Uint8Array {
  const hash = createHash('sha256');
  const part = (name: string, value: string): void => {
    hash.update(`${name} ${Buffer.byteLength(value)}\n${value}\n`);
  };
  part('form', 'tierkv transformers 1');
  for (const file of parts.weights) part('weights', contentHash(file, notice));
  part('dtype', parts.dtype ?? '');
  part('device', parts.device ?? '');
  part('revision', parts.revision ?? '');
  part('config', canonical(parts.config));
  part('engine', parts.engine);
  return hash.digest();
}

/** JSON with the names of each object in order. Functions and undefined values are left out. */
function canonical(value: unknown): string {
  return (
    JSON.stringify(value, (_, item: unknown) =>
      typeof item === 'object' && item !== null && !Array.isArray(item)
        ? Object.fromEntries(Object.entries(item).sort(([a], [b]) => (a < b ? -1 : 1)))
        : item,
    ) ?? ''
  );
}
