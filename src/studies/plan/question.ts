/**
 * The question of a plan: a model, its traffic, targets, and what may be deployed at which price. This file checks it and
 * fills in defaults.
 */

import { configError, requireInteger } from '../../runtime/errors.ts';
import * as is from '../../runtime/kinds.ts';
import { checkInputs, type Kinds, optionTable } from '../../runtime/options.ts';
import { tierTitle } from '../../runtime/tier/tier.ts';
import { loadHardware, loadModel, loadVouchedModel, modelDefaults } from '../../sim/build/dataFiles.ts';
import { type LatencyBackend, latencyBackends, usualLatency } from '../../sim/latency/latencyNames.ts';
import {
  deviceClasses,
  type SizedTierName,
  type SizedTierRow,
  sizedTierNames,
  sizedTierRows,
} from '../../sim/links/machineTiers.ts';
import { type PlanTargets, requireFigure } from './targets.ts';

/** The traffic that a plan must serve. */
export interface PlanWorkload {
  /** A preset such as `chatbot`. */
  readonly preset?: string;
  /** A specification or a recorded trace, in place of a preset. */
  readonly file?: string;
  /** Requests a second of a preset. */
  readonly rate?: number;
  /** Requests of a full run. Default: two minutes of a preset, from 1,000 to 6,000; of a file all, at most 6,000. */
  readonly requests?: number;
}

/** How the instances of a deployment share the work: each does all, or prompts are computed on instances of their own. */
const planRoles = ['shared', 'split'] as const;
type PlanRole = (typeof planRoles)[number];

/** USD an hour of a GiB of each tier below GPU memory, such as `ddrPrice`. Default 0. */
type TierPrices = { readonly [Name in SizedTierName as `${Name}Price`]?: number };
/** GiB of each such tier for KV, of each instance, such as `ddrGib`. Default: none, 128 and 512 of DDR, none and 4,096 of NVMe. */
type TierGib = { readonly [Name in SizedTierName as `${Name}Gib`]?: readonly number[] };

/** Device of each such tier, by the name of its class such as `sata_ssd`, and its bandwidth in GB/s. Default: the usual one. */
type TierDevices = { readonly [Name in SizedTierName as `${Name}Class`]?: string } & {
  readonly [Name in SizedTierName as `${Name}Gbps`]?: number;
};
type DeviceField = keyof TierDevices;

/** The question to `plan`: model, workload, targets, and what may be bought. */
export interface PlanQuestion extends TierPrices, TierGib, TierDevices {
  /** Name of the model, or the path of its config.json. */
  readonly model: string;
  /** Whether keys of its config.json about layers that are not known change nothing. Default false: such a model is refused. */
  readonly assumePlainAttention?: boolean;
  readonly workload: PlanWorkload;
  /** Most milliseconds by figure, such as `{ ttft_p99: 500 }`; at least one. */
  readonly targets: PlanTargets;
  /** GPUs that may be used, by name or by the path of a file. Default: those with a price, else the model's own. */
  readonly gpus?: readonly string[];
  /** USD an hour of one GPU, by the name that `gpus` has for it. Without prices, fewer GPUs are cheaper. */
  readonly prices?: Readonly<Record<string, number>>;
  /** Tensor parallel GPUs of an instance that are tried. Default: 1, 2, 4 and 8. */
  readonly tensorParallel?: readonly number[];
  readonly roles?: readonly PlanRole[];
  /** Most GPUs of a deployment. Default 64. */
  readonly maxGpus?: number;
  /** Model of time that the search simulates by. Default `calibrated`. */
  readonly latencyModel?: LatencyBackend;
  readonly seed?: number;
  /** Further seeds under which the answer must meet the targets. Default 3. */
  readonly seeds?: number;
  /** Time that the search may take, in seconds. Default 90. */
  readonly budgetS?: number;
}

/** A question with all defaults filled in. */
export interface CheckedQuestion extends Required<Omit<PlanQuestion, 'prices' | DeviceField>>, TierDevices {
  readonly prices: Readonly<Record<string, number>> | undefined;
  /** Whether sizes of tiers were named: the answer then says what each of them brings. */
  readonly comparesTiers: boolean;
}

