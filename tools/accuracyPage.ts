/**
 * `npm run accuracy`: the page that says how far predictions are from measured runs. What is shipped is on it, and each
 * folder of a measured run that it is given: `requests.jsonl` (or another form of a run) beside `meta.json` with vLLM's
 * engine arguments, LLMServingSim's `config.json` or a log of the engine. A run whose GPU and model coefficients were fitted to is split in
 * halves: the first is fitted to, the second judged. Others are judged whole, by coefficients that did not see them.
 */

import fs from 'node:fs';
import path from 'node:path';
import { TierKVError } from '../src/runtime/errors.ts';
import {
  latencyDataFile,
  loadCoefficients,
  loadHardware,
  loadModel,
  readText,
} from '../src/sim/build/dataFiles.ts';
import { type ComparedValue, compareTimes } from '../src/sim/fitting/comparison.ts';
import { measuredRun, type ServedBy } from '../src/sim/fitting/fitRequests.ts';
import type { CalibratedCoefficients } from '../src/sim/latency/calibrated.ts';
import { onLinksOf } from '../src/sim/latency/calibrated.ts';
import { engineMemory } from '../src/sim/latency/engineMemory.ts';
import { readMeasuredRun } from '../src/sim/latency/fit/measuredRuns.ts';
import { fitRun, replayRun } from '../src/sim/latency/fit/runFit.ts';
import { kvLayout } from '../src/sim/latency/kvLayout.ts';
import { BatchSums, sumBatch } from '../src/sim/latency/latencyModel.ts';
import { newLatencyModel } from '../src/sim/latency/makeModel.ts';
import type { LoggedFigure, ServedTokens } from './publicFigures.ts';

interface AccuracyRow {
  readonly run: string;
  readonly served: string;
  readonly calibratedOn: string;
  readonly judgedOn: string;
  readonly values: readonly ComparedValue[];
}

interface CapacityRow {
  readonly run: string;
  readonly measured: string;
  readonly predicted: string;
  readonly errorPercent: number;
  readonly fittedOn: boolean;
}

/** A run that was left out, and why. */
interface SkippedRun {
  readonly run: string;
  readonly why: string;
}

/** Steps of another engine on one GPU and one degree of parallelism; mean errors in percent. */
interface StepRow {
  readonly engine: string;
  readonly count: number;
  readonly promptPercent: number;
  readonly tokenPercent: number;
}

interface AccuracyReport {
  /** Tables of served points. */
  readonly served: string;
  readonly rows: readonly AccuracyRow[];
  readonly steps: readonly StepRow[];
  readonly capacity: readonly CapacityRow[];
  readonly logged: readonly LoggedFigure[];
  readonly tokens: readonly ServedTokens[];
  readonly skipped: readonly SkippedRun[];
}

const object = (value: unknown): Readonly<Record<string, unknown>> =>
  typeof value === 'object' && value !== null && !Array.isArray(value)
    ? (value as Record<string, unknown>)
    : {};

function jsonOf(file: string): Readonly<Record<string, unknown>> {
  try {
    return object(JSON.parse(readText(file)));
  } catch (cause) {
    if (cause instanceof TierKVError) throw cause;
    throw new TierKVError('TKV_INPUT', `${file}: is not valid JSON. Mend it`, { path: file, cause });
  }
}

/** The first file of a folder, or of one in it, that has one of the names. */
function fileIn(folder: string, ...names: readonly string[]): string | undefined {
  const places = [folder, path.join(folder, 'vllm'), path.dirname(folder)];
  return places
    .flatMap((place) => names.map((name) => path.join(place, name)))
    .find((file) => fs.existsSync(file));
}

/** @param value undefined, null and Python's None say nothing @throws TKV_INPUT for another value than a whole number above 0 */
function whole(value: unknown, otherwise: number, field: string, folder: string): number {
  if (value === undefined || value === null || value === 'None') return otherwise;
  if (typeof value === 'number' && Number.isInteger(value) && value > 0) return value;
  throw new TierKVError(
    'TKV_INPUT',
    `${folder}: ${field} must be a whole number above 0, and it is ${JSON.stringify(value)}. Write it as a number, or leave it out`,
    { path: folder, field },
  );
}

/** A name, or the one in an object which says more, as newer files have it; '' where nothing is said. */
function named(value: unknown, field: string, folder: string): string {
  if (value === undefined || value === null) return '';
  const { name } = object(value);
  const text = typeof value === 'string' ? value : name;
  if (typeof text === 'string' && text !== '') return text;
  throw new TierKVError(
    'TKV_INPUT',
    `${folder}: ${field} must be a name, and it is ${JSON.stringify(value)}. Write it as a text`,
    {
      path: folder,
      field,
    },
  );
}

