/**
 * A deployment that a plan considers: GPUs, instances, roles, tiers and policies. Trials read it from the same file and
 * arguments that the answer prints for `tierkv simulate`.
 */

import { stringify } from 'yaml';
import { TierKVError } from '../../runtime/errors.ts';
import { tierTitle } from '../../runtime/tier/tier.ts';
import { latencyDataFile, loadCoefficients, loadHardware } from '../../sim/build/dataFiles.ts';
import { flagOf, type Path } from '../../sim/description/knobs.ts';
import { type LatencyBackend, latencyFacts } from '../../sim/latency/latencyNames.ts';
import {
  type SizedTierName,
  type SizedTierRow,
  sizedTierNames,
  sizedTierRows,
} from '../../sim/links/machineTiers.ts';
import type { CheckedQuestion } from './question.ts';

/** GiB of each tier below GPU memory of each instance, such as `ddrGib`. */
type ChosenTiers = { readonly [Name in SizedTierName as `${Name}Gib`]: number };

export interface DeploymentChoice extends ChosenTiers {
  readonly gpu: string;
  /** GPUs of an instance. */
  readonly tensorParallel: number;
  readonly instances: number;
  /** Instances that compute prompts only; the others then generate only. 0: each instance does both. */
  readonly prefillInstances: number;
  readonly routing: RoutingName;
  readonly eviction: 'lru' | 'hazard';
  /** Most tokens of a step, and most requests in a batch. */
  readonly batchedTokens: number;
  readonly sequences: number;
}

/** How requests find an instance: by load alone, or by load and by where their prefix is cached. */
const routings = {
  'least-loaded': { policy: 'least-loaded' },
  'prefix-and-load': {
    policy: 'weighted',
    scorers: { 'precise-prefix-cache': 1, 'active-requests': 2 },
  },
} as const;
export type RoutingName = keyof typeof routings;

function sumOverTiers(value: (tier: SizedTierName, row: SizedTierRow) => number): number {
  return sizedTierRows.reduce((sum, row) => sum + value(row.tier, row), 0);
}

/** Lower tiers of an instance in GiB, each counted by its weight: host memory 1, disk 1/64. */
function weightOf(choice: DeploymentChoice): number {
  return sumOverTiers((tier, { weight }) => choice[`${tier}Gib`] * weight);
}

export function gpusOf({ tensorParallel, instances }: DeploymentChoice): number {
  return tensorParallel * instances;
}

/** USD an hour; undefined without prices. */
export function usdPerHour(choice: DeploymentChoice, question: CheckedQuestion): number | undefined {
  const { prices } = question;
  if (prices === undefined) return undefined;
  const perInstance = sumOverTiers((tier) => choice[`${tier}Gib`] * question[`${tier}Price`]);
  return gpusOf(choice) * prices[choice.gpu] + choice.instances * perInstance;
}

/** The cost that a plan minimises: USD an hour, or without prices the number of GPUs. */
export function costOf(choice: DeploymentChoice, question: CheckedQuestion): number {
  return usdPerHour(choice, question) ?? gpusOf(choice);
}

/** Order of preference: by cost, then by GPUs, memory, prefill instances and instances, fewer first. */
export function byCost(question: CheckedQuestion): (a: DeploymentChoice, b: DeploymentChoice) => number {
  return (a, b) =>
    costOf(a, question) - costOf(b, question) ||
    gpusOf(a) - gpusOf(b) ||
    a.instances * weightOf(a) - b.instances * weightOf(b) ||
    a.prefillInstances - b.prefillInstances ||
    a.instances - b.instances;
}

/** In few words: `2 instances x 4 H100`. */
export function choiceText(choice: DeploymentChoice): string {
  const { gpu, tensorParallel, instances, prefillInstances, routing } = choice;
  const counted = instances === 1 ? '1 instance' : `${instances} instances`;
  const parts = [`${counted} x ${tensorParallel} ${gpu}`];
  if (prefillInstances > 0)
    parts.push(`${prefillInstances} prefill + ${instances - prefillInstances} decode`);
  for (const tier of sizedTierNames) {
    const gibs = choice[`${tier}Gib`];
    if (gibs > 0) parts.push(`${gibs} GiB ${tierTitle(tier)}`);
  }
  if (instances > 1 && routing !== 'least-loaded') parts.push(`routing by ${routing.replaceAll('-', ' ')}`);
  if (choice.batchedTokens !== defaultBatchedTokens) parts.push(`steps of ${choice.batchedTokens} tokens`);
  if (choice.sequences !== defaultSequences) parts.push(`batches of ${choice.sequences}`);
  if (choice.eviction !== 'lru') parts.push(`eviction ${choice.eviction}`);
  return parts.join(', ');
}

/** Most tokens of a step and most requests in a batch, as `tierkv simulate` has them. */
export const defaultBatchedTokens = 2048;
export const defaultSequences = 256;

/** A model of time, with coefficients of another GPU where the GPU has none of its own. */
interface ModelOfTime {
  readonly name: LatencyBackend;
  readonly coefficients?: string;
  /** GPU that the coefficients were fitted on. */
  readonly fittedOn?: string;
}

/** On a GPU without coefficients of its own H100's shares of that GPU's peaks and links are taken. */
export function modelOfTime(name: LatencyBackend, gpu: string): ModelOfTime {
  try {
    loadCoefficients(name, loadHardware(gpu), undefined);
    return { name };
  } catch (error) {
    if (latencyFacts[name].perGpu !== true || !(error instanceof TierKVError)) throw error;
    return { name, coefficients: latencyDataFile(`${name}-h100.json`).pathname, fittedOn: 'H100' };
  }
}

/** Seed and length of a run. */
interface RunSetting {
  readonly seed: number;
  readonly requests: number;
}

