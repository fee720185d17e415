/**
 * Conditions under which a setting has an effect. A setting that was given and would do nothing is refused; one in a
 * deployment file, which may serve several kinds of runs, is reported. The same needs decide what stands in the
 * provenance of a result.
 */

import { parse } from 'yaml';
import { configError, type TierKVError } from '../../runtime/errors.ts';
import { tierTitle } from '../../runtime/tier/tier.ts';
import { admissionPolicies } from '../control/admission.ts';
import type { ControlConfig } from '../control/controlPlane.ts';
import { gateways } from '../control/flowControl.ts';
import { routingPolicies } from '../control/routing/routing.ts';
import { outputRows, unwritten } from '../description/knobs/beside.ts';
import { flagOf, keysOf, knobs, type NeedName, type Path } from '../description/knobs.ts';
import { outputFlag, type ReadWords } from '../description/readers.ts';
import {
  type Deployment,
  fault,
  get,
  givenPaths,
  isDefault,
  isGiven,
  nameOf,
} from '../description/settings.ts';
import { cutOffBy, type EngineConfig, leastBlocksBelow } from '../instance/engine.ts';
import { type SizedTierName, sizedTierNames } from '../links/machineTiers.ts';
import { isConversation } from '../workload/presets.ts';
import type { PlannedScaling } from './built.ts';
import { requireKnownClasses } from './classTargets.ts';
import type { PolicyFile } from './controlSettings.ts';

/** The parts of a run that decide whether a setting has an effect. */
export interface DeploymentRun {
  readonly control: ControlConfig;
  readonly pools: readonly {
    readonly configId: string;
    readonly role: string;
    readonly engine: EngineConfig;
  }[];
  readonly scaling: readonly PlannedScaling[];
  readonly deployment: Deployment;
}

/** Facts about a run that its settings give before it starts. */
interface Circumstances extends DeploymentRun {
  readonly isRecorded: boolean;
  /** Whether the decisions of the run are recorded. */
  readonly isDecided: boolean;
}

type Name = (path: Path) => string;

interface Need {
  readonly acts: (run: Circumstances) => boolean;
  readonly lacks: (name: Name) => string;
  readonly remedy: (name: Name) => string;
}

/** The policy that scorers make. */
const scored = routingPolicies.nameOf('isOfScorers');

const hasRoles = ({ pools }: DeploymentRun): boolean => pools.some(({ role }) => role !== 'monolithic');
const gatewayOf = ({ control }: DeploymentRun): Readonly<Record<string, unknown>> => control.gateway ?? {};
const detectorOf = ({ control }: DeploymentRun): unknown => control.gateway?.detector ?? 'never';
const routesOf = (run: DeploymentRun): readonly ControlConfig['routing'][] => {
  const { routing, prefillRouting = routing, decodeRouting = routing } = run.control;
  return hasRoles(run) ? [routing, prefillRouting, decodeRouting] : [routing];
};

/** Whether a policy looks at what the caches of the instances hold. */
const readsKeys = (run: DeploymentRun): boolean =>
  hasRoles(run) || routesOf(run).some((choice) => routingPolicies.readsKeys(choice));

/** Whether a policy looks at how loaded the instances are. */
const readsReports = (run: DeploymentRun): boolean =>
  hasRoles(run) ||
  run.scaling.length > 0 ||
  routesOf(run).some((choice) => routingPolicies.readsReports(choice)) ||
  admissionPolicies.readsReports(run.control.admission) ||
  (run.control.gateway !== null && gateways.readsReports(run.control.gateway));

const orNot = (text: string): string => `${text}, or leave it out.`;

