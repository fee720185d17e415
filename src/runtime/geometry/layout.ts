/**
 * How the KV bytes of one model lie in a block: `[layer][head][K,V][token][headDim]`, one contiguous range.
 *
 *      layer 0                          layer 1
 *     +--------------+--------------+  +------
 *     | head 0       | head 1       |  | head 0 ...   row: headDim elements, one token's K or V
 *     | K rows V rows| K rows V rows|  |              of one head
 *     +--------------+--------------+  +------
 *
 * A layout is made by `kvLayout` alone, which checks every field and derives every stride, so that no other
 * file does this arithmetic. Its fingerprint writes each field out by name: two layouts that differ anywhere
 * have different fingerprints, and nothing is ever guessed from a shape (with two KV heads, K/V and heads
 * look alike).
 */

import { configError, described, TierKVError } from '../errors.ts';
import * as is from '../kinds.ts';
import { checkInputs, type Kinds, type OptionTable, optionTable } from '../options.ts';

/** Bytes of one element. Formats of equal width but other meaning are different types. */
const dtypeBytes = { f32: 4, f16: 2, bf16: 2, f8e4m3: 1, f8e5m2: 1, i8: 1, u8: 1 } as const;
/** Element type of K and V. */
export type KVDtype = keyof typeof dtypeBytes;

/** Input of `kvLayout`: layers, heads, element type and the tokens of a block. */
export interface KVLayoutConfig {
  readonly layers: number;
  readonly kvHeads: number;
  /** Elements of one head's K (and of its V) for one token. */
  readonly headDim: number;
  /**
   * Elements of one head's V where it has another width than K; 0 without a V, as for MLA, whose latent is the K
   * of one head. Such blocks are stored, moved and verified like others. Kernels, boxes and views that pair K with V
   * refuse them. Default `headDim`.
   */
  readonly valueDim?: number | undefined;
  readonly dtype: KVDtype;
  /** Tokens of one block. */
  readonly blockTokens: number;
}

/** The checked layout of a model's KV: strides, and the bytes of a block. */
export interface KVLayout extends KVLayoutConfig {
  readonly valueDim: number;
  /** Grows whenever the meaning of a layout's fields changes. */
  readonly version: number;
  readonly order: 'layer.head.kv.token.dim';
  readonly bytesPerElement: number;
  /** One token's K, or V, of one head. Tokens are this far apart, in a block and in any box. */
  readonly rowBytes: number;
  /** One token's V of one head: `rowBytes` unless there is a `valueDim`. */
  readonly valueRowBytes: number;
  /** Distance from K to V of one head in a block. */
  readonly kvStrideBytes: number;
  /** Distance between heads in a block. */
  readonly headStrideBytes: number;
  /** Distance between layers in a block: the bytes of one LAYER unit of a block. */
  readonly layerStrideBytes: number;
  /** K and V of one token over all layers and heads. */
  readonly tokenBytes: number;
  readonly blockBytes: number;
}

export const kvLayoutConfig: OptionTable<KVLayoutConfig> = optionTable(
  {
    layers: is.integer(1),
    kvHeads: is.integer(1),
    headDim: is.integer(1),
    valueDim: is.optional(is.integer(0)),
    dtype: is.by(requireDtype),
    blockTokens: is.integer(1),
  } satisfies Kinds<KVLayoutConfig>,
  'TKV_CONFIG',
);

/** Fields that `kvLayout` derives; a layout may be given as settings too. */
export const derivedNames: readonly Exclude<keyof KVLayout, keyof KVLayoutConfig>[] = [
  ...(['version', 'order', 'bytesPerElement', 'rowBytes', 'valueRowBytes', 'kvStrideBytes'] as const),
  ...(['headStrideBytes', 'layerStrideBytes', 'tokenBytes', 'blockBytes'] as const),
];
const kvLayoutNames: readonly string[] = [...kvLayoutConfig.names, ...derivedNames];

/** @throws TKV_CONFIG for one that is not known */
function requireDtype(dtype: KVDtype, field: string): KVDtype {
  if (Object.hasOwn(dtypeBytes, dtype)) return dtype;
  const known = Object.keys(dtypeBytes).join(', ');
  throw configError(field, `is ${described(dtype)}, which is not known`, `Use one of ${known}.`);
}

/** A block's offsets fit a signed 32-bit integer, in JavaScript, in WGSL and in a record. */
export const blockBytesLimit: number = 2 ** 31 - 1;

/**
 * Checks `config` and derives the strides of its blocks.
 * @throws TKV_CONFIG naming a field that is not a positive integer, an unknown dtype, or a block that is too large
 */
