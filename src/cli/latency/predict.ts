/**
 * `tierkv latency predict`: how long a batch takes on a GPU, what that is made of, and how far above the
 * floor it lies.
 */

import { printable, renderTable } from '../../io/printing/text.ts';
import {
  configError,
  requireFraction,
  requireInteger,
  requirePositive,
  TierKVError,
} from '../../runtime/errors.ts';
import { chooseCoefficients, loadHardware, loadModel, modelDefaults } from '../../sim/build/dataFiles.ts';
import { get, nothingSaid } from '../../sim/description/settings.ts';
import { kvBytesPerToken } from '../../sim/latency/capacity.ts';
import { engineMemory } from '../../sim/latency/engineMemory.ts';
import { BatchSums, type StepPart } from '../../sim/latency/latencyModel.ts';
import type { LatencyBackend, MoeCommBackend } from '../../sim/latency/latencyNames.ts';
import { newLatencyModel } from '../../sim/latency/makeModel.ts';
import { engineShape, PhysicalFloor } from '../../sim/latency/physics.ts';
import { inFlags, latencyFlags } from '../flags.ts';

interface PredictOptions {
  readonly model: string;
  readonly gpu?: string;
  readonly tp?: number;
  readonly dp: number;
  readonly backend: LatencyBackend;
  readonly coefficients?: string;
  readonly moeCommBackend: MoeCommBackend;
  readonly batch: readonly string[];
  readonly floor: boolean;
  readonly blockTokens: number;
  readonly memoryUtilization: number;
}

interface BatchPrediction {
  readonly batch: string;
  readonly stepUs: number;
  readonly floorUs: number;
  readonly parts: readonly StepPart[];
}

export interface PredictReport {
  readonly model: string;
  readonly gpu: string;
  readonly tp: number;
  readonly dp: number;
  readonly backend: string;
  /** The GPU whose coefficients stand in, where none measured on `gpu` ship. */
  readonly measuredOn?: string;
  readonly floor: boolean;
  readonly kvBytesPerToken: number;
  /** Absent when the formula does not describe the model or nothing fits; `kvBlocksProblem` says which. */
  readonly kvBlocks?: number;
  readonly kvBlocksProblem?: string;
  readonly queueingUsOf512Tokens: number;
  readonly outputTokenProcessingUs: number;
  readonly postDecodeOverheadUs: number;
  readonly batches: readonly BatchPrediction[];
}

/** @throws {TierKVError} for anything unknown or out of range. */
export function predict(options: PredictOptions): PredictReport {
  return inFlags(latencyFlags, () => predictBatches(options));
}

function predictBatches(options: PredictOptions): PredictReport {
  const model = loadModel(options.model);
  const defaults = modelDefaults(model.name);
  const hardware = loadHardware(options.gpu ?? defaults?.gpu ?? 'H100');
  const tp = requireInteger('--tp', options.tp ?? defaults?.tp ?? 1, 1, 1024);
  const dp = requireInteger('--dp', options.dp, 1, 1024);
  const { coefficients, standsIn } = chooseCoefficients(options.backend, hardware, options.coefficients);
  const { floor, moeCommBackend } = options;
  const latency = newLatencyModel({ model, hardware, tp, dp, coefficients, moeCommBackend, floor });
  const physics = new PhysicalFloor(engineShape(model, hardware, { tp, dp }));
  const batches = options.batch.map((text): BatchPrediction => {
    const sums = parseBatch(text, latency.windowTokens);
    return {
      batch: text,
      stepUs: latency.stepTimeUs(sums),
      floorUs: physics.floorUs(sums),
      parts: latency.explain(sums),
    };
  });
  let blocks: { kvBlocks: number } | { kvBlocksProblem: string };
  const blockTokens = requireInteger('--block-tokens', options.blockTokens, 1, 2 ** 20);
  const memoryUtilization = requireFraction(
    '--gpu-memory-utilization',
    requirePositive('--gpu-memory-utilization', options.memoryUtilization),
  );
  try {
    // as tierkv simulate has it, with the batches that it takes unless told otherwise
    const batches = {
      maxSequences: get(nothingSaid, 'engine.maxSequences'),
      maxBatchedTokens: get(nothingSaid, 'engine.maxBatchedTokens'),
    };
    const shape = { tp, dp, blockTokens, memoryUtilization, ...batches };
    blocks = { kvBlocks: engineMemory(model, hardware, shape).blocks };
  } catch (error) {
    if (!(error instanceof TierKVError)) throw error;
    blocks = { kvBlocksProblem: error.message };
  }
  return {
    model: model.name,
    gpu: hardware.name,
    tp,
    dp,
    backend: latency.backend,
    ...(standsIn && 'gpu' in coefficients ? { measuredOn: coefficients.gpu } : {}),
    floor,
    kvBytesPerToken: kvBytesPerToken(model, tp),
    ...blocks,
    queueingUsOf512Tokens: latency.queueingTimeUs(512),
    outputTokenProcessingUs: latency.outputTokenProcessingUs,
    postDecodeOverheadUs: latency.postDecodeOverheadUs,
    batches,
  };
}

