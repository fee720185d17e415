/**
 * `kernels`: a step as the sum of its kernels' measured times on the card, and of what the engine adds on the host. Times that depend on
 * rows alone are summed over all matrices once, over each measured number of rows; those of attention are look-ups in a grid. So a step
 * costs a few look-ups. Where a kernel of a model was not measured, the distance to the roofline of the nearest one that was is taken, and
 * `borrowed` says from where.
 */

import { configError } from '../../runtime/errors.ts';
import { exp, log } from '../random/elementary.ts';
import { layerKvBytesPerToken } from './engineMemory.ts';
import { fullLayersOf } from './hybridLayers.ts';
import {
  type AttentionGrid,
  type CardTables,
  Curve,
  type ExpertSeries,
  type Floor2,
  FloorRatios,
  type LatentGrid,
  nearest,
  timeAt,
} from './kernelTables.ts';
import { type BatchSums, type LatencyModel, type StepPart, toStepTicks } from './latencyModel.ts';
import { type Hardware, kvElementBytesOf, kvElements, type ModelConfig, trueHeadDim } from './modelConfig.ts';
import { type EngineShape, expertsTouched, type WeightMatrix } from './physics.ts';
import { type WeightFormat, weightFormatOf } from './quantisation.ts';

/** Time that an engine adds on the host, and on the GPU between the kernels of the tables. Times in µs. */
export interface HostPart {
  /** Name of the engine, as the file has it. */
  readonly engine: string;
  /** Each request before its first step: HTTP, tokenising, the queue to the engine; and of each prompt token. */
  readonly requestUs: number;
  readonly promptTokenUs: number;
  /** Each step, and each request in it, beside the GPU's time: scheduling, the executor, sampling. */
  readonly stepUs: number;
  readonly stepRequestUs: number;
  /** Each layer: norms, rotation, activation and the gaps between kernels. */
  readonly layerUs: number;
  /** Least time of a step with prefills, which no captured graph covers: launches of one layer. */
  readonly eagerLayerUs: number;
}

export interface KernelCoefficients {
  readonly tables: CardTables;
  readonly host: HostPart;
}

/** Time of a kernel of nothing, µs: what a launch in a captured graph takes. */
const launchUs = 3;
/** Share of the bandwidth that streaming kernels reach which have no table: norms, states. */
const streamShare = 0.8;
/** Most requests and tokens that grids reach; beyond them the distance to the roofline stays. */
const most = { requests: 2048, tokens: 2 ** 20 };
const weightBits: Readonly<Record<WeightFormat, number>> = {
  bfloat16: 16,
  fp8: 8,
  fp8_block: 8,
  int8: 8,
  nvfp4: 4.5,
  mxfp4: 4.25,
  int4: 4.15,
};

const rowsOf: readonly number[] = [
  ...Array.from({ length: 32 }, (_, i) => i + 1),
  ...Array.from({ length: 31 }, (_, i) => 48 + 16 * i),
  ...Array.from({ length: 30 }, (_, i) => 640 + 128 * i),
  ...[5120, 6144, 8192, 12_288, 16_384, 24_576, 32_768, 65_536],
];

interface Attention {
  readonly layers: number;
  readonly prefill: FloorRatios;
  readonly decode: FloorRatios;
  /** Operations of a pair of tokens, bytes of a token and of what is read in any case, in one layer on one GPU. */
  readonly pairFlops: number;
  readonly tokenBytes: number;
  readonly tokenFlops: number;
  readonly weightBytes: number;
  readonly window: number;
}

const square = (x: number): number => x * x;
const apart = (a: number, b: number): number => square(log(a / b));

export class Kernels implements LatencyModel {
  readonly backend: string = 'kernels';
  readonly outputTokenProcessingUs: number = 0;
  readonly postDecodeOverheadUs: number = 0;
  readonly windowTokens: number;
  /** Kernels that were not measured on this card, and what stands in. */
  readonly borrowed: readonly string[];
  readonly #shape: EngineShape;
  readonly #host: HostPart;
  readonly #rows: Curve;
  readonly #head: Curve;
  readonly #experts: Curve | undefined;
  readonly #reduce: Curve | undefined;
  readonly #reductions: number;
  readonly #attention: readonly Attention[];
  readonly #exchangeUsPerByte: number;
  readonly #stateUs: number;
  readonly #indexUs: number;
  #last = { tokens: -1, sampled: -1, us: 0 };

