/**
 * Outputs of a session for a few tokens, in short: enough to tell whether it computes with the weights of given files.
 * An identity rests on the content of files, and nothing in a loaded model says which files it came from.
 *
 * Every tensor of KV is folded into signed sums over all its elements. A sum over random signs deviates by about the
 * norm of what deviates, so a difference anywhere shows, and rounding does not.
 */

import type { DecoderModel, EngineModule, EngineSession, SessionInput } from './engine.ts';
import type { ModelShape } from './modelShape.ts';

export const probeTokens = 16;
const sumsOfTensor = 8;
/** Difference of two sums, as a share of the tensor's norm, that rounding may make. Other weights differ by far more. */
const tolerance = 2 ** -10;

/** A tensor of onnxruntime. */
interface SessionTensor {
  readonly type: string;
  getData(releaseData: boolean): Promise<unknown>;
}

/** A session as onnxruntime has it. */
interface RunnableSession extends EngineSession {
  run(
    feeds: Readonly<Record<string, unknown>>,
    fetches: readonly string[],
  ): Promise<Record<string, SessionTensor>>;
  release(): Promise<void>;
}

/** For each tensor of KV its norm and its sums. */
export type Witness = Float64Array;

/** Tokens over the whole vocabulary, so that many rows of its table are read. */
export function probeIds({ config }: DecoderModel): BigInt64Array {
  const { vocab_size: size, text_config: text } = config as {
    readonly vocab_size?: unknown;
    readonly text_config?: { readonly vocab_size?: unknown };
  };
  const known = size ?? text?.vocab_size;
  const vocabulary = typeof known === 'number' && known >= probeTokens ? known : probeTokens;
  const step = vocabulary / probeTokens;
  return BigInt64Array.from({ length: probeTokens }, (_, i) => BigInt(Math.floor((i + 0.5) * step)));
}

/** @throws what onnxruntime throws */
export async function witnessOf(
  model: DecoderModel,
  shape: ModelShape,
  engine: EngineModule,
  session: EngineSession = shape.session,
): Promise<Witness> {
  const tensor = (type: string, data: unknown, dims: number[]): unknown =>
    new engine.Tensor(type as never, data as never, dims).ort_tensor;
  const feed = ({ name, shape: axes = [] }: SessionInput): unknown => {
    switch (name) {
      case 'input_ids':
        return tensor('int64', probeIds(model), [1, probeTokens]);
      case 'attention_mask':
        return tensor('int64', new BigInt64Array(probeTokens).fill(1n), [1, probeTokens]);
      case 'position_ids': {
        const rows = axes.length === 3 ? Number(axes[0]) : 1;
        const places = BigInt64Array.from({ length: rows * probeTokens }, (_, i) => BigInt(i % probeTokens));
        return tensor('int64', places, axes.length === 3 ? [rows, 1, probeTokens] : [1, probeTokens]);
      }
      case 'num_logits_to_keep':
        return tensor('int64', BigInt64Array.of(1n), axes.length === 0 ? [] : [1]);
      case 'use_cache_branch':
        return tensor('bool', Uint8Array.of(0), [1]);
      default: {
        const empty = shape.tensorType === 'float32' ? new Float32Array(0) : new Uint16Array(0);
        return tensor(shape.tensorType, empty, [1, shape.kvHeads, 0, shape.headDim]);
      }
    }
  };
  const feeds = Object.fromEntries(session.inputMetadata.map((input) => [input.name, feed(input)]));
  const names = shape.names.flatMap(({ key, value }) => [key, value]).map(outputName);
  const outputs = await (session as RunnableSession).run(feeds, names);
  const sums: number[] = [];
  for (const name of names)
    sums.push(...folded(floatsOf(outputs[name].type, await outputs[name].getData(true))));
  return Float64Array.from(sums);
}

/** The session's name for the KV after its run. */
function outputName(input: string): string {
  return input.replace(/^past_key_values\./, 'present.');
}

/** Opens a second session over files, which has no part in any answer. @param file the ONNX file */
export async function sessionOver(
  file: string,
  { session }: ModelShape,
): Promise<EngineSession & Disposable> {
  const { create } = session.constructor as unknown as {
    create(file: string, options: object): Promise<RunnableSession>;
  };
  const opened = await create.call(session.constructor, file, {
    executionProviders: providersOf(session.config?.device),
  });
  return Object.assign(opened, { [Symbol.dispose]: () => void opened.release().catch(() => {}) });
}

/** Providers of onnxruntime by what transformers.js calls a device. */
function providersOf(device: string = 'cpu'): string[] {
  if (device !== 'auto' && device !== 'gpu') return [device];
  const own: Readonly<Record<string, string>> = { win32: 'dml', darwin: 'coreml', linux: 'cuda' };
  const all = [own[process.platform], 'webgpu', 'cpu'].filter((each) => each !== undefined);
  return device === 'auto' ? all : all.filter((each) => each !== 'cpu' && each !== 'coreml');
}

function folded(values: Float32Array): number[] {
  const sums = new Array<number>(sumsOfTensor).fill(0);
  let squares = 0;
  let signs = 0x9e3779b9;
  for (const value of values) {
    squares += value * value;
    signs = (Math.imul(signs, 1_664_525) + 1_013_904_223) >>> 0;
    for (let i = 0; i < sumsOfTensor; i++) sums[i] += ((signs >>> (31 - i)) & 1) === 0 ? value : -value;
  }
  return [Math.sqrt(squares), ...sums];
}

function floatsOf(type: string, data: unknown): Float32Array {
  if (type === 'float32') return data as Float32Array;
  const { buffer, byteOffset, byteLength } = data as Uint16Array;
  const halves = new Uint16Array(buffer, byteOffset, byteLength / 2);
  return Float32Array.from(halves, (half) => {
    const sign = half >>> 15 === 0 ? 1 : -1;
    const exponent = (half >>> 10) & 31;
    const fraction = half & 1023;
    return sign * (exponent === 0 ? fraction * 2 ** -24 : (1024 + fraction) * 2 ** (exponent - 25));
  });
}

/** Whether two witnesses are of the same weights. */
export function isSameWitness(a: Witness, b: Witness): boolean {
  if (a.length !== b.length) return false;
  const width = sumsOfTensor + 1;
  for (let at = 0; at < a.length; at += width) {
    const most = tolerance * Math.max(a[at], b[at], Number.MIN_VALUE);
    for (let i = 0; i < width; i++) if (!(Math.abs(a[at + i] - b[at + i]) <= most)) return false;
  }
  return true;
}