/** How the run of a folder was served, by the files beside it. What they do not say is vLLM's default, and told. */
export function servedBy(folder: string): { readonly by: ServedBy; readonly assumed: readonly string[] } {
  const metaFile = fileIn(folder, 'meta.json');
  const configFile = fileIn(folder, 'config.json');
  const meta = metaFile === undefined ? {} : jsonOf(metaFile);
  const said = object(meta.engine_kwargs ?? meta.engine ?? meta);
  const config = configFile === undefined ? {} : jsonOf(configFile);
  const log = logOf(folder);
  const engine = { ...log.args, ...said };
  const node = object((Array.isArray(config.nodes) ? config.nodes : [])[0]);
  const instance = object((Array.isArray(node.instances) ? node.instances : [])[0]);
  const model = named(meta.model ?? engine.model ?? instance.model_name ?? config.model, 'model', folder);
  const gpu = named(meta.gpu ?? meta.hardware ?? instance.hardware ?? config.gpu, 'gpu', folder);
  if (model === '' || gpu === '') {
    const missing = model === '' ? 'model' : 'gpu';
    throw new TierKVError(
      'TKV_INPUT',
      `${folder}: neither meta.json nor config.json says the ${missing}. Add "${missing}"`,
      {
        path: folder,
        field: missing,
      },
    );
  }
  const assumed: string[] = [];
  const count = (field: string, otherwise: number, given: unknown = engine[field]): number =>
    whole(given, otherwise, field, folder);
  const need = (name: string, otherwise: number): number => {
    const found = count(name, 0);
    if (found === 0) assumed.push(`${name} ${otherwise}`);
    return found || otherwise;
  };
  // `mem_util` of LLMServingSim is that simulator's share, and says nothing of the engine's
  const share = engine.gpu_memory_utilization;
  const utilization = typeof share === 'number' ? share : 0;
  const isShare = utilization > 0 && utilization <= 1;
  if (!isShare && share !== undefined && share !== null && share !== 'None') {
    throw new TierKVError(
      'TKV_INPUT',
      `${folder}: gpu_memory_utilization must be a share above 0 and at most 1, and it is ` +
        `${JSON.stringify(share)}. Write it as a number, or leave it out`,
      { path: folder, field: 'gpu_memory_utilization' },
    );
  }
  if (!isShare && object(instance.npu_mem).mem_util !== undefined) assumed.push('gpu_memory_utilization 0.9');
  const by: ServedBy = {
    gpu,
    model,
    tp: count('tensor_parallel_size', 1, engine.tensor_parallel_size ?? instance.tp_size),
    dp: count('data_parallel_size', 1),
    maxSequences: need('max_num_seqs', 128),
    maxBatchedTokens: need('max_num_batched_tokens', 2048),
    memoryUtilization: isShare ? utilization : 0.9,
    blockTokens: count('block_size', 16),
  };
  const kvBlocks = blocksSaid(count('num_gpu_blocks', 0) || log.gpuBlocks, log.kvTokens, by);
  return { by: kvBlocks === undefined ? by : { ...by, kvBlocks }, assumed };
}

// What vLLM says of itself when it starts, out of its log: its arguments, and how many KV blocks it has. Lines of any version
// since 0.4 that say one of these are read, the last of each kind counts, and everything else is passed over.

/** Of these, what the log says. */
interface LoggedEngine {
  /** Arguments by vLLM's names, as `tensor_parallel_size`. */
  readonly args: Readonly<Record<string, string | number>>;
  /** Blocks of the pool, where they are said as such. */
  readonly gpuBlocks?: number;
  /** Tokens that fit, over all groups of layers: blocks of the pool / groups x tokens of a block. */
  readonly kvTokens?: number;
}