/** That a tier is there whose device is named. */
const tierNeeds = Object.fromEntries(
  sizedTierNames.map((tier): [string, Need] => [
    `${tier}Tier`,
    {
      acts: ({ pools }) =>
        pools.some(
          ({ engine: { lowerTiers, loads } }) =>
            loads.kind === 'deferred' && lowerTiers.some((lower) => lower.tier === tier),
        ),
      lacks: () => `is of ${tierTitle(tier)}, and this run has none`,
      remedy: (name) => orNot(`Add ${name(`tiers.${tier}`)}`),
    },
  ]),
) as Readonly<Record<`${SizedTierName}Tier`, Need>>;

export const needs: Readonly<Record<NeedName, Need>> = {
  gateway: {
    acts: ({ control }) => control.gateway !== null,
    lacks: () => 'is of the gateway queue, and this run has none',
    remedy: (name) => orNot(`Add ${name('gateway.flowControl')}`),
  },
  saturation: {
    acts: (run) => detectorOf(run) !== 'never',
    lacks: (name) =>
      `holds requests while instances are saturated, and with ${name('gateway.detector')} never none is`,
    remedy: (name) => orNot(`Add ${name('gateway.detector')} utilization or concurrency`),
  },
  utilization: {
    acts: (run) => detectorOf(run) === 'utilization',
    lacks: () => 'is of the utilization detector',
    remedy: (name) => orNot(`Add ${name('gateway.detector')} utilization`),
  },
  concurrency: {
    acts: (run) => detectorOf(run) === 'concurrency',
    lacks: () => 'is of the concurrency detector',
    remedy: (name) => orNot(`Add ${name('gateway.detector')} concurrency`),
  },
  countsRequests: {
    acts: (run) => gatewayOf(run).concurrencyKind !== 'tokens',
    lacks: (name) => `counts requests, and ${name('gateway.concurrencyKind')} is tokens`,
    remedy: () => orNot('Set that to requests or hybrid'),
  },
  countsTokens: {
    acts: (run) => !['requests', undefined].includes(gatewayOf(run).concurrencyKind as string | undefined),
    lacks: (name) => `counts tokens, and ${name('gateway.concurrencyKind')} is requests`,
    remedy: () => orNot('Set that to tokens or hybrid'),
  },
  waits: {
    acts: (run) => detectorOf(run) !== 'never',
    lacks: (name) => `is for requests that wait, and with ${name('gateway.detector')} never none does`,
    remedy: () => orNot('Set that to utilization or concurrency'),
  },
  fullQueue: {
    acts: (run) => Number(gatewayOf(run).maxDepth) > 0 || Number(gatewayOf(run).perBandCapacity) > 0,
    lacks: () => 'is for a full queue, and this one is never full',
    remedy: (name) => orNot(`Add ${name('gateway.maxDepth')} or ${name('gateway.perBandCapacity')}`),
  },
  deadlines: {
    acts: (run) => gatewayOf(run).order === 'slo-deadline',
    lacks: (name) => `is for ${name('gateway.order')} slo-deadline`,
    remedy: () => orNot('Add that'),
  },
  tokenBucket: {
    acts: ({ control }) => control.admission.policy === 'token-bucket',
    lacks: () => 'is of the admission policy token-bucket',
    remedy: (name) => orNot(`Add ${name('control.admission.policy')} token-bucket`),
  },
  scorers: {
    acts: ({ control }) => control.routing.policy === scored,
    lacks: () => `is of the routing policy ${scored}`,
    remedy: (name) => orNot(`Add ${name('control.routing.policy')} ${scored}`),
  },
  readsReports: {
    acts: readsReports,
    lacks: () => 'is the age of reports that no policy of this run reads',
    remedy: () => orNot('Choose another routing or admission policy'),
  },
  readsKeys: {
    acts: readsKeys,
    lacks: () => 'is about what routers know of caches, and this routing reads none',
    remedy: (name) => orNot(`Add ${name('control.routing.policy')} weighted`),
  },
  record: {
    acts: ({ isDecided }) => isDecided,
    lacks: () => 'is for the record of decisions, and none is kept',
    remedy: () => orNot(`Add ${outputFlag('decisions')} or ${outputFlag('summarizeTrace')}`),
  },
  roles: {
    acts: hasRoles,
    lacks: () => 'is for instances with roles, and this run has none',
    remedy: (name) => orNot(`Add ${name('pools.prefill')} and ${name('pools.decode')}`),
  },
  besideRoles: {
    acts: hasRoles,
    lacks: () => 'counts instances beside those with one role, and this run has none',
    remedy: (name) =>
      `Add ${name('pools.prefill')} or ${name('pools.decode')}, or use ${name('pools.total')} alone.`,
  },
  prefixThreshold: {
    acts: ({ control }) => control.decider.policy === 'prefix-threshold',
    lacks: () => 'is of the decider prefix-threshold',
    remedy: (name) => orNot(`Add ${name('pools.decider')} prefix-threshold`),
  },
  handsOff: {
    acts: (run) => run.control.decider.policy !== 'never',
    lacks: (name) => `is for hand-offs, and with ${name('pools.decider')} never this run has none`,
    remedy: (name) => orNot(`Add ${name('pools.decider')} always or prefix-threshold`),
  },
  pauses: {
    acts: ({ deployment }) =>
      (get(deployment, 'workload.concurrency') ?? 0) > 0 ||
      get(deployment, 'workload.sessionMode') === 'closed-loop' ||
      isConversation(get(deployment, 'workload.preset')),
    lacks: () => 'is the pause of users in closed loop, and this run has none',
    remedy: (name) => orNot(`Add ${name('workload.preset')} chat or ${name('workload.concurrency')}`),
  },
  specification: {
    acts: ({ isRecorded }) => !isRecorded,
    lacks: () => 'changes a specification, and this workload was recorded',
    remedy: () => 'Leave it out.',
  },
  recorded: {
    acts: ({ isRecorded }) => isRecorded,
    lacks: () => 'is for recorded traces, and this workload is generated',
    remedy: () => 'Leave it out.',
  },
  billedLoads: {
    acts: ({ pools }) =>
      pools.some(({ engine: { lowerTiers, loads } }) => lowerTiers.length > 0 && loads.kind === 'billed'),
    lacks: (name) => `is of the blocks in host memory that ${name('tiers.hostBlocks')} asks for`,
    remedy: () => orNot('Add that'),
  },
  lowerTiers: {
    acts: ({ pools }) => pools.some(({ engine: { lowerTiers } }) => lowerTiers.length > 0),
    lacks: () => 'is for tiers below GPU memory, and this run has none',
    remedy: (name) => {
      const sizes = sizedTierNames.map((tier) => name(`tiers.${tier}`)).join(', ');
      return orNot(`Add ${sizes} or ${name('tiers.offloadConfig')}`);
    },
  },
  ...tierNeeds,
  ownTiers: {
    acts: ({ pools }) => pools.some(({ engine: { shared } }) => shared === undefined),
    lacks: () => 'is for tiers of an instance: beside a shared tier blocks leave GPU memory by another rule',
    remedy: () => 'Leave it out.',
  },
  byThreshold: {
    acts: ({ deployment }) => (get(deployment, 'tiers.offload') ?? 'threshold') === 'threshold',
    lacks: (name) => `is of the policy threshold, and ${name('tiers.offload')} is another one`,
    remedy: () => 'Leave one of them out.',
  },
  fittedBlocks: {
    acts: ({ deployment }) => !isGiven(deployment, 'engine.kvBlocks'),
    lacks: (name) => `says how many blocks fit, and ${name('engine.kvBlocks')} says it already`,
    remedy: () => 'Leave one of them out.',
  },
  drafts: {
    acts: ({ deployment }) => get(deployment, 'speculation.draftTokens') > 0,
    lacks: () => 'is of speculative decoding, and this run has none',
    remedy: (name) => orNot(`Add ${name('speculation.draftTokens')}`),
  },
  noDraftModel: {
    acts: ({ deployment }) => !isGiven(deployment, 'speculation.draftModel'),
    lacks: (name) => `says how long a draft takes, and ${name('speculation.draftModel')} says it already`,
    remedy: () => 'Leave one of them out.',
  },
  adapters: {
    acts: ({ deployment }) => get(deployment, 'engine.maxLoras') > 0,
    lacks: () => 'is of LoRA adapters in GPU memory, and this run has none',
    remedy: (name) => orNot(`Add ${name('engine.maxLoras')}`),
  },
  ownCoefficients: {
    acts: ({ deployment }) => !isGiven(deployment, 'latency.alpha'),
    lacks: (name) => `gives coefficients, and so do ${name('latency.alpha')} and ${name('latency.beta')}`,
    remedy: () => 'Leave one of them out.',
  },
  scales: {
    acts: ({ scaling }) => scaling.length > 0,
    lacks: () => 'is for machines that come, and this run has no autoscaler',
    remedy: (name) => orNot(`Add ${name('control.autoscalerIntervalUs')} or a bundle with autoscaler`),
  },
};

