/**
 * Which weights a model has, by the content of its ONNX files and of every file of data that they name (`onnxFile.ts`), and
 * that the model was loaded from them: a second session over the files computes what the loaded one does (`witness.ts`).
 *
 * A hash over gigabytes takes seconds, and a second session as much memory as the first, so both are kept beside the file
 * (`model.onnx.sha256.json`) with what the file system says of the file: size, inode, and times of its last changes in
 * nanoseconds. If any of them differs, all is done again. A file that changed within the last two seconds before it was
 * hashed is hashed again next time, since one tick of a coarse clock can hide a second change. What is kept is a memory
 * and decides nothing: a key has the hashes alone.
 */

import { createHash } from 'node:crypto';
import fs from 'node:fs';
import path from 'node:path';
import { writeText } from '../../io/files/results.ts';
import { described } from '../../runtime/errors.ts';

import type { DecoderModel, EngineModule } from './engine.ts';
import { decoderNames, fileSuffix, weightNames, weightsFault } from './identity.ts';
import type { ModelShape } from './modelShape.ts';
import { locationParts, OnnxFileReader } from './onnxFile.ts';
import { isSameWitness, sessionOver, type Witness, witnessOf } from './witness.ts';

/** The ONNX files that are named, or the one of a directory, and other files that are named. */
function namedFiles(weights: string | readonly string[], dtype: string | undefined): string[] {
  const files = weightNames(weights).map((name) => {
    const stat = fs.statSync(name, { throwIfNoEntry: false });
    if (stat === undefined) throw weightsFault(`names ${name}, which does not exist`, { path: name });
    return stat.isDirectory() ? fileOfDirectory(name, dtype) : name;
  });
  if (!files.some(isGraph)) throw weightsFault(`names ${files.join(', ')}, and no file that ends in .onnx`);
  return files;
}

function isGraph(file: string): boolean {
  return file.endsWith('.onnx');
}

function fileOfDirectory(directory: string, dtype: string | undefined): string {
  const suffix = fileSuffix(dtype);
  for (const folder of [path.join(directory, 'onnx'), directory]) {
    for (const name of decoderNames) {
      const file = path.join(folder, `${name}${suffix}.onnx`);
      if (fs.existsSync(file)) return file;
    }
  }
  const looked = decoderNames.map((name) => `onnx/${name}${suffix}.onnx`).join(', ');
  throw weightsFault(`names ${directory}, which has none of ${looked}`, { path: directory });
}

/** Content of a file. */
interface FileContent {
  readonly sha256: string;
  /** Files that an ONNX file takes data from. */
  readonly data?: readonly string[] | undefined;
}

interface HashedFile extends FileContent {
  readonly path: string;
}

/**
 * All files that hold a model's weights, by their content: those named, or the one of a directory with the dtype, each followed
 * by the files that it takes data from.
 * @param notice receives a line where a hash cannot be kept
 * @throws TKV_CONFIG where one does not exist, cannot be read or is not an ONNX file, and for a directory without them
 */
export function hashedWeights(
  weights: string | readonly string[],
  dtype: string | undefined,
  notice: (line: string) => void = () => {},
): HashedFile[] {
  const hashed: HashedFile[] = [];
  const add = (file: string): FileContent => {
    const known = hashed.find((each) => each.path === file);
    if (known !== undefined) return known;
    const content = contentOf(file, notice);
    hashed.push({ path: file, ...content });
    return content;
  };
  for (const named of namedFiles(weights, dtype)) {
    const file = path.resolve(named);
    for (const location of add(file).data ?? []) {
      const data = path.join(path.dirname(file), ...partsOf(location, file));
      if (!fs.existsSync(data)) {
        throw weightsFault(`names ${named}, which takes data from ${location}, which is missing`, {
          path: data,
        });
      }
      add(data);
    }
  }
  return hashed;
}

function partsOf(location: string, file: string): string[] {
  try {
    return locationParts(location);
  } catch (cause) {
    throw weightsFault(`cannot be read: ${(cause as Error).message}`, { path: file, cause });
  }
}

export interface WeightsOptions {
  readonly model: DecoderModel;
  readonly shape: ModelShape;
  readonly engine: EngineModule;
  /** Versions of what computes. */
  readonly versions: string;
  readonly notice: (line: string) => void;
}

/**
 * Tells the weights of a model apart: hashes of the content of its files, in order.
 * @throws TKV_CONFIG like `hashedWeights`, and where the model computes with other weights
 */
export async function weightsOf(
  weights: string | readonly string[],
  options: WeightsOptions,
): Promise<string[]> {
  const { dtype } = options.shape.session.config ?? {};
  const files = hashedWeights(weights, dtype, options.notice);
  await requireLoadedFrom(files, options);
  return files.map(({ sha256 }) => sha256);
}