export function kvLayout(config: KVLayoutConfig): KVLayout {
  const { layers, kvHeads, headDim, dtype, blockTokens, ...rest } = kvLayoutConfig.read(
    config,
    'config',
    undefined,
    derivedNames,
  );
  const { valueDim = headDim } = rest;
  const bytesPerElement = dtypeBytes[dtype];
  const rowBytes = headDim * bytesPerElement;
  const valueRowBytes = valueDim * bytesPerElement;
  for (const [field, dim, bytes] of [
    ['headDim', headDim, rowBytes],
    ['valueDim', valueDim, valueRowBytes],
  ] as const) {
    if (bytes % 4 === 0) continue;
    throw configError(
      field,
      `is ${dim}, which makes rows of ${bytes} bytes, but GPU copies and digests need whole ` +
        `32-bit words`,
      `Pad ${field} to a multiple of ${4 / bytesPerElement}.`,
    );
  }
  const kvStrideBytes = blockTokens * rowBytes;
  const headStrideBytes = kvStrideBytes + blockTokens * valueRowBytes;
  const layerStrideBytes = kvHeads * headStrideBytes;
  const blockBytes = layers * layerStrideBytes;
  if (!(blockBytes <= blockBytesLimit)) {
    throw configError(
      'blockTokens',
      `is ${blockTokens}, which makes blocks of ${blockBytes} bytes, above ${blockBytesLimit}`,
      'Lower blockTokens.',
    );
  }
  return Object.freeze({
    version: 1,
    order: 'layer.head.kv.token.dim',
    layers,
    kvHeads,
    headDim,
    valueDim,
    dtype,
    blockTokens,
    bytesPerElement,
    rowBytes,
    valueRowBytes,
    kvStrideBytes,
    headStrideBytes,
    layerStrideBytes,
    tokenBytes: blockBytes / blockTokens,
    blockBytes,
  });
}

/** @throws TKV_CONFIG for a layout whose V is not as wide as its K, which `what` pairs */
export function requirePairedLayout(layout: KVLayout, what: string, field = 'layout.valueDim'): void {
  if (layout.valueDim === layout.headDim) return;
  throw configError(
    field,
    `is ${layout.valueDim} beside a headDim of ${layout.headDim}, and ${what} needs V as wide as K`,
    'Use a runtime without it: blocks of such layouts are stored and moved as they are.',
  );
}

/**
 * Checks that `kvLayout` made the value. @throws TKV_CONFIG for anything else, such as the plain settings of a layout
 */
export function requireKVLayout(layout: KVLayout, field = 'layout'): KVLayout {
  checkInputs({ field }, { field: is.optional(is.text()) });
  const remedy = 'Pass what kvLayout({ ... }) gives.';
  if (typeof layout !== 'object' || layout === null || Array.isArray(layout)) {
    throw configError(field, `is ${described(layout)}, not a layout`, remedy);
  }
  const missing = kvLayoutNames.find((name) => layout[name as keyof KVLayout] === undefined);
  if (missing !== undefined)
    throw configError(field, `has no ${missing}`, `${remedy.slice(0, -1)}, not its settings.`);
  for (const name of ['valueDim', 'version'] as const) {
    if (typeof layout[name] === 'number') continue;
    throw configError(`${field}.${name}`, `is ${described(layout[name])}, not a number`, remedy);
  }
  return layout;
}

const fingerprintFields = [
  'version',
  'order',
  'layers',
  'kvHeads',
  'headDim',
  'dtype',
  'bytesPerElement',
  'blockTokens',
  'rowBytes',
  'kvStrideBytes',
  'headStrideBytes',
  'layerStrideBytes',
  'tokenBytes',
  'blockBytes',
] as const satisfies readonly (keyof KVLayout)[];

/**
 * `field=value` for every field, in one fixed order: one text per layout and one layout per text. It goes
 * into every key and every record.
 */
export function layoutFingerprint(layout: KVLayout): string {
  checkInputs({ layout }, { layout: is.fields({ valueDim: is.number(), version: is.number() }) });
  const fields = fingerprintFields.map((field) => `${field}=${layout[field]}`);
  // Only where they differ, so that layouts of equal widths keep the fingerprint that they have always had.
  if (layout.valueDim !== layout.headDim) fields.push(`valueDim=${layout.valueDim}`);
  if (layout.valueRowBytes !== layout.rowBytes) fields.push(`valueRowBytes=${layout.valueRowBytes}`);
  return `kv-layout ${fields.join(' ')}`;
}

/** @throws TKV_MISMATCH naming the first field in which a stored fingerprint differs from `layout`. */
export function requireLayout(layout: KVLayout, storedFingerprint: string, path?: string): void {
  checkInputs(
    { layout, storedFingerprint, path },
    {
      layout: is.fields({ valueDim: is.number(), version: is.number() }),
      storedFingerprint: is.text(),
      path: is.optional(is.name()),
    },
  );
  const expected = layoutFingerprint(layout).split(' ');
  const stored = storedFingerprint.split(' ');
  for (let i = 0; i < Math.max(expected.length, stored.length); i++) {
    if (expected[i] === stored[i]) continue;
    const field = i > 0 ? (expected[i] ?? stored[i]).split('=')[0] : undefined;
    throw new TierKVError(
      'TKV_MISMATCH',
      `the stored KV was written with ${stored[i] ?? 'no more fields'}, this layout has ` +
        `${expected[i] ?? 'no more fields'}. Use the layout that wrote it, or another directory.`,
      { ...(field === undefined ? {} : { field }), ...(path === undefined ? {} : { path }) },
    );
  }
}