/** `'name': value`, `name=value` and `--name value` of the lines that list arguments. */
const argument = /['"]?(\w+)['"]?\s*[:=]\s*(?:'([^']*)'|"([^"]*)"|([\d.]+(?:e[+-]?\d+)?|True|False|None))/g;
const listsArguments =
  /non-default args:|Namespace\(|Initializing an? (?:V\d )?LLM engine|Initialized engine with config/;

/** A number with thousands parted by commas. */
function counted(text: string): number {
  return Number(text.replaceAll(',', ''));
}

export function parseEngineStart(text: string): LoggedEngine {
  const args: Record<string, string | number> = {};
  let gpuBlocks: number | undefined;
  let kvTokens: number | undefined;
  for (const line of text.split(/\r?\n/)) {
    const start = listsArguments.exec(line);
    if (start !== null) {
      for (const [, name, single, double, bare] of line.slice(start.index).matchAll(argument)) {
        const quoted = single ?? double;
        if (quoted !== undefined) args[name] = quoted;
        else if (/^[\d.]/.test(bare) && Number.isFinite(Number(bare))) args[name] = Number(bare);
      }
    }
    const blocks = /# (?:GPU|CUDA|cuda) blocks: ([\d,]+)|num_gpu_blocks(?: is)?: ([\d,]+)/.exec(line);
    if (blocks !== null) gpuBlocks = counted(blocks[1] ?? blocks[2]);
    const tokens = /GPU KV cache size: ([\d,]+) tokens/.exec(line);
    if (tokens !== null) kvTokens = counted(tokens[1]);
  }
  return {
    args,
    ...(gpuBlocks === undefined ? {} : { gpuBlocks }),
    ...(kvTokens === undefined ? {} : { kvTokens }),
  };
}

/** What logs of the engine say that lie in the folder. */
function logOf(folder: string): LoggedEngine {
  const places = [folder, path.join(folder, 'vllm')].filter((place) => fs.existsSync(place));
  const files = places.flatMap((place) =>
    fs
      .readdirSync(place)
      .filter((name) => /^(engine|vllm|server|serve)[\w.-]*\.(log|txt)$|\.log$/.test(name))
      .sort()
      .map((name) => path.join(place, name)),
  );
  return parseEngineStart(files.map((file) => readText(file)).join('\n'));
}

/** Blocks as this project counts them, of all layers that keep their context; a log counts those of one group of layers. */
function blocksSaid(
  gpuBlocks: number | undefined,
  kvTokens: number | undefined,
  { model, blockTokens }: ServedBy,
): number | undefined {
  if (!gpuBlocks && kvTokens === undefined) return undefined;
  const { fullGroups, windowGroups, linearGroups } = kvLayout(loadModel(model));
  const pool = gpuBlocks || ((kvTokens ?? 0) / blockTokens) * (fullGroups + windowGroups + linearGroups);
  return Math.floor(pool / fullGroups);
}

/** Blocks that a run's engine logged beside what follows from GPU, model and limits; nothing of it was fitted. */
function capacityOf(name: string, by: ServedBy): CapacityRow[] {
  const { kvBlocks, ...unsaid } = by;
  if (kvBlocks === undefined) return [];
  const predicted = measuredRun([], unsaid).kvBlocks;
  return [
    {
      run: `${name}: ${loadModel(by.model).name} on ${by.tp * by.dp} x ${loadHardware(by.gpu).name}`,
      measured: `${kvBlocks} blocks`,
      predicted: `${predicted} blocks`,
      errorPercent: 100 * (predicted / kvBlocks - 1),
      fittedOn: false,
    },
  ];
}

function coefficientsFor(gpu: string): { readonly values: CalibratedCoefficients; readonly from: string } {
  const hardware = loadHardware(gpu);
  try {
    const values = loadCoefficients('calibrated', hardware, undefined).values as CalibratedCoefficients;
    return { values, from: hardware.name };
  } catch (error) {
    if (!(error instanceof TierKVError) || error.code !== 'TKV_CONFIG') throw error;
    const h100 = loadCoefficients('calibrated', loadHardware('H100'), undefined)
      .values as CalibratedCoefficients;
    return { values: onLinksOf(hardware, 'H100', h100), from: 'H100' };
  }
}

/**
 * The rows of one run.
 * @param file with the requests; @param seen whether the shipped coefficients of the GPU were fitted to its first half
 */
export function accuracyOf(name: string, file: string, by: ServedBy, seen: boolean): AccuracyRow[] {
  const { requests } = readMeasuredRun(readText(file), file);
  const { kvBlocks, ...run } = measuredRun(requests, by);
  const half = Math.floor(requests.length / 2);
  const served = `${loadModel(by.model).name} on ${by.tp * by.dp} x ${loadHardware(by.gpu).name}, ${kvBlocks} blocks`;
  const { values: shipped, from } = coefficientsFor(by.gpu);
  const row = (calibratedOn: string, coefficients: CalibratedCoefficients, first: number): AccuracyRow => ({
    run: name,
    served,
    calibratedOn,
    judgedOn:
      first === 0 ? `all ${requests.length} requests` : `the last ${requests.length - first} requests`,
    values: compareTimes(requests, replayRun(run, coefficients), first),
  });
  const rows = [
    row(
      `${from}'s coefficients${seen ? ', which saw the first half' : ', nothing of this run'}`,
      shipped,
      seen ? half : 0,
    ),
  ];
  if (seen) {
    const hardware = loadHardware(by.gpu);
    const h100 = loadCoefficients('calibrated', loadHardware('H100'), undefined)
      .values as CalibratedCoefficients;
    rows.push(row("H100's coefficients, nothing of this run", onLinksOf(hardware, 'H100', h100), 0));
  }
  // a fit to ten requests says nothing
  if (!seen && half >= 10) rows.push(row('the first half of this run', fitRun(run, shipped, half), half));
  return rows;
}

/** Blocks and KV memory that engines logged, beside what follows from GPU, model and limits. */
export function capacityRows(text: string): CapacityRow[] {
  const [, ...lines] = text.trimEnd().split('\n');
  return lines.map((line): CapacityRow => {
    const [model, gpu, tp, sequences, tokens, utilization, , , kv, blocks, , use] = line.split(',');
    const memory = engineMemory(loadModel(model), loadHardware(gpu), {
      tp: Number(tp),
      dp: 1,
      blockTokens: 16,
      memoryUtilization: Number(utilization),
      maxSequences: Number(sequences),
      maxBatchedTokens: Number(tokens),
    });
    const byBlocks = blocks !== '';
    const [measured, predicted] = byBlocks ? [Number(blocks), memory.blocks] : [Number(kv), memory.kvGib];
    return {
      run: `${model} on ${tp} x ${gpu}, ${sequences} sequences, ${tokens} tokens`,
      measured: byBlocks ? `${blocks} blocks` : `${kv} GiB`,
      predicted: byBlocks ? `${predicted} blocks` : `${predicted.toFixed(2)} GiB`,
      errorPercent: 100 * (predicted / measured - 1),
      fittedOn: use === 'fitted',
    };
  });
}

/**
 * Prompts and tokens of batches of at most `mostBatch` beside H100's coefficients on each GPU's own links. Nothing of them was
 * fitted to.
 * @param text of data/latency/splitwise-steps.csv
 */
export function stepRows(text: string, mostBatch: number = 8): StepRow[] {
  const [, ...lines] = text.trimEnd().split('\n');
  const rows = lines.map((line) => line.split(',')).filter(([, , , , batch]) => Number(batch) <= mostBatch);
  const coefficients = loadCoefficients('calibrated', loadHardware('H100'), undefined);
  const groups = Map.groupBy(rows, ([model, gpu, tp]) => `${model} on ${tp} x ${gpu}`);
  return [...groups].map(([engine, group]): StepRow => {
    let [promptSum, tokenSum] = [0, 0];
    for (const [model, gpu, tp, prompt, batch, output, , promptMs, tokenMs] of group) {
      const latency = newLatencyModel({
        model: loadModel(model),
        hardware: loadHardware(gpu),
        tp: Number(tp),
        coefficients,
      });
      const requests = Array.from({ length: Number(batch) }, () => {
        return {
          promptTokens: Number(prompt),
          progressTokens: 0,
          newTokens: Number(prompt),
          outputTokens: 2,
        };
      });
      const decodes = new BatchSums();
      decodes.addDecodes(Number(batch), Number(batch) * (Number(prompt) + Number(output) / 2));
      promptSum += latency.stepTimeUs(sumBatch(requests)) / 1000 / Number(promptMs) - 1;
      tokenSum += latency.stepTimeUs(decodes) / 1000 / Number(tokenMs) - 1;
    }
    const count = group.length;
    return {
      engine,
      count,
      promptPercent: (100 * promptSum) / count,
      tokenPercent: (100 * tokenSum) / count,
    };
  });
}

/** Folders below `root` that hold a measured run, `root` itself among them. */
function runFolders(root: string): string[] {
  const here = fs.readdirSync(root, { withFileTypes: true });
  const own = here.some((entry) => entry.isFile() && /^requests\.(jsonl|csv|json)$/.test(entry.name))
    ? [root]
    : [];
  const below = here
    .filter((entry) => entry.isDirectory())
    .map(({ name }) => name)
    .sort();
  return [...own, ...below.flatMap((name) => runFolders(path.join(root, name)))];
}

/** Whether a run is the one that ships, whose first half the shipped coefficients saw. */
function isShipped(file: string): boolean {
  const [own, shipped] = [file, latencyDataFile('rtx-pro-6000-run.csv')].map((at) => {
    const { requests } = readMeasuredRun(readText(at), String(at));
    return requests.map(({ promptTokens, outputTokens }) => `${promptTokens}/${outputTokens}`).join();
  });
  return own === shipped;
}

/** All runs below the folders; one that cannot be judged is named with its reason, and the others go on. */
export function runsOf(roots: readonly string[]): {
  readonly rows: AccuracyRow[];
  readonly capacity: CapacityRow[];
  readonly skipped: SkippedRun[];
} {
  const rows: AccuracyRow[] = [];
  const capacity: CapacityRow[] = [];
  const skipped: SkippedRun[] = [];
  for (const root of roots) {
    for (const folder of runFolders(root)) {
      const name = path.relative(path.dirname(path.resolve(root)), path.resolve(folder)) || folder;
      try {
        const { by, assumed } = servedBy(folder);
        const file = fileIn(folder, 'requests.jsonl', 'requests.csv', 'requests.json')!;
        const shown = assumed.length === 0 ? name : `${name} (assumed: ${assumed.join(', ')})`;
        capacity.push(...capacityOf(name, by));
        rows.push(...accuracyOf(shown, file, by, isShipped(file)));
      } catch (error) {
        if (!(error instanceof TierKVError)) throw error;
        skipped.push({ run: name, why: error.message });
      }
    }
  }
  return { rows, capacity, skipped };
}

/** What others state for a run that ships: LLMServingSim of the run on RTX PRO 6000 (`summary.txt` beside it, MIT). */
const stated = [
  '| LLMServingSim, its own simulator on the same 300 requests | −4.0 | −1.0 | −1.8 | −8.6 | 0.0 | −1.2 | −2.0 | +0.6 | −1.6 |',
];

const percent = (value: number | undefined): string =>
  value === undefined ? '–' : `${value < 0 ? '−' : '+'}${Math.abs(value).toFixed(1)}`;

/** A link with what tells it from others. */
function sourceOf(address: string): string {
  const { hostname, pathname } = new URL(address);
  const name = hostname === 'github.com' ? pathname.slice(1).replace(/\/(issues|pull)\//, '#') : hostname;
  return `[${name}](${address})`;
}

/** How far the judged rows are off. */
function medianText(logged: readonly LoggedFigure[]): string {
  const errors = logged
    .filter(({ isSeen }) => !isSeen)
    .map(({ errorPercent }) => Math.abs(errorPercent))
    .sort((a, b) => a - b);
  if (errors.length === 0) return '';
  const median = errors[Math.floor(errors.length / 2)];
  const within = errors.filter((error) => error <= 5).length;
  return `Of ${errors.length} judged rows ${within} are within 5 %, the median is ${median.toFixed(1)} %.`;
}

/** The page in Markdown. */
export function accuracyPage({
  served,
  rows,
  steps,
  capacity,
  logged,
  tokens,
  skipped,
}: AccuracyReport): string {
  const of = (row: AccuracyRow, what: string, point: string): string =>
    percent(row.values.find((value) => value.what === what && value.point === point)?.errorPercent);
  const table = rows.map((row) => {
    const cells = ['mean', 'p50', 'p90', 'p99'].flatMap((point) =>
      ['TTFT', 'TPOT', 'E2E'].map((what) => of(row, what, point)),
    );
    return `| ${row.run}: ${row.served} | ${row.calibratedOn} | ${row.judgedOn} | ${cells.join(' | ')} |`;
  });
  const points = ['mean', 'p50', 'p90', 'p99'].flatMap((point) =>
    ['TTFT', 'TPOT', 'E2E'].map((what) => `${what} ${point}`),
  );
  const line = (capacityRow: CapacityRow): string =>
    `| ${capacityRow.run} | ${capacityRow.measured} | ${capacityRow.predicted} | ${percent(capacityRow.errorPercent)} | ${capacityRow.fittedOn ? 'fitted' : 'judged'} |`;
  return `${[
    '# How far predictions are from measured runs',
    '',
    'This page is for a person who wants to know how much to trust a simulated time. `npm run accuracy` makes it from what ships, and',
    '`npm run accuracy -- --runs DIR` adds every folder below DIR with a `requests.jsonl`, beside its `meta.json` (vLLM’s engine arguments) or',
    '`config.json`, or vLLM’s log. Errors are in percent: predicted over measured, less one. A row says what its coefficients were fitted to, and what',
    'judged them; no judged request was fitted to. Rows that are bad stand here too.',
    '',
    served,
    '## Times of requests',
    '',
    `| run | calibrated on | judged on | ${points.join(' | ')} |`,
    `|---|---|---|${points.map(() => '---:').join('|')}|`,
    ...table,
    '',
    '| what others state | TTFT mean | TPOT mean | E2E mean | TTFT p50 | TPOT p50 | E2E p50 | TTFT p99 | TPOT p99 | E2E p99 |',
    '|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|',
    ...stated,
    '',
    '## Tokens on other cards, with tensor and expert parallelism',
    '',
    'Times between tokens that others measured and published, with the engine that they name, beside a decode in the middle of an answer by H100’s',
    'coefficients on each card’s own peaks, memory and links. `simulate` takes the same where nothing measured on a card ships. Nothing was fitted to',
    'a row. What is far off: DeepSeek-V3 in AWQ, whose kernels for experts of 4 bits reached a third of what FP8 ones do; a small mixture alone on an',
    'A100, where launches of its experts’ kernels, which no measurement here tells apart, take most of the time; Qwen3-14B on an A100 that other runs',
    'of the same report show at 22 to 29 ms, above what its memory needs by half.',
    '',
    '| engine | load | measured, ms | predicted, ms | off by % | from |',
    '|---|---|---:|---:|---:|---|',
    ...tokens.map(
      (row) =>
        `| ${row.engine} | ${row.served} | ${row.measuredMs.toFixed(1)} | ${row.predictedMs.toFixed(1)} | ${percent(row.errorPercent)} | ${sourceOf(row.source)} |`,
    ),
    '',
    '## Steps on other cards, by an engine of 2023',
    '',
    'Splitwise measured prompts and tokens with an engine of 2023, and what it measures is the time from outside: a prompt or a token with the work',
    'that the engine does on the host between steps. That work is most of it. Tokens take as long on eight GPUs as on four (45 ms on A100, 30 on H100),',
    'and from two to four GPUs they get shorter by less than the weights do; what does not shrink with the GPUs is the host’s. The prediction is of an',
    'engine of 2025 (H100’s coefficients, nothing fitted, batches of at most 8), which does that work beside the GPU: 5 to 6 ms of a step. So every row',
    'is below what was measured, by more the less the GPUs have to do: tokens more than prompts, eight GPUs more than two, H100 more than A100.',
    'These rows say how far a model of one engine is from another, and nothing of the cards.',
    '',
    '| engine | steps | prompts, off by % | tokens, off by % |',
    '|---|---:|---:|---:|',
    ...steps.map(
      ({ engine, count, promptPercent, tokenPercent }) =>
        `| ${engine} | ${count} | ${percent(promptPercent)} | ${percent(tokenPercent)} |`,
    ),
    '',
    '## KV memory',
    '',
    '| engine | logged | predicted | off by % | the constants were |',
    '|---|---:|---:|---:|---|',
    ...capacity.map(line),
    '',
    'What vLLM logged of itself in public, of one GPU. Rules of the formula were found on the rows marked `seen` (that experts in MXFP4 are padded, that',
    'a dummy request of the profile run needs a token); the others were looked at afterwards and changed nothing. ' +
      medianText(logged),
    'Limits that a report does not say are what its version takes on that card. Not counted: towers for images (Gemma 3), and what versions differ in:',
    '0.19 on A100 held 0.7 GiB less for sampling than the formula says. The farthest row, Qwen3-235B beside a connector of LMCache, held 1.9 GiB more than',
    'anything in its report tells.',
    '',
    '| engine | what | logged | predicted | off by % | the row was | from |',
    '|---|---|---:|---:|---:|---|---|',
    ...logged.map((row) => {
      const shown = (value: number): string =>
        row.what.startsWith('tokens') ? String(value) : `${value.toFixed(2)} GiB`;
      return `| ${row.engine} | ${row.what} | ${shown(row.logged)} | ${shown(row.predicted)} | ${percent(row.errorPercent)} | ${row.isSeen ? 'seen' : 'judged'} | ${sourceOf(row.source)} |`;
    }),
    '',
    ...(skipped.length === 0
      ? []
      : ['## Left out', '', ...skipped.map(({ run, why }) => `- ${run}: ${why}`), '']),
    'Steps of vLLM on H100, each experiment predicted by a fit on the others: [latency.md](latency.md#how-good-it-is).',
  ].join('\n')}\n`;
}