async function requireLoadedFrom(
  files: readonly HashedFile[],
  { model, shape, engine, versions, notice }: WeightsOptions,
): Promise<void> {
  const graphs = files.map((file) => file.path).filter(isGraph);
  if (graphs.length > 1)
    throw weightsFault(`names several ONNX files (${graphs.join(', ')}), and one is served`);
  const [graph] = graphs;
  const facts = [versions, shape.session.config?.device, ...files.map(({ sha256 }) => sha256)];
  const of = createHash('sha256').update(JSON.stringify(facts)).digest('hex');
  const memory = readMemory(graph);
  const known = memory?.witness?.of === of ? Float64Array.from(memory.witness.sums) : undefined;
  const expected = known ?? (await witnessOfFile(graph, { model, shape, engine }));
  if (!isSameWitness(expected, await witnessOf(model, shape, engine))) {
    throw weightsFault(
      `names ${graph}, and the model computes with other weights`,
      { path: graph },
      'Name the files that the model was loaded from, or load it from these.',
    );
  }
  if (known === undefined && memory !== undefined && memory.seen === seenOf(statOf(graph))) {
    keep(graph, { ...memory, witness: { of, sums: [...expected] } }, notice);
  }
}

async function witnessOfFile(
  file: string,
  { model, shape, engine }: Pick<WeightsOptions, 'model' | 'shape' | 'engine'>,
): Promise<Witness> {
  try {
    using session = await sessionOver(file, shape);
    return await witnessOf(model, shape, engine, session);
  } catch (cause) {
    throw weightsFault(
      `names ${file}, which cannot be compared with the model: ${(cause as Error).message}`,
      { path: file, cause },
      'Name the files that the model was loaded from, and leave memory for a second session while it opens.',
    );
  }
}

// Ending of the file that is kept beside a file.

const memoryEnding = '.sha256.json';

/** Nanoseconds for which a file must have been at rest before its hash is kept. */
const restNs = 2_000_000_000n;

/** Bytes of one read. */
const partBytes = 1 << 20;

interface FileMemory extends FileContent {
  /** The file system's description of the file when it was hashed. */
  readonly seen: string;
  /** Outputs of a session over the file and its data, with the facts that determine them. */
  readonly witness?: { readonly of: string; readonly sums: readonly number[] } | undefined;
}

function statOf(file: string): fs.BigIntStats {
  return fs.statSync(file, { bigint: true });
}

function seenOf(stat: fs.BigIntStats): string {
  return `size=${stat.size} dev=${stat.dev} ino=${stat.ino} mtimeNs=${stat.mtimeNs} ctimeNs=${stat.ctimeNs}`;
}

function readMemory(file: string): FileMemory | undefined {
  try {
    const { sha256, seen, data, witness } = JSON.parse(
      fs.readFileSync(file + memoryEnding, 'utf8'),
    ) as FileMemory;
    const isFile = /^[0-9a-f]{64}$/.test(sha256) && typeof seen === 'string';
    const isTexts = data?.every((each) => typeof each === 'string') ?? true;
    const isWhole = isFile && isTexts && (data !== undefined) === isGraph(file);
    const hasWitness = typeof witness?.of === 'string' && Array.isArray(witness.sums);
    return isWhole ? { sha256, seen, data, witness: hasWitness ? witness : undefined } : undefined;
  } catch {
    return undefined; // missing, or damaged: the content is hashed
  }
}

/**
 * The SHA-256 of a file's content, and what an ONNX file names.
 * @param notice receives a line where they cannot be kept
 * @param nowMs the time of day
 * @throws TKV_CONFIG where the file cannot be read, is not an ONNX file, or changes while it is read
 */
export function contentOf(
  file: string,
  notice: (line: string) => void = () => {},
  nowMs: number = Date.now(),
): FileContent {
  try {
    const stat = statOf(file);
    const memory = readMemory(file);
    if (memory?.seen === seenOf(stat)) return memory;
    const content = readContent(file);
    const after = statOf(file);
    if (seenOf(after) !== seenOf(stat)) throw new Error('it changed while it was read');
    const nowNs = BigInt(nowMs) * 1_000_000n;
    if (nowNs - after.ctimeNs > restNs && nowNs - after.mtimeNs > restNs)
      keep(file, { ...content, seen: seenOf(after) }, notice);
    return content;
  } catch (cause) {
    throw weightsFault(`cannot be read: ${cause instanceof Error ? cause.message : described(cause)}`, {
      path: file,
      cause,
    });
  }
}

function readContent(file: string): FileContent {
  const hash = createHash('sha256');
  const reader = isGraph(file) ? new OnnxFileReader() : undefined;
  const handle = fs.openSync(file, 'r');
  try {
    const part = Buffer.allocUnsafe(partBytes);
    for (let count = fs.readSync(handle, part); count > 0; count = fs.readSync(handle, part)) {
      hash.update(part.subarray(0, count));
      reader?.push(part.subarray(0, count));
    }
  } finally {
    fs.closeSync(handle);
  }
  const sha256 = hash.digest('hex');
  return reader === undefined ? { sha256 } : { sha256, data: reader.finish() };
}

function keep(file: string, memory: FileMemory, notice: (line: string) => void): void {
  try {
    writeText(file + memoryEnding, `${JSON.stringify(memory)}\n`);
  } catch (error) {
    const why = error instanceof Error ? error.message : described(error);
    notice(`The hash of ${file} is not kept, so that every start reads the file: ${why}`);
  }
}