// The page size of a pool that holds slots of several sizes. Every page is cut into slots of one size, so a
// page size that each slot size divides wastes nothing: the least common multiple, when it is small enough to
// be a page. When it is not, the smallest page of which no size wastes more than a stated share. (Pages at
// the least common multiple are the idea of Jenga, arXiv 2503.18292; the bounded fallback is ours.)

export interface PageSizeOptions {
  /** The page is a multiple of this. 4096 suits direct I/O and any WebGPU binding offset. */
  readonly alignmentBytes?: number;
  /**
   * The largest share of a page, in (0, 1), that may be left over when it is cut into slots of any one size.
   */
  readonly maxWasteShare?: number;
  /** The least common multiple is taken up to this size: 8 times the largest unit when absent. */
  readonly lcmLimitBytes?: number;
  /** No page may be larger: unlimited when absent. */
  readonly maxPageBytes?: number;
}

const pageSizeOptions = optionTable(
  {
    alignmentBytes: is.optional(is.integer(1, 2 ** 30), 4096),
    maxWasteShare: is.optional(is.by(requireWasteShare), 0.03),
    lcmLimitBytes: is.optional(is.integer(1)),
    maxPageBytes: is.optional(is.integer(1), Number.MAX_SAFE_INTEGER),
  } satisfies Kinds<PageSizeOptions>,
  'TKV_CONFIG',
);

function requireWasteShare(share: number, field: string): number {
  if (share >= 1e-4 && share < 1) return share;
  throw configError(field, `is ${described(share)}, outside [0.0001, 1)`, 'Set it to a share such as 0.03.');
}

interface PageSize {
  readonly pageBytes: number;
  /** Slots of each size that one page holds. */
  readonly slotsPerPage: readonly number[];
  /** Share of a page that no slot of each size uses. */
  readonly wasteShare: readonly number[];
}

/**
 * Sizes are taken as they are: round them up first where a tier wants its slots aligned.
 * @throws TKV_CONFIG naming the size that is not a positive integer, or `maxPageBytes` when no page is small
 * enough.
 */
export function choosePageBytes(unitBytes: readonly number[], options: PageSizeOptions = {}): PageSize {
  is.list(is.integer(1, 2 ** 40), 'Name the sizes of units in bytes.').read(
    unitBytes,
    'unitBytes',
    'TKV_CONFIG',
  );
  const { alignmentBytes, maxWasteShare, maxPageBytes, ...rest } = pageSizeOptions.read(options);
  if (unitBytes.length === 0) {
    throw configError('unitBytes', 'is empty', 'Name at least one unit size.');
  }
  const largestBytes = Math.max(...unitBytes);
  const lcmLimitBytes = rest.lcmLimitBytes ?? alignUp(8 * largestBytes, alignmentBytes);

  const pageBytes =
    commonMultiple([alignmentBytes, ...unitBytes], Math.min(lcmLimitBytes, maxPageBytes)) ??
    smallestPage(unitBytes, alignmentBytes, maxWasteShare);
  if (pageBytes > maxPageBytes) {
    throw configError(
      'maxPageBytes',
      `is ${maxPageBytes}, but ${pageBytes} is the smallest page that wastes at most ` +
        `${maxWasteShare} on every size`,
      'Raise maxPageBytes or maxWasteShare, or choose unit sizes that divide each other.',
    );
  }
  return {
    pageBytes,
    slotsPerPage: unitBytes.map((bytes) => Math.floor(pageBytes / bytes)),
    wasteShare: unitBytes.map((bytes) => (pageBytes % bytes) / pageBytes),
  };
}

/** The least common multiple of `sizes`, or undefined when it is above `limit`. */
function commonMultiple(sizes: readonly number[], limit: number): number | undefined {
  let multiple = 1;
  for (const size of sizes) {
    multiple = (multiple / greatestCommonDivisor(multiple, size)) * size;
    if (multiple > limit) return undefined;
  }
  return multiple;
}

/**
 * The smallest multiple of the alignment that wastes at most `share` on every size. A page of `n` slots and a
 * rest wastes too much until the rest grows into slot n + 1, so the search jumps there. It ends at the latest
 * where the page is 1 / share times the largest size.
 */
function smallestPage(sizes: readonly number[], alignment: number, share: number): number {
  let page = alignUp(Math.max(...sizes), alignment);
  for (let fitting = 0, i = 0; fitting < sizes.length; i = (i + 1) % sizes.length) {
    const size = sizes[i];
    const rest = page % size;
    if (rest <= share * page) {
      fitting++;
    } else {
      page = alignUp(page - rest + size, alignment);
      fitting = 0;
    }
  }
  return page;
}

function alignUp(bytes: number, alignment: number): number {
  return Math.ceil(bytes / alignment) * alignment;
}

function greatestCommonDivisor(a: number, b: number): number {
  let [larger, smaller] = [a, b];
  while (smaller !== 0) [larger, smaller] = [smaller, larger % smaller];
  return larger;
}