/** Options of the engine that differ from the defaults of `tierkv simulate`, by their names there. */
function engineOptions({
  batchedTokens,
  sequences,
  eviction,
}: DeploymentChoice): Record<string, string | number> {
  return {
    max_num_batched_tokens: batchedTokens,
    max_num_seqs: sequences,
    preemption_mode: 'recompute',
    eviction,
  };
}

/** The deployment as a file, with the workload if that is a preset. */
export function deploymentFile(
  choice: DeploymentChoice,
  question: CheckedQuestion,
  { seed, requests }: RunSetting,
  time: ModelOfTime,
): string {
  const { gpu, tensorParallel: tp, instances, prefillInstances } = choice;
  const { model, workload } = question;
  const pool = (name: string, role: string, replicas: number): object => ({
    name,
    ...(role === 'monolithic' ? {} : { role }),
    replicas,
    engine: { ...engineOptions(choice), ...inKeys(tierSettings(choice, question)) },
  });
  const decode = instances - prefillInstances;
  const isPath = model.endsWith('.json');
  const served = workload.file;
  return stringify({
    version: 1,
    seed,
    models: [
      {
        name: isPath ? 'model' : model,
        ...(isPath ? { config: model } : {}),
        ...(question.assumePlainAttention ? { assume_plain_attention: true } : {}),
        hardware: gpu,
        tp,
        latency_model: time.name,
        ...(time.coefficients === undefined ? {} : { coefficients: time.coefficients }),
        floor: true,
      },
    ],
    pools:
      prefillInstances === 0
        ? [pool('serve', 'monolithic', instances)]
        : [pool('prefill', 'prefill', prefillInstances), pool('decode', 'decode', decode)],
    control: {
      routing: routings[choice.routing],
      ...(prefillInstances === 0 ? {} : { decider: { policy: 'always' } }),
    },
    ...(served === undefined
      ? { workload: { preset: workload.preset, rate: workload.rate, num_requests: requests } }
      : {}),
  });
}

type ChosenSettings = Readonly<{ [P in Path]?: string | number | true | undefined }>;

/** Sizes and devices of the tiers below GPU memory, of each instance. */
function tierSettings(choice: DeploymentChoice, question: CheckedQuestion): ChosenSettings {
  return Object.fromEntries(
    sizedTierNames
      .filter((tier) => choice[`${tier}Gib`] > 0)
      .flatMap((tier) => [
        [`tiers.${tier}`, `${choice[`${tier}Gib`]}GiB`],
        [`tiers.${tier}Class`, question[`${tier}Class`]],
        [`tiers.${tier}Gbps`, question[`${tier}Gbps`]],
      ]),
  );
}

/** Settings by the keys of a deployment file. */
function inKeys(settings: ChosenSettings): Record<string, string | number | true> {
  return Object.fromEntries(
    Object.entries(settings).flatMap(([path, value]) =>
      value === undefined
        ? []
        : [
            [
              flagOf(path as Path)
                .slice(2)
                .replaceAll('-', '_'),
              value,
            ],
          ],
    ),
  );
}

/** Settings as words of a command line; true stands alone, and what is undefined is left out. */
function wordsOf(settings: ChosenSettings): string[] {
  return Object.entries(settings).flatMap(([path, value]) => {
    const flag = flagOf(path as Path);
    return value === undefined ? [] : value === true ? [flag] : [flag, String(value)];
  });
}

/** A word for the shell. */
function quoted(word: string): string {
  return /^[\w./:=,@+-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`;
}

/** The words behind `tierkv simulate` that run the deployment. @param file where its file lies; without one, options say it */
export function simulateWords(
  choice: DeploymentChoice,
  question: CheckedQuestion,
  { seed, requests }: RunSetting,
  time: ModelOfTime,
  file?: string,
): string {
  const { workload, model, assumePlainAttention } = question;
  const run = wordsOf({ seed });
  const served =
    workload.file === undefined
      ? wordsOf({ 'workload.preset': workload.preset, 'workload.rate': workload.rate })
      : [workload.file];
  const count = wordsOf({ 'workload.requests': requests });
  if (file !== undefined) {
    const fromFile = workload.file === undefined ? [] : [...served, ...count];
    return [...fromFile, ...wordsOf({ file }), ...run].map(quoted).join(' ');
  }
  const { gpu, tensorParallel, instances, prefillInstances, routing } = choice;
  const engine = Object.entries(engineOptions(choice)).flatMap(([name, value]) => [
    `--${name.replaceAll('_', '-')}`,
    String(value),
  ]);
  const rule = routings[routing];
  const scorers = 'scorers' in rule ? Object.entries(rule.scorers).map(([name, w]) => `${name}:${w}`) : [];
  const roles = wordsOf({
    'pools.prefill': prefillInstances,
    'pools.decode': instances - prefillInstances,
    'pools.decider': 'always',
  });
  const words = [
    ...(workload.file === undefined ? [] : served),
    ...wordsOf({
      model,
      'engine.assumePlainAttention': assumePlainAttention ? true : undefined,
      hardware: gpu,
      tp: tensorParallel,
      'latency.model': time.name,
      'latency.floor': true,
    }),
    ...wordsOf({ 'latency.coefficients': time.coefficients, 'pools.total': instances }),
    ...(prefillInstances === 0 ? [] : roles),
    ...wordsOf({ 'control.routing.policy': rule.policy }),
    ...wordsOf({ 'control.routing.scorers': scorers.length === 0 ? undefined : scorers.join(',') }),
    ...engine,
    ...wordsOf(tierSettings(choice, question)),
    ...(workload.file === undefined ? served : []),
    ...count,
    ...run,
  ];
  return words.map(quoted).join(' ');
}