/** The first need of a setting that a run has not. */
function missingOf(path: Path, run: Circumstances): Need | undefined {
  const names = (knobs[path].needs ?? []) as readonly NeedName[];
  return names.map((name) => needs[name]).find((need) => !need.acts(run));
}

/** Whether a setting, or its default, has an effect in a run. */
export function hasEffect(path: Path, run: DeploymentRun, isRecorded: boolean): boolean {
  return missingOf(path, { ...run, isRecorded, isDecided: true }) === undefined;
}

/** Settings that ask for live signals with 0, which changes nothing where policies read none. */
const liveAtZero: readonly Path[] = ['control.snapshotUs', 'control.cacheSignalUs'];

/**
 * To be called once everything was read, so that a wrong value is told before a needless setting.
 * @param isRecorded whether the workload was recorded, not generated
 * @param isDecided whether the decisions of the run are recorded
 * @throws TKV_CONFIG with the first setting or key that would do nothing
 */
export function refuseIdle(
  run: DeploymentRun & { readonly policyFile: PolicyFile },
  isRecorded: boolean,
  isDecided = false,
): void {
  const { deployment, policyFile } = run;
  const name: Name = (path) => nameOf(deployment, path);
  for (const path of givenPaths(deployment)) {
    // what a file says is reported
    if (isDefault(deployment, path) || deployment.places[path]?.file !== undefined) continue;
    if (liveAtZero.includes(path) && deployment.values[path] === 0) continue;
    const need = missingOf(path, { ...run, isRecorded, isDecided });
    if (need !== undefined) throw fault(deployment, path, need.lacks(name), need.remedy(name));
  }
  if (isGiven(deployment, 'file')) return;
  if (!isRecorded) refuseUnknownClasses(deployment, policyFile);
  refuseIdleKeys(run);
}