const ms = (us: number): string => (us / 1000).toFixed(3);

export function renderPrediction(report: PredictReport): string {
  const { model, gpu, tp, dp, backend, measuredOn, kvBlocks, kvBlocksProblem } = report;
  const engine = `${gpu} x ${tp}${dp > 1 ? ` x ${dp} ranks` : ''}`;
  const why =
    measuredOn === undefined
      ? ''
      : printable(
          ` on ${measuredOn}, since nothing measured on ${gpu} is shipped: its own peaks, memory and links at the shares of ` +
            `${measuredOn}. Calibrate by tierkv latency fit`,
        );
  const head =
    `${printable(`${model} on ${engine}`)}, ` +
    `${backend}${report.floor ? '' : ', without the physical floor'}${why}\n`;
  const rows = report.batches.map(({ batch, stepUs, floorUs, parts }) => [
    batch,
    ms(stepUs),
    ms(floorUs),
    (stepUs / Math.max(floorUs, 1e-9)).toFixed(2),
    parts
      .filter(({ us }) => us >= 0.5)
      .map(({ part, us }) => `${part} ${ms(us)}`)
      .join(', '),
  ]);
  const table = renderTable(
    [
      { title: 'batch' },
      { title: 'step ms', align: 'right' },
      { title: 'floor ms', align: 'right' },
      { title: 'step/floor', align: 'right' },
      { title: 'made of (ms)' },
    ],
    rows,
  );
  const blocks =
    kvBlocks === undefined
      ? `no automatic block count: ${printable(kvBlocksProblem ?? '')}`
      : `KV blocks ${kvBlocks}`;
  return `${head}${table}KV bytes/token/GPU ${report.kvBytesPerToken}, ${blocks}\n`;
}

// Batches as users write them: `decode=64@512` are 64 decodes with 512 tokens in their caches, `prefill=2048`
// is a whole prompt, `prefill=512@1024` 512 new tokens after 1024 cached ones, `prefill=512@1024/4096` such a
// piece of a prompt of 4096. Several go into one batch with commas.

const part = /^(prefill|decode)=(\d+)(?:@(\d+))?(?:\/(\d+))?$/;

function wrong(text: string, problem: string): never {
  throw configError('--batch', `"${text}" ${problem}`, 'Write for example decode=64@512,prefill=2048.');
}

/**
 * @param windowTokens of the model of time that is asked
 * @throws {TierKVError} TKV_CONFIG for anything else.
 */
function parseBatch(text: string, windowTokens: number = 0): BatchSums {
  const sums = new BatchSums(windowTokens);
  for (const piece of text.split(',')) {
    const match = part.exec(piece.trim());
    if (match === null) wrong(text, `has a part "${piece}" that must be a prefill or a decode`);
    const [count, at, whole] = [match[2], match[3], match[4]].map((digits) =>
      digits === undefined ? undefined : Number(digits),
    );
    if (!Number.isSafeInteger(count) || count! < 1 || count! > 1e9 || (at ?? 0) > 1e9 || (whole ?? 0) > 1e9) {
      wrong(text, 'has a number outside 1 to 1000000000');
    }
    if (match[1] === 'decode') {
      if (whole !== undefined) wrong(text, 'gives a prompt length to decodes');
      sums.addDecodes(count!, count! * (at ?? 0), count! * sums.inWindow(at ?? 0));
      continue;
    }
    const cached = at ?? 0;
    const promptTokens = whole ?? cached + count!;
    if (cached + count! > promptTokens)
      wrong(text, `processes more than its prompt of ${promptTokens} tokens`);
    sums.add({ promptTokens, progressTokens: cached, newTokens: count!, outputTokens: 1 });
  }
  return sums;
}
