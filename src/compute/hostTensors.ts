/**
 * Tensors of an engine into blocks and out of them. A tensor says in which order its axes lie, so that nothing is guessed
 * from a shape. Elements keep their bytes: they are never converted.
 *
 *     'bhtd'   batch, head, token, element: transformers.js, ONNX, PyTorch models
 *     'bthd'   as attention kernels have it         'tbhd', 'thd', 'htd'   with the batch elsewhere, or without one
 *     'bhdt'   K transposed                         'kbhtd', 'bkhtd'       K and V in one tensor
 *     'btd'    one head: the latent of MLA
 *
 * Blocks are `[layer][head][K, V][token][element]`. K and V may differ in width (`valueDim`), and V may be absent.
 */

import { described, inputError } from '../runtime/errors.ts';
import { blockBox, rowOffsetBytes } from '../runtime/geometry/box.ts';
import { type KVLayout, requireKVLayout } from '../runtime/geometry/layout.ts';
import * as is from '../runtime/kinds.ts';
import { type Kinds, optionTable } from '../runtime/options.ts';

/** Axes: b batch, h KV head, t token, d element of a head, k K and V. */
type TensorAxis = 'b' | 'h' | 't' | 'd' | 'k';

/** A tensor of an engine that holds K, V or both, with the order of its axes. */
export interface KVTensor {
  /** The elements, or their bytes. f16 and bf16: any array of two bytes an element. */
  readonly data: ArrayBufferView;
  /** The order of the axes, the slowest first, such as 'bhtd'. An axis that is not named has the size 1. */
  readonly axes: string;
  /** The size of each axis, in that order. */
  readonly dims: readonly number[];
}

/** The KV of one layer: two tensors, or one that has an axis k. Without V (`valueDim` 0): the key alone. */
export interface LayerTensors {
  readonly key: KVTensor;
  readonly value?: KVTensor | undefined;
}

interface TensorPlace {
  /** Token of the tensors that is the block's first. */
  readonly token: number;
  /** Tokens of the block. Default: `blockTokens`. Others of the block are left as they are. */
  readonly tokens?: number | undefined;
  /** Row of the batch. Default 0. */
  readonly batch?: number | undefined;
}

interface CheckedPlace {
  readonly token: number;
  readonly tokens: number;
  readonly batch: number;
}

const tensorTable = optionTable({
  data: is.passed(),
  axes: is.passed(),
  dims: is.passed(),
} satisfies Kinds<KVTensor>);
const layerTable = optionTable({
  key: is.passed(),
  value: is.optional(is.passed()),
} satisfies Kinds<LayerTensors>);
const placeTable = optionTable({
  token: is.passed(),
  tokens: is.optional(is.passed()),
  batch: is.optional(is.passed(), 0),
} satisfies Kinds<TensorPlace>);

/**
 * Copies tokens of an engine's tensors into a block.
 * @param layers one for each layer of the layout
 * @param block all bytes of the block, as `write` hands them over
 * @throws TKV_INPUT naming the tensor and what does not fit the layout: axes, dims, width of elements, a detached buffer
 */
export function packBlock(
  layout: KVLayout,
  layers: readonly LayerTensors[],
  place: TensorPlace,
  block: Uint8Array,
): void {
  eachCopy(layout, layers, place, block, (tensor, from, to, bytes) => {
    block.set(tensor.subarray(from, from + bytes), to);
  });
}

/** Copies tokens of a block into an engine's tensors. @throws as `packBlock` */
export function unpackBlock(
  layout: KVLayout,
  block: Uint8Array,
  layers: readonly LayerTensors[],
  place: TensorPlace,
): void {
  eachCopy(layout, layers, place, block, (tensor, to, from, bytes) => {
    tensor.set(block.subarray(from, from + bytes), to);
  });
}

type TensorCopy = (tensor: Uint8Array, tensorAt: number, blockAt: number, bytes: number) => void;

function eachCopy(
  layout: KVLayout,
  layers: readonly LayerTensors[],
  place: TensorPlace,
  block: Uint8Array,
  copy: TensorCopy,
): void {
  requireKVLayout(layout);
  is.array('Pass { key, value } for each layer.').read(layers, 'layers');
  if (layers.length !== layout.layers) {
    throw inputError(
      'layers',
      `holds ${layers.length} of the layout's ${layout.layers} layers. Pass { key, value } for each of them.`,
    );
  }
  const { token, tokens = layout.blockTokens, batch } = placeTable.read(place, 'place');
  requireCount('place.token', token, Number.MAX_SAFE_INTEGER);
  requireCount('place.tokens', tokens, layout.blockTokens);
  if (!(block instanceof Uint8Array) || block.byteLength !== layout.blockBytes) {
    const given = block instanceof Uint8Array ? `has ${block.byteLength} bytes` : `is ${described(block)}`;
    throw inputError('block', `${given}, and a block has ${layout.blockBytes}. Pass what write hands over.`);
  }
  const wanted = { token, tokens, batch };
  // All tensors are checked before the first byte is copied.
  const halves = layers.flatMap((layer, l) => halvesOf(layout, layer, l, wanted));
  for (const half of halves) copyHalf(layout, half, wanted, copy);
}

/** K or V of one layer, ready to be copied. Strides are in elements. */
interface TensorHalf {
  readonly layer: number;
  readonly kv: 0 | 1;
  readonly width: number;
  readonly bytes: Uint8Array;
  readonly first: number;
  readonly head: number;
  readonly token: number;
  readonly element: number;
}