/** Refuses classes that no generated request has. */
function refuseUnknownClasses(deployment: Deployment, { priorities, sloTargetsUs }: PolicyFile): void {
  const ofKey =
    (key: string) =>
    (problem: string, remedy: string): TierKVError =>
      configError(key, problem, remedy);
  requireKnownClasses(Object.keys(get(deployment, 'gateway.targetsUs') ?? {}), (problem, remedy) =>
    fault(deployment, 'gateway.targetsUs', problem, remedy),
  );
  requireKnownClasses(Object.keys(priorities ?? {}), ofKey('admission.slo_priorities'));
  requireKnownClasses(Object.keys(sloTargetsUs ?? {}), ofKey('admission.slo_targets'));
}

/** Refuses keys of a bundle that belong to a policy which the run does not have. */
function refuseIdleKeys({
  deployment,
  policyFile,
  control,
}: DeploymentRun & { readonly policyFile: PolicyFile }): void {
  const file = get(deployment, 'control.policyFile');
  const name: Name = (path) => nameOf(deployment, path);
  const admits = (policy: string): readonly [boolean, string] => [
    control.admission.policy === policy,
    `the admission policy ${policy}`,
  ];
  const deadlines = `${name('gateway.flowControl')} with ${name('gateway.order')} slo-deadline`;
  const keys: readonly (readonly [key: string, value: unknown, acts: boolean, of: string])[] = [
    ['admission.token_bucket_capacity', policyFile.bucketCapacity, ...admits('token-bucket')],
    ['admission.token_bucket_refill_rate', policyFile.bucketRefillRate, ...admits('token-bucket')],
    ['admission.tier_shed_threshold', policyFile.shedThreshold, ...admits('tier-shed')],
    ['admission.tier_shed_min_priority', policyFile.shedMinPriority, ...admits('tier-shed')],
    ['admission.gaie_qd_threshold', policyFile.queueThreshold, ...admits('gaie-legacy')],
    ['admission.gaie_kv_threshold', policyFile.kvThreshold, ...admits('gaie-legacy')],
    ['admission.slo_targets', policyFile.sloTargetsUs, control.gateway?.order === 'slo-deadline', deadlines],
    [
      'routing.scorers',
      policyFile.scorers,
      control.routing.policy === scored,
      `the routing policy ${scored}`,
    ],
  ];
  for (const [key, value, acts, of] of keys) {
    if (value === undefined || acts) continue;
    throw configError(key, `of ${file} is of ${of}, which this run has not`, 'Choose that, or drop the key.');
  }
}