const questionTable = optionTable(
  {
    model: is.passed(),
    assumePlainAttention: is.optional(is.flag(), false),
    workload: is.passed(),
    targets: is.passed(),
    gpus: is.optional(is.passed()),
    prices: is.optional(is.passed()),
    tensorParallel: is.optional(is.passed()),
    roles: is.optional(is.passed()),
    maxGpus: is.optional(is.integer(1, 8192), 64),
    latencyModel: is.optional(is.passed()),
    seed: is.optional(is.integer(0, Number.MAX_SAFE_INTEGER), 42),
    seeds: is.optional(is.integer(0, 100), 3),
    budgetS: is.optional(is.passed()),
  } satisfies Kinds<Omit<PlanQuestion, keyof TierPrices | keyof TierGib | DeviceField>>,
  'TKV_CONFIG',
);
const workloadTable = optionTable(
  {
    preset: is.optional(is.passed()),
    file: is.optional(is.passed()),
    rate: is.optional(is.passed()),
    requests: is.optional(is.integer(100, 1e6)),
  } satisfies Kinds<PlanWorkload>,
  'TKV_CONFIG',
);

/** Most GiB of a tier. */
const GIB_MAX = 2 ** 20;

/** @throws TKV_CONFIG naming the field that is missing, unknown, or out of range */
export function checkQuestion(question: PlanQuestion): CheckedQuestion {
  const tierFields = sizedTierNames.flatMap((tier) => [
    ...[`${tier}Price`, `${tier}Gib`],
    ...[`${tier}Class`, `${tier}Gbps`],
  ]);
  const read = questionTable.read(question, 'options', undefined, tierFields);
  const { model, workload, targets, prices } = question;
  if (typeof model !== 'string' || model === '') throw configError('model', 'is missing', 'Name a model.');
  const { assumePlainAttention } = read;
  const loaded = assumePlainAttention ? loadVouchedModel(model) : loadModel(model);
  if (loaded === undefined) {
    const problem = 'is about keys of a config.json that are not known, and the model has none';
    throw configError('assumePlainAttention', problem, 'Leave it out.');
  }
  const { name } = loaded;
  requireWorkload(workload);
  requireTargets(targets);
  checkInputs({ prices }, { prices: is.optional(is.object()) });
  if (prices !== undefined) for (const [gpu, usd] of Object.entries(prices)) requireUsd(`prices.${gpu}`, usd);
  const priced = prices === undefined ? [] : Object.keys(prices);
  const gpus = question.gpus ?? (priced.length > 0 ? priced : [modelDefaults(name)?.gpu ?? 'H100']);
  if (gpus.length === 0) throw configError('gpus', 'is empty', 'Name a GPU.');
  for (const gpu of gpus) loadHardware(gpu);
  const unpriced = gpus.find((gpu) => prices !== undefined && !Object.hasOwn(prices, gpu));
  if (unpriced !== undefined) {
    const problem = `has no price of ${unpriced}, and one of ${priced.join(', ')}`;
    throw configError('prices', problem, 'Give all, or none: then fewer GPUs are cheaper.');
  }
  const idle = priced.find((gpu) => !gpus.includes(gpu));
  if (idle !== undefined) {
    throw configError('prices', `has a price of ${idle}, which may not be used`, 'Name it among the GPUs.');
  }
  const pricedTier = sizedTierNames.find((tier) => Number(question[`${tier}Price`] ?? 0) > 0);
  if (prices === undefined && pricedTier !== undefined) {
    const problem = `has one of ${tierTitle(pricedTier)} and none of a GPU, so that it says nothing`;
    throw configError('prices', problem, 'Give the GPU its price, such as H100=2.5, or leave that one out.');
  }
  const maxGpus = read.maxGpus;
  return {
    model,
    assumePlainAttention,
    workload,
    targets,
    gpus: [...new Set(gpus)],
    prices,
    ...ofTiers('Price', (field, tier) => requireUsd(field, question[`${tier}Price`] ?? 0)),
    tensorParallel: sizes('tensorParallel', question.tensorParallel ?? [1, 2, 4, 8], 1, 1024),
    ...ofTiers('Gib', (field, tier, { usualGib }) =>
      sizes(field, question[`${tier}Gib`] ?? usualGib, 0, GIB_MAX),
    ),
    ...devicesOf(question),
    comparesTiers: sizedTierNames.some((tier) => question[`${tier}Gib`] !== undefined),
    roles: (question.roles ?? planRoles).map((role, i) => is.oneOf(planRoles).read(role, `roles[${i}]`)),
    maxGpus,
    latencyModel: is.oneOf(latencyBackends).read(question.latencyModel ?? usualLatency, 'latencyModel'),
    seed: read.seed,
    seeds: read.seeds,
    budgetS: requireBudget(question.budgetS ?? 90),
  };
}

