/**
 * What engines said of themselves in public, beside what is predicted of them: memory that vLLM logged when it started, and
 * times of tokens that were measured on other cards. Each row of the two tables has the address where it stands. Rows marked
 * `seen` showed a rule of `engineMemory`; to the others, and to all times, nothing was fitted.
 */

import { inputError } from '../src/runtime/errors.ts';
import * as is from '../src/runtime/kinds.ts';
import { checkInputs } from '../src/runtime/options.ts';
import { loadCoefficients, loadHardware, loadModel } from '../src/sim/build/dataFiles.ts';
import { engineMemory, layerKvBytesPerToken } from '../src/sim/latency/engineMemory.ts';
import { kvLayout } from '../src/sim/latency/kvLayout.ts';
import { BatchSums } from '../src/sim/latency/latencyModel.ts';
import { newLatencyModel } from '../src/sim/latency/makeModel.ts';
import { kvElementBytesOf, type ModelConfig } from '../src/sim/latency/modelConfig.ts';

export interface LoggedFigure {
  readonly engine: string;
  /** `weights`, `activations`, `kv` or `tokens in N GiB`, of one GPU. */
  readonly what: string;
  /** GiB, or tokens. */
  readonly logged: number;
  readonly predicted: number;
  readonly errorPercent: number;
  /** Whether a rule of the formula was found on this row. */
  readonly isSeen: boolean;
  readonly source: string;
}

export interface ServedTokens {
  readonly engine: string;
  readonly served: string;
  readonly measuredMs: number;
  readonly predictedMs: number;
  readonly errorPercent: number;
  readonly source: string;
}

/** Rows of a table without quoted cells, by its head. */
function rowsOf(text: string): Record<string, string>[] {
  const [head, ...lines] = text.trimEnd().split('\n');
  const names = head.split(',');
  return lines.map((line) => Object.fromEntries(line.split(',').map((cell, i) => [names[i], cell])));
}

/** The model with weights of another precision, where a row says so. */
function modelOf(name: string, weightBytes: string): ModelConfig {
  const model = loadModel(name);
  if (weightBytes === '') return model;
  const { storedWeightBytes: _, ...plain } = model;
  return { ...plain, weightBytes: Number(weightBytes) };
}

/** Tokens of all groups of layers that fit into the memory, as vLLM counts them. */
function tokensIn(model: ModelConfig, tp: number, gib: number): number {
  const { groupLayers, fullGroups, windowGroups, linearGroups } = kvLayout(model);
  const blockBytes = 16 * groupLayers * layerKvBytesPerToken(model, tp, kvElementBytesOf(model));
  const blocks = Math.floor((gib * 2 ** 30) / blockBytes);
  return Math.floor(blocks / (fullGroups + windowGroups + linearGroups)) * 16;
}

/** @param text of data/latency/vllm-logs.csv */
export function loggedFigures(text: string): LoggedFigure[] {
  checkInputs({ text }, { text: is.text() });
  return rowsOf(text).map((row): LoggedFigure => {
    const model = modelOf(row.model, row.weight_bytes);
    const tp = Number(row.tp);
    const logged = Number(row.logged);
    const gib = /^tokens in ([\d.]+) GiB$/.exec(row.what)?.[1];
    const predicted = gib === undefined ? figureOf(row, model, tp) : tokensIn(model, tp, Number(gib));
    const bits = row.weight_bytes === '1' ? ' in FP8' : '';
    const limits = gib === undefined ? `, ${row.sequences} sequences, ${row.tokens} tokens` : '';
    return {
      engine: `${row.model}${bits} on ${tp} x ${row.gpu || 'any GPU'}${limits}`,
      what: row.what,
      logged,
      predicted,
      errorPercent: 100 * (predicted / logged - 1),
      isSeen: row.use === 'seen',
      source: row.source,
    };
  });
}

function figureOf(row: Readonly<Record<string, string>>, model: ModelConfig, tp: number): number {
  // weights and activations are the same on all: a card with room for them
  const memory = engineMemory(model, loadHardware(row.gpu || 'MI300X'), {
    tp,
    dp: 1,
    blockTokens: 16,
    // what is asked is one part: a utilisation of 1 leaves room for KV, and no part but KV depends on it
    memoryUtilization: row.what === 'kv' ? Number(row.utilization) : 1,
    maxSequences: Number(row.sequences),
    maxBatchedTokens: Number(row.tokens),
  });
  if (row.what === 'weights') return memory.weightsGib;
  if (row.what === 'activations') return memory.activationsGib;
  if (row.what === 'kv') return memory.kvGib;
  throw inputError('what', `is "${row.what}". Write weights, activations, kv or tokens in N GiB.`);
}

/**
 * Time of a token in the middle of an answer, by H100's coefficients on each GPU's own peaks, memory and links.
 * @param text of data/latency/served-tokens.csv
 */
export function servedTokens(text: string): ServedTokens[] {
  checkInputs({ text }, { text: is.text() });
  const coefficients = loadCoefficients('calibrated', loadHardware('H100'), undefined);
  return rowsOf(text).map((row): ServedTokens => {
    const model = modelOf(row.model, row.weight_bytes);
    const hardware = loadHardware(row.gpu);
    const latency = newLatencyModel({ model, hardware, tp: Number(row.tp), coefficients });
    const requests = Number(row.concurrency);
    const batch = new BatchSums(latency.windowTokens);
    batch.addDecodes(requests, Math.round(requests * (Number(row.prompt) + Number(row.output) / 2)));
    const measuredMs = Number(row.tpot_ms);
    const predictedMs = latency.stepTimeUs(batch) / 1000;
    return {
      engine: `${row.model} on ${row.tp} x ${row.gpu}, ${row.engine}`,
      served: `${requests} at once, ${row.prompt} + ${row.output} tokens`,
      measuredMs,
      predictedMs,
      errorPercent: 100 * (predictedMs / measuredMs - 1),
      source: row.source,
    };
  });
}