  /** @throws {TierKVError} TKV_CONFIG for tables without a kernel that a step needs */
  constructor(
    model: ModelConfig,
    hardware: Hardware,
    shape: EngineShape,
    { tables, host }: KernelCoefficients,
    isExpertParallel: boolean,
  ) {
    const borrowed = new Set<string>();
    this.#shape = shape;
    this.#host = host;
    this.windowTokens = shape.windowTokens;
    const gemm = new Products(tables, hardware, borrowed);
    const format = weightFormatOf(model);
    const ofAttention: WeightFormat = model.keepsAttention ? 'bfloat16' : format;
    const latent = latentOf(model, shape, tables, borrowed);
    const matrices = shape.tokenMatrices.map((matrix, i) => ({
      matrix,
      format:
        i < shape.attentionMatrices ? ofAttention : isRouter(matrix, shape) ? ('bfloat16' as const) : format,
    }));
    const counted = latent === undefined ? matrices : matrices.slice(shape.attentionMatrices);
    const series = counted.map(({ matrix, format: each }) => ({
      count: matrix.count,
      at: gemm.of(each, matrix.columns, matrix.depth),
    }));
    // norms twice, and the activation: read, added, written
    const layerBytes = shape.activationBytes * (8 * shape.hiddenSize + (3 * widthOf(shape)) / 2);
    const stream = layerBytes / (streamShare * shape.peakBytesPerUs);
    this.#rows = new Curve(rowsOf, (rows) =>
      series.reduce((sum, { count, at }) => sum + count * at(rows), shape.layers * stream * rows),
    );
    const head = gemm.of('bfloat16', shape.headMatrix.columns, shape.headMatrix.depth);
    this.#head = new Curve(rowsOf, head);
    this.#experts =
      shape.experts === 0
        ? undefined
        : new Curve(rowsOf, expertTimes(model, shape, hardware, tables, isExpertParallel, borrowed));
    this.#reductions = shape.mixingLayers + shape.denseLayers + (shape.dp === 1 ? shape.moeLayers : 0);
    const ofGpus = tables.reduce.find(({ gpus }) => gpus === shape.tp) ?? tables.reduce.at(-1);
    if (shape.tp > 1 && ofGpus === undefined) {
      throw configError('tp', `is ${shape.tp}, and ${tables.gpu} has no table of reductions`, 'Use 1.');
    }
    if (shape.tp > 1 && ofGpus!.gpus !== shape.tp)
      borrowed.add(`reductions over ${shape.tp}: those over ${ofGpus!.gpus}`);
    const message = shape.hiddenSize * shape.activationBytes;
    this.#reduce =
      shape.tp === 1
        ? undefined
        : new Curve(rowsOf, (rows) =>
            timeAt(
              ofGpus!,
              rows * message,
              (bytes) => launchUs + bytes / (hardware.interconnectGbPerS * 1e3),
            ),
          );
    this.#exchangeUsPerByte = shape.dp === 1 ? 0 : 1 / (streamShare * hardware.interconnectGbPerS * 1e3);
    if (shape.dp > 1) borrowed.add('exchange of tokens between ranks: its bytes over the link');
    this.#attention = latent === undefined ? attentions(model, shape, tables, borrowed) : [latent];
    if (shape.stateBytes > 0) borrowed.add('linear layers: their states at the bandwidth');
    this.#stateUs = (2 * shape.stateBytes) / (streamShare * shape.peakBytesPerUs);
    this.#indexUs =
      model.indexer === undefined ? 0 : shape.kvBytesPerToken / (streamShare * shape.peakBytesPerUs);
    if (model.indexer !== undefined)
      borrowed.add('sparse attention: MLA of at most as many tokens, and its index at the bandwidth');
    this.borrowed = [...borrowed].sort();
  }

  stepTimeUs(batch: BatchSums): number {
    return toStepTicks(this.stepUs(batch));
  }

  /** The step time before truncation, which fits need. */
  stepUs(batch: BatchSums): number {
    if (batch.requests === 0) return 0;
    return this.#rowsUs(batch) + this.#attentionUs(batch) + this.#hostUs(batch);
  }

  explain(batch: BatchSums): readonly StepPart[] {
    const rows = batch.tokens / this.#shape.dp;
    const experts = this.#expertsUs(batch);
    const reduce = this.#reduceUs(batch);
    return [
      { part: 'matrix products', us: this.#rowsUs(batch) - experts - reduce },
      { part: 'experts', us: experts },
      { part: 'attention', us: this.#attentionUs(batch) },
      { part: 'communication', us: rows === 0 ? 0 : reduce },
      { part: 'engine', us: this.#hostUs(batch) },
    ];
  }

  queueingTimeUs(promptTokens: number): number {
    return Math.trunc(this.#host.requestUs + this.#host.promptTokenUs * promptTokens);
  }

  /** All that depends on rows alone, which stay from step to step while a batch decodes: the last value is kept. */
  #rowsUs(batch: BatchSums): number {
    const { tokens, sampledTokens } = batch;
    if (tokens !== this.#last.tokens || sampledTokens !== this.#last.sampled) {
      const { dp } = this.#shape;
      const products = tokens === 0 ? 0 : this.#rows.at(tokens / dp);
      const head = sampledTokens === 0 ? 0 : this.#head.at(sampledTokens / dp);
      const us = products + head + this.#expertsUs(batch) + this.#reduceUs(batch);
      this.#last = { tokens, sampled: sampledTokens, us };
    }
    return this.#last.us;
  }

  #expertsUs(batch: BatchSums): number {
    if (this.#experts === undefined || batch.tokens === 0) return 0;
    return this.#shape.moeLayers * this.#shape.expertImbalance * this.#experts.at(batch.tokens);
  }

  #reduceUs(batch: BatchSums): number {
    const { dp, expertGpus, moeLayers, hiddenSize, activationBytes, expertImbalance } = this.#shape;
    const rows = batch.tokens / dp;
    const own = this.#reduce === undefined || rows === 0 ? 0 : this.#reductions * this.#reduce.at(rows);
    if (this.#exchangeUsPerByte === 0) return own;
    const bytes = ((2 * (expertGpus - 1)) / expertGpus) * rows * hiddenSize * activationBytes;
    return own + expertImbalance * moeLayers * (2 * launchUs + bytes * this.#exchangeUsPerByte);
  }

  #attentionUs(batch: BatchSums): number {
    const { dp, peakFlops16PerUs, peakBytesPerUs } = this.#shape;
    let us = 0;
    const prefills = batch.prefillRequests / dp;
    const decodes = batch.decodeRequests / dp;
    for (const one of this.#attention) {
      const isWindow = one.window > 0;
      if (prefills > 0) {
        const tokens = batch.prefillTokens / dp;
        const pairs = (isWindow ? batch.prefillWindowPairs2 : batch.prefillCausalPairs2) / 2 / dp + tokens;
        // the grid is of prompts without a past: one with as many pairs
        const alike = Math.sqrt((2 * pairs) / prefills);
        const floor =
          launchUs + Math.max(pairs * one.pairFlops + tokens * one.tokenFlops, 1) / peakFlops16PerUs;
        us +=
          one.layers * one.prefill.at(prefills, Math.max(1, isWindow ? tokens / prefills : alike)) * floor;
      }
      if (decodes > 0) {
        const context = (isWindow ? batch.decodeWindowTokens : batch.decodeContextTokens) / dp + decodes;
        const queries = 1 + batch.draftTokens / batch.decodeRequests;
        const floor = launchUs + (context * one.tokenBytes + one.weightBytes) / peakBytesPerUs;
        const at = one.decode.at(decodes, Math.max(1, context / decodes));
        us += one.layers * at * floor * (1 + (queries - 1) * 0.1);
      }
    }
    us += this.#stateUs * decodes + this.#indexUs * ((batch.decodeContextTokens + batch.prefillTokens) / dp);
    return us;
  }

  /** Launches of a step that no graph was captured for hide behind long kernels, and bound short ones. */
  #hostUs(batch: BatchSums): number {
    const { stepUs, stepRequestUs, layerUs, eagerLayerUs } = this.#host;
    const { layers } = this.#shape;
    const own = stepUs + stepRequestUs * batch.requests + layers * layerUs;
    if (batch.prefillRequests === 0) return own;
    return own + Math.max(0, layers * eagerLayerUs - this.#rowsUs(batch));
  }
}

const isRouter = ({ columns }: WeightMatrix, { experts }: EngineShape): boolean =>
  columns === experts && experts > 0;

/** Width of the feed-forward blocks that a token passes on one GPU. */
function widthOf({
  tokenMatrices,
  hiddenSize,
  expertMatrices,
  expertsPerToken,
  expertGpus,
}: EngineShape): number {
  const dense =
    tokenMatrices.find(({ columns, depth }) => columns === hiddenSize && depth !== hiddenSize)?.depth ?? 0;
  const expert = expertMatrices[1]?.depth ?? 0;
  return Math.max(dense, (expert * expertsPerToken) / expertGpus);
}

/** Times of matrix products by their shape. */
class Products {
  readonly #tables: CardTables;
  readonly #hardware: Hardware;
  readonly #borrowed: Set<string>;

  constructor(tables: CardTables, hardware: Hardware, borrowed: Set<string>) {
    this.#tables = tables;
    this.#hardware = hardware;
    this.#borrowed = borrowed;
  }

  #floor(format: WeightFormat, n: number, k: number): (rows: number) => number {
    const { peakTflops, peakTflops8bit, memoryTbPerS } = this.#hardware;
    const isEight = ['fp8', 'fp8_block', 'int8'].includes(format) && peakTflops8bit > 0;
    const peak =
      (isEight
        ? peakTflops8bit
        : format === 'nvfp4' && peakTflops8bit > 0
          ? 2 * peakTflops8bit
          : peakTflops) * 1e6;
    const weights = (n * k * weightBits[format]) / 8;
    return (rows) =>
      launchUs + Math.max((2 * rows * n * k) / peak, (weights + 2 * rows * (n + k)) / (memoryTbPerS * 1e6));
  }

  /** The time in µs by rows of a product of rows x k with k x n. */
  of(format: WeightFormat, n: number, k: number): (rows: number) => number {
    const { gemm, gpu } = this.#tables;
    const own = gemm.filter((one) => one.format === format);
    const used = own.length > 0 ? own : gemm.filter((one) => one.format === 'bfloat16');
    if (own.length === 0)
      this.#borrowed.add(`matrix products in ${format}: bfloat16 at the bytes of ${format}`);
    const floor = this.#floor(format, n, k);
    const near = nearest(used, (one) => apart(one.n, n) + apart(one.k, k));
    if (near.length === 0)
      throw configError('gpu', `is ${gpu}, whose tables have no matrix product`, 'Use calibrated.');
    if (near.length === 1 && near[0].one.format === format) return (rows) => timeAt(near[0].one, rows, floor);
    const by = near.map(({ one, weight }) => ({ one, weight, floor: this.#floor(one.format, one.n, one.k) }));
    if (own.length > 0) this.#borrowed.add('matrix products of some shapes: the nearest ones');
    return (rows) => {
      let sum = 0;
      for (const each of by) sum += each.weight * log(timeAt(each.one, rows, each.floor) / each.floor(rows));
      return floor(rows) * exp(sum);
    };
  }
}

/** Pairs of a token and one at or before it in a window of a prompt of `tokens`; of all of it with a window of 0. */
function pairsOf(tokens: number, window: number): number {
  const whole = (tokens * (tokens + 1)) / 2;
  if (window === 0 || tokens <= window) return whole;
  return (window * (window + 1)) / 2 + (tokens - window) * window;
}

/** The grid of the nearest heads, with what it is over the floor of its own shape. */
function ratiosOf(
  grids: readonly AttentionGrid[],
  want: Pick<AttentionGrid, 'heads' | 'kvHeads' | 'headDim' | 'window' | 'kvBytes'>,
  floorOf: (grid: AttentionGrid) => Floor2,
  what: string,
  borrowed: Set<string>,
): FloorRatios {
  const distance = (grid: AttentionGrid): number =>
    apart(grid.heads, want.heads) +
    2 * apart(grid.kvHeads, want.kvHeads) +
    4 * apart(grid.headDim, want.headDim) +
    (grid.kvBytes === want.kvBytes ? 0 : 1) +
    (grid.window > 0 === want.window > 0 ? apart(grid.window || 1, want.window || 1) : 8);
  const [near] = nearest(grids, distance, 1);
  if (near === undefined)
    throw configError('gpu', `has no table of attention for ${what}`, 'Use calibrated.');
  const { one } = near;
  if (distance(one) > 0) {
    const named = (grid: typeof want): string =>
      `${grid.heads} heads, ${grid.kvHeads} of KV, of ${grid.headDim}${grid.window > 0 ? ` in a window of ${grid.window}` : ''}` +
      `${grid.kvBytes === 1 ? ' in FP8' : ''}`;
    borrowed.add(`${what} of ${named(want)}: ${named(one)}`);
  }
  return new FloorRatios(one, floorOf(one), most);
}

/** Attention of the layers of the whole context, and of those of a window. */
function attentions(
  model: ModelConfig,
  shape: EngineShape,
  tables: CardTables,
  borrowed: Set<string>,
): readonly Attention[] {
  const { windowLayers = 0, sharingWindowLayers = 0, windowTokens = 0, windowHeads } = model.hybrid ?? {};
  const heads = model.heads / shape.tp;
  const kinds = [
    { layers: fullLayersOf(model).attending, window: 0, isWindow: false },
    { layers: windowLayers + sharingWindowLayers, window: windowTokens, isWindow: true },
  ].filter(({ layers }) => layers > 0);
  return kinds.map(({ layers, window, isWindow }): Attention => {
    const own = isWindow ? windowHeads : undefined;
    const headDim = own?.headDim ?? trueHeadDim(model);
    const valueDim = own?.valueDim ?? model.valueDim ?? headDim;
    const elements = kvElements(model, shape.tp, isWindow);
    const kvBytes = kvElementBytesOf(model) <= 1 ? 1 : 2;
    const want = { heads, kvHeads: Math.round(elements / (headDim + valueDim)), headDim, window, kvBytes };
    const { peakFlops16PerUs, peakBytesPerUs } = shape;
    const prefillFloor =
      (grid: AttentionGrid): Floor2 =>
      (requests, tokens) =>
        launchUs +
        (requests * pairsOf(tokens, grid.window) * 4 * grid.heads * grid.headDim) / peakFlops16PerUs;
    const decodeFloor =
      (grid: AttentionGrid): Floor2 =>
      (requests, tokens) => {
        const seen = grid.window > 0 ? Math.min(tokens, grid.window) : tokens;
        return launchUs + (requests * seen * 2 * grid.kvHeads * grid.headDim * grid.kvBytes) / peakBytesPerUs;
      };
    return {
      layers,
      prefill: ratiosOf(tables.prefill, want, prefillFloor, 'attention of prompts', borrowed),
      decode: ratiosOf(tables.decode, want, decodeFloor, 'attention of decodes', borrowed),
      pairFlops: 2 * heads * (headDim + valueDim),
      tokenBytes: elements * kvElementBytesOf(model),
      tokenFlops: 0,
      weightBytes: 0,
      window,
    };
  });
}

/** MLA with its projections, where the card has tables of it. */
function latentOf(
  model: ModelConfig,
  shape: EngineShape,
  tables: CardTables,
  borrowed: Set<string>,
): Attention | undefined {
  if (model.kvLoraRank === 0) return undefined;
  const { mla } = model;
  if (tables.latentDecode.length === 0 || mla === undefined) {
    const why = `${tables.gpu} has no tables of MLA`;
    throw configError('gpu', `is ${tables.gpu}, and ${why}`, 'Use calibrated.');
  }
  const heads = model.heads / shape.tp;
  const kvBytes = kvElementBytesOf(model) <= 1 ? 1 : 2;
  const format = model.keepsAttention || weightFormatOf(model) === 'bfloat16' ? 'bfloat16' : 'fp8_block';
  const distance = (grid: LatentGrid): number =>
    apart(grid.heads, heads) + (grid.kvBytes === kvBytes ? 0 : 1) + (grid.format === format ? 0 : 1);
  const [prefill] = nearest(tables.latentPrefill, distance, 1);
  const [decode] = nearest(tables.latentDecode, distance, 1);
  const named = ({ heads: count, format: each }: LatentGrid): string => `${count} heads in ${each}`;
  for (const { one } of [prefill, decode]) {
    if (distance(one) > 0) borrowed.add(`MLA of ${heads} heads in ${format}: ${named(one)}`);
  }
  // sizes of DeepSeek V3, which was measured, and of this model
  const own = shape.tokenMatrices.slice(0, shape.attentionMatrices);
  const elementsOf = (count: number): number =>
    own.reduce(
      (sum, { depth, columns, count: layers }) =>
        sum + (depth * columns * count * layers) / model.layers / heads,
      0,
    );
  const pairFlops = 2 * (mla.plainHeadDim + model.qkRopeHeadDim + mla.valueHeadDim);
  const tokenBytes = layerKvBytesPerToken(model, shape.tp, kvElementBytesOf(model));
  const { peakFlops16PerUs: flops, peakBytesPerUs: bytes } = shape;
  const bits = format === 'bfloat16' ? 2 : 1;
  const prefillFloor =
    (grid: LatentGrid): Floor2 =>
    (requests, tokens) =>
      launchUs +
      (requests * (pairsOf(tokens, 0) * pairFlops * grid.heads + 2 * tokens * elementsOf(grid.heads))) /
        flops;
  const decodeFloor =
    (grid: LatentGrid): Floor2 =>
    (requests, tokens) =>
      launchUs + (requests * tokens * tokenBytes + elementsOf(grid.heads) * bits) / bytes;
  return {
    layers: fullLayersOf(model).attending,
    prefill: new FloorRatios(prefill.one, prefillFloor(prefill.one), most),
    decode: new FloorRatios(decode.one, decodeFloor(decode.one), most),
    pairFlops: pairFlops * heads,
    tokenBytes,
    tokenFlops: 2 * elementsOf(heads),
    weightBytes: elementsOf(heads) * bits,
    window: model.indexer?.topk ?? 0,
  };
}

/** Formats that stand in for one that a card has no table of, nearest first. */
const expertFormats: Readonly<Record<WeightFormat, readonly WeightFormat[]>> = {
  bfloat16: ['bfloat16'],
  fp8: ['fp8', 'fp8_block', 'bfloat16'],
  fp8_block: ['fp8_block', 'fp8', 'bfloat16'],
  int8: ['int8', 'fp8', 'bfloat16'],
  nvfp4: ['nvfp4', 'int4', 'mxfp4', 'fp8', 'bfloat16'],
  mxfp4: ['mxfp4', 'int4', 'nvfp4', 'fp8', 'bfloat16'],
  int4: ['int4', 'mxfp4', 'fp8', 'bfloat16'],
};

/** The time in µs by tokens of the experts of one layer on one GPU. */
function expertTimes(
  model: ModelConfig,
  shape: EngineShape,
  hardware: Hardware,
  tables: CardTables,
  isParallel: boolean,
  borrowed: Set<string>,
): (tokens: number) => number {
  const own = weightFormatOf(model);
  const format = expertFormats[own].find((each) => tables.experts.some((one) => one.format === each));
  if (format === undefined)
    throw configError('gpu', `is ${tables.gpu}, which has no table of experts`, 'Use calibrated.');
  const width = model.expertFfnSize || model.ffnSize;
  const gpus = shape.expertGpus;
  const [tp, ep] = isParallel ? [1, gpus] : [gpus, 1];
  const hidden = model.hiddenSize;
  const distance = (one: ExpertSeries): number =>
    one.format !== format
      ? Number.POSITIVE_INFINITY
      : apart(one.hidden, hidden) +
        apart(one.width, width) +
        2 * apart(one.experts, model.experts) +
        2 * apart(one.topk, model.expertsPerToken) +
        apart(one.tp, tp) +
        apart(one.ep, ep);
  const [near] = nearest(tables.experts, distance, 1);
  const { one } = near;
  if (distance(one) > 0 || format !== own) {
    const named = (
      of: Pick<ExpertSeries, 'experts' | 'topk' | 'width' | 'hidden' | 'tp' | 'ep'>,
      each: string,
    ): string =>
      `${of.topk} of ${of.experts} of ${of.hidden} x ${of.width} in ${each} over ${of.tp} x ${of.ep} GPUs`;
    const want = { experts: model.experts, topk: model.expertsPerToken, width, hidden, tp, ep };
    borrowed.add(`experts ${named(want, own)}: ${named(one, format)}`);
  }
  const floorOf =
    (of: Pick<ExpertSeries, 'experts' | 'topk' | 'width' | 'hidden' | 'tp' | 'ep'>, each: WeightFormat) =>
    (tokens: number): number => {
      const elements = (3 * of.hidden * of.width) / of.tp;
      const touched = expertsTouched({ experts: of.experts, expertsPerToken: of.topk }, tokens) / of.ep;
      const eight = ['fp8', 'fp8_block', 'int8'].includes(each) && hardware.peakTflops8bit > 0;
      const peak = (eight ? hardware.peakTflops8bit : hardware.peakTflops) * 1e6;
      const bytes = (touched * elements * weightBits[each]) / 8 + 4 * tokens * of.hidden;
      return (
        2 * launchUs +
        Math.max((2 * tokens * of.topk * elements) / of.ep / peak, bytes / (hardware.memoryTbPerS * 1e6))
      );
    };
  const theirs = floorOf(one, format);
  const ours = floorOf({ experts: model.experts, topk: model.expertsPerToken, width, hidden, tp, ep }, own);
  return (tokens) => (timeAt(one, tokens, theirs) * ours(tokens)) / theirs(tokens);
}