/**
 * Refuses options that say what a run writes, or by which targets it is judged, of a run that writes nothing.
 * @param what the run: it stands in the sentence
 * @throws TKV_CONFIG with the first of them that was given
 */
export function refuseOutputs(options: ReadWords['options'], what: string, remedy: string): void {
  const written = outputRows
    .map(([flags]) => flags.split(' ')[0])
    .filter((flag) => !unwritten.includes(flag));
  const targets = (['targets.ttftMs', 'targets.itlMs', 'targets.e2eMs'] as const).map(flagOf);
  const [flag] = options.find(([given]) => written.includes(given) || targets.includes(given)) ?? [];
  if (flag === undefined) return;
  throw configError(flag, `says what a run of tierkv simulate writes, and ${what} writes nothing`, remedy);
}

//  A deployment file: keys whose feature is off, and tiers behind a link that is too slow for any load.

type Fields = Readonly<Record<string, unknown>>;

const fieldsOf = (value: unknown): Fields =>
  typeof value === 'object' && value !== null && !Array.isArray(value) ? (value as Fields) : {};
const listOf = (value: unknown): readonly Fields[] => (Array.isArray(value) ? value.map(fieldsOf) : []);

/** The value at `a.b`, undefined where any part of the way is missing or null. */
function at(fields: Fields, path: string): unknown {
  let value: unknown = fields;
  for (const key of path.split('.')) value = fieldsOf(value)[key];
  return value ?? undefined;
}

type KeyRule = readonly [keys: readonly string[], acts: boolean, lacks: string];

const told = (fields: Fields, under: string, rules: readonly KeyRule[]): string[] =>
  rules.flatMap(([keys, acts, lacks]) =>
    keys
      .filter((key) => !acts && at(fields, key) !== undefined)
      .map((key) => `${under}${key} has no effect: ${lacks}`),
  );

/** Keys that are settings, by what these need. */
function ofSettings(mapping: 'model' | 'engine' | 'workload', run: Circumstances): KeyRule[] {
  return keysOf(mapping).map(([key, path]) => {
    const need = missingOf(path, run);
    const lacks = need?.lacks((each) => nameOf(run.deployment, each));
    return [[key], need === undefined, `it ${lacks}`];
  });
}