function devicesOf(question: PlanQuestion): TierDevices {
  const fields = sizedTierNames.flatMap((tier) => {
    const [name, gbps] = [question[`${tier}Class`], question[`${tier}Gbps`]];
    return [
      ...(name === undefined
        ? []
        : [[`${tier}Class`, is.oneOf(Object.keys(deviceClasses)).read(name, `${tier}Class`)]]),
      ...(gbps === undefined ? [] : [[`${tier}Gbps`, requireGbps(`${tier}Gbps`, gbps)]]),
    ];
  });
  return Object.fromEntries(fields) as TierDevices;
}

function requireGbps(field: string, gbps: number): number {
  if (gbps >= 1e-6 && gbps <= 1e6) return gbps;
  throw configError(field, `is ${gbps}`, 'Set GB/s, from 0.000001 to 1000000.');
}

/** A field of each tier, such as `ddrGib`. */
export function ofTiers<Suffix extends string, Value>(
  suffix: Suffix,
  read: (field: string, tier: SizedTierName, row: SizedTierRow) => Value,
): { readonly [Name in SizedTierName as `${Name}${Suffix}`]: Value } {
  const fields = sizedTierRows.map((row) => {
    const field = `${row.tier}${suffix}`;
    return [field, read(field, row.tier, row)] as const;
  });
  return Object.fromEntries(fields) as { [Name in SizedTierName as `${Name}${Suffix}`]: Value };
}

function requireWorkload(workload: PlanWorkload): void {
  const { preset, file, rate } = workloadTable.readFlat(workload, 'workload');
  if ((preset === undefined) === (file === undefined)) {
    const problem = preset === undefined ? 'names neither a preset nor a file' : 'names a preset and a file';
    throw configError('workload', problem, 'Name one of them.');
  }
  if (preset !== undefined && rate === undefined) {
    throw configError('rate', 'is missing', 'Say how many requests a second come.');
  }
  if (file !== undefined && rate !== undefined) {
    throw configError(
      'rate',
      `is for a preset, and ${file} has its own`,
      'Leave it out, or change the file.',
    );
  }
  if (rate !== undefined && !(rate > 0 && rate <= 1e6)) {
    throw configError('rate', `is ${rate}`, 'Set it to a number above 0, at most 1000000.');
  }
}

function requireTargets(targets: PlanTargets): void {
  const all = Object.entries(targets ?? {});
  if (all.length === 0) {
    throw configError('targets', 'is empty', 'Give at least one, such as ttft_p99=500ms.');
  }
  for (const [figure, ms] of all) {
    requireFigure(figure, 'targets');
    if (!(ms > 0)) throw configError(`targets.${figure}`, `is ${ms}`, 'Set milliseconds above 0.');
  }
}

function requireUsd(field: string, usd: number): number {
  if (usd >= 0 && usd <= 1e6) return usd;
  throw configError(field, `is ${usd}`, 'Set USD an hour, from 0 to 1000000.');
}

function requireBudget(seconds: number): number {
  if (seconds >= 1 && seconds <= 86_400) return seconds;
  throw configError('budgetS', `is ${seconds}`, 'Set seconds, from 1 to 86400.');
}

function sizes(field: string, values: readonly number[], min: number, max: number): number[] {
  if (values.length === 0) throw configError(field, 'is empty', 'Name a size.');
  for (const [i, value] of values.entries()) requireInteger(`${field}[${i}]`, value, min, max);
  return [...new Set(values)].sort((a, b) => a - b);
}