function halvesOf(layout: KVLayout, layer: LayerTensors, l: number, place: CheckedPlace): TensorHalf[] {
  const field = `layers[${l}]`;
  const { key, value } = layerTable.read(layer, field);
  const { headDim, valueDim } = layout;
  const fused = typeof key?.axes === 'string' && key.axes.includes('k');
  if (fused && (value !== undefined || valueDim !== headDim)) {
    throw inputError(`${field}.key`, 'has an axis k, and a value is given too. Pass one of them.');
  }
  const halves = [halfOf(layout, key, `${field}.key`, l, 0, headDim, place)];
  if (fused) halves.push(halfOf(layout, key, `${field}.key`, l, 1, headDim, place));
  else if (valueDim > 0) {
    if (value === undefined) throw inputError(`${field}.value`, 'is missing. Pass the tensor of V.');
    halves.push(halfOf(layout, value, `${field}.value`, l, 1, valueDim, place));
  } else if (value !== undefined) {
    throw inputError(`${field}.value`, 'is given, and the layout has no V (valueDim 0). Leave it out.');
  }
  return halves;
}

function halfOf(
  layout: KVLayout,
  tensor: KVTensor,
  field: string,
  layer: number,
  kv: 0 | 1,
  width: number,
  { token, tokens, batch }: CheckedPlace,
): TensorHalf {
  const { data, axes, dims } = tensorTable.read(tensor, field);
  if (typeof axes !== 'string' || !/^[bhtdk]+$/.test(axes) || new Set(axes).size !== axes.length) {
    throw inputError(`${field}.axes`, `is ${described(axes)}. Name each axis once, as in 'bhtd'.`);
  }
  is.array('Pass the size of each axis.').read(dims, `${field}.dims`);
  const wanted: Record<TensorAxis, (size: number) => boolean> = {
    b: (size) => batch < size,
    h: (size) => size === layout.kvHeads,
    t: (size) => token + tokens <= size,
    d: (size) => size === width,
    k: (size) => size === 2,
  };
  const sizes = new Map([...axes].map((axis, i) => [axis as TensorAxis, dims[i]]));
  const isWhole =
    dims.length === axes.length && dims.every((size) => Number.isSafeInteger(size) && size >= 0);
  const odd = (Object.keys(wanted) as TensorAxis[]).find(
    (axis) => axis !== 'k' && !wanted[axis](sizes.get(axis) ?? 1),
  );
  if (
    !isWhole ||
    odd !== undefined ||
    sizes.get('k') === 1 ||
    (sizes.has('k') && !wanted.k(sizes.get('k') ?? 1))
  ) {
    throw inputError(
      `${field}.dims`,
      `are [${dims.join(', ')}] of axes ${axes}, and must hold ${layout.kvHeads} heads of ${width} elements, ` +
        `tokens ${token} to ${token + tokens}, row ${batch} of the batch` +
        `${sizes.has('k') ? ', K and V' : ''}. Pass the tensors of this layout.`,
    );
  }
  const elements = dims.reduce((product, size) => product * size, 1);
  const strides = new Map<TensorAxis, number>();
  let stride = 1;
  for (let i = axes.length - 1; i >= 0; i--) {
    strides.set(axes[i] as TensorAxis, stride);
    stride *= dims[i];
  }
  const of = (axis: TensorAxis): number => strides.get(axis) ?? 0;
  return {
    layer,
    kv,
    width,
    bytes: bytesOf(data, elements, layout.bytesPerElement, field),
    first: batch * of('b') + kv * of('k') + token * of('t'),
    head: of('h'),
    token: of('t'),
    element: of('d'),
  };
}

function bytesOf(data: ArrayBufferView, elements: number, elementBytes: number, field: string): Uint8Array {
  if (!ArrayBuffer.isView(data))
    throw inputError(`${field}.data`, `is ${described(data)}. Pass a typed array.`);
  if ((data.buffer as ArrayBuffer).detached === true) {
    throw inputError(`${field}.data`, 'has a detached buffer. Pass it before it is transferred.');
  }
  const width = (data as Partial<Uint8Array>).BYTES_PER_ELEMENT ?? 1;
  if (data.byteLength === elements * elementBytes && (width === 1 || width === elementBytes)) {
    return new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
  }
  throw inputError(
    `${field}.data`,
    `has ${data.byteLength} bytes in elements of ${width}, and its dims and the layout ask for ${elements} elements of ` +
      `${elementBytes}. Pass an array of that type, or its bytes.`,
  );
}

function requireCount(field: string, value: number, most: number): void {
  if (Number.isSafeInteger(value) && value >= 0 && value <= most) return;
  throw inputError(field, `is ${described(value)}. Name a whole number from 0 to ${most}.`);
}

/** In the longest runs that both sides have: all tokens of a head, one token, or one element. */
function copyHalf(
  layout: KVLayout,
  { layer, kv, width, bytes, first, head, token, element }: TensorHalf,
  { tokens }: CheckedPlace,
  copy: TensorCopy,
): void {
  const { bytesPerElement, kvHeads } = layout;
  const box = blockBox(layout, 0);
  const rowBytes = width * bytesPerElement;
  const hasRows = element === 1 || width === 1;
  for (let h = 0; h < kvHeads; h++) {
    const from = first + h * head;
    const to = rowOffsetBytes(layout, box, layer, h, kv, 0);
    if (hasRows && token === width) {
      copy(bytes, from * bytesPerElement, to, tokens * rowBytes);
      continue;
    }
    for (let t = 0; t < tokens; t++) {
      const row = from + t * token;
      if (hasRows) copy(bytes, row * bytesPerElement, to + t * rowBytes, rowBytes);
      else {
        for (let d = 0; d < width; d++) {
          const at = (row + d * element) * bytesPerElement;
          copy(bytes, at, to + t * rowBytes + d * bytesPerElement, bytesPerElement);
        }
      }
    }
  }
}