/** Keys of the control plane that only a file has. */
function ofControl(run: DeploymentRun): readonly KeyRule[] {
  const { shadow, decider } = run.control;
  const noRoles = 'no pool has the role prefill or decode';
  const noShadow = `the shadow is ${shadow.model}`;
  const noReader = 'no policy of this run reads it';
  const split = hasRoles(run);
  return [
    [['control.prefill_routing', 'control.decode_routing', 'control.decider'], split, noRoles],
    [['handoff'], split && decider.policy !== 'never', split ? 'control.decider is never' : noRoles],
    [['control.shadow.model'], readsKeys(run) || shadow.model === 'none', noReader],
    [['control.shadow.blocks'], shadow.model === 'approximate', noShadow],
    [['control.shadow.event_delay_us'], ['events', 'speculative'].includes(shadow.model), noShadow],
    [['control.shadow.speculative_ttl_us'], shadow.model === 'speculative', noShadow],
    [['control.signals.snapshot_interval_us'], readsReports(run), noReader],
    [['control.signals.cache_signal_us'], readsKeys(run), noReader],
    // built-in policies keep their own memory; only programs, which `tierkv evaluate` runs, read this field
    [['control.history'], false, 'only programs of policies read it, as tierkv evaluate runs them'],
  ];
}

function ofScaling(scaling: Fields): readonly KeyRule[] {
  const warms = Number(at(scaling, 'warmup.duration_us') ?? 0) > 0;
  return [
    [['warmup.curve', 'warmup.initial_penalty_factor'], warms, 'warmup.duration_us is 0'],
    [['triggers'], at(scaling, 'mode') === 'event', 'triggers are for mode event'],
    [
      ['drain.timeout_us'],
      at(scaling, 'drain.mode') !== 'immediate',
      'drain.mode immediate waits for nothing',
    ],
  ];
}

/** A run of a deployment file, each pool with its settings. */
interface FileRun extends DeploymentRun {
  readonly pools: readonly (DeploymentRun['pools'][number] & {
    readonly model: string;
    readonly deployment?: Deployment;
  })[];
}

/** @param text of the deployment file, which was read without an error */
export function idleKeys(text: string, run: FileRun): string[] {
  const root = fieldsOf(parse(text));
  const whole: Circumstances = { ...run, isRecorded: false, isDecided: true };
  const ofPool = (pool: FileRun['pools'][number] | undefined): Circumstances =>
    pool?.deployment === undefined ? whole : { ...whole, pools: [pool], deployment: pool.deployment };
  return [
    ...listOf(root.models).flatMap((model, i) => {
      // the one model of a file has no name in its pools
      const pool = run.pools.find((each) => each.model === '' || each.model === model.name);
      return told(model, `models[${i}].`, ofSettings('model', ofPool(pool)));
    }),
    ...listOf(root.pools).flatMap((pool, i) => [
      ...told(fieldsOf(pool.engine), `pools[${i}].engine.`, ofSettings('engine', ofPool(run.pools[i]))),
      ...told(fieldsOf(pool.autoscaling), `pools[${i}].autoscaling.`, ofScaling(fieldsOf(pool.autoscaling))),
    ]),
    ...told(root, '', ofControl(run)),
    ...told(fieldsOf(root.workload), 'workload.', ofSettings('workload', whole)),
    ...told(fieldsOf(root.autoscaling), 'autoscaling.', ofScaling(fieldsOf(root.autoscaling))),
  ];
}

/** Warnings about pools in which no block goes down. */
export function cutOffTiers(pools: DeploymentRun['pools']): string[] {
  return pools.flatMap(({ configId, engine }) => {
    const by = cutOffBy(engine);
    if (by === null) return [];
    const [{ tier }] = engine.lowerTiers;
    return by === 'slow link'
      ? `pool ${configId}: a block takes twice as long from ${tier} as to be computed, or longer, so with kv_load ` +
          'when-faster the tiers below GPU memory are left out. Give the link more bandwidth, or leave the tiers out.'
      : `pool ${configId}: the tiers below GPU memory hold less than the room that blocks on their way take from it, so ` +
          `they are left out. Give ${tier} ${leastBlocksBelow(engine)} blocks or more, or leave the tiers out.`;
  });
}
