/**
 * Settings without effect: fields of a deployment file whose feature is off, and tiers behind a link that is too slow for any
 * load. One file may serve several kinds of runs, so they are reported and not refused.
 */

import { parse } from 'yaml';
import { TOP, tierNames } from '../runtime/tier/tier.ts';
import { admissionPolicies } from '../sim/control/admission.ts';
import type { ControlConfig } from '../sim/control/controlPlane.ts';
import { gateways } from '../sim/control/flowControl.ts';
import { routingPolicies } from '../sim/control/routing/routing.ts';
import type { PoolConfig } from '../sim/description/deployment.ts';
import { cutOffBy, leastBlocksBelow } from '../sim/instance/engine.ts';
import { sizedTierNames } from '../sim/links/machineTiers.ts';
import { isConversation } from '../sim/workload/presets.ts';
import type { PlannedScaling } from './built.ts';

type Pool = Pick<PoolConfig, 'configId' | 'role' | 'engine'>;

/** The parts of a run that decide whether a field has an effect. */
interface IdleRun {
  readonly control: ControlConfig;
  readonly pools: readonly Pool[];
  readonly scaling: readonly PlannedScaling[];
}

type Fields = Readonly<Record<string, unknown>>;
type FieldRule = readonly [names: readonly string[], acts: boolean, lacks: string];

const fieldsOf = (value: unknown): Fields =>
  typeof value === 'object' && value !== null && !Array.isArray(value) ? (value as Fields) : {};
const listOf = (value: unknown): readonly Fields[] => (Array.isArray(value) ? value.map(fieldsOf) : []);

/** The value at `a.b`, undefined where any part of the way is missing or null. */
function at(fields: Fields, path: string): unknown {
  let value: unknown = fields;
  for (const key of path.split('.')) value = fieldsOf(value)[key];
  return value ?? undefined;
}

const told = (fields: Fields, under: string, rules: readonly FieldRule[]): string[] =>
  rules.flatMap(([names, acts, lacks]) =>
    names
      .filter((name) => !acts && at(fields, name) !== undefined)
      .map((name) => `${under}${name} has no effect: ${lacks}`),
  );

function ofEngine(engine: Fields, pool: Fields, hasShared: boolean): readonly FieldRule[] {
  const has = (name: string): boolean => ![undefined, 0, '0'].includes(at(engine, name) as never);
  const hasTiers =
    hasShared || at(pool, 'tiers') !== undefined || ['kv_cpu_blocks', ...sizedTierNames].some(has);
  const size = ['total_kv_blocks', tierNames[TOP]].find(has);
  return [
    [['gpu_memory_utilization'], size === undefined, `engine.${size} says how many blocks there are`],
    [
      ['kv_offload_threshold'],
      hasTiers && !hasShared,
      'blocks leave GPU memory by another rule here, or not at all',
    ],
    [['kv_load'], hasTiers, 'the pool has no tier below GPU memory'],
    [['kv_transfer_bandwidth', 'kv_transfer_base_latency'], has('kv_cpu_blocks'), 'it is for kv_cpu_blocks'],
    [['max_lora_rank', 'lora_load_us'], has('max_loras'), 'it is for max_loras'],
  ];
}

/** Settings of drafts need a model that proposes tokens. */
function ofModel(model: Fields): readonly FieldRule[] {
  const drafts = Number(model.num_speculative_tokens ?? 0) > 0;
  const names = ['speculative_acceptance', 'speculative_draft_model', 'speculative_draft_us'];
  return [[names, drafts, 'num_speculative_tokens is 0, or missing']];
}

function ofControl({ control, pools, scaling }: IdleRun): readonly FieldRule[] {
  const { routing, prefillRouting = routing, decodeRouting = routing, shadow } = control;
  const hasRoles = pools.some(({ role }) => role !== 'monolithic');
  const routes = hasRoles ? [routing, prefillRouting, decodeRouting] : [routing];
  const readsKeys = hasRoles || routes.some((choice) => routingPolicies.readsKeys(choice));
  const readsReports =
    hasRoles ||
    scaling.length > 0 ||
    routes.some((choice) => routingPolicies.readsReports(choice)) ||
    admissionPolicies.readsReports(control.admission) ||
    (control.gateway !== null && gateways.readsReports(control.gateway));
  const decides = hasRoles && control.decider.policy !== 'never';
  const noRoles = 'no pool has the role prefill or decode';
  const noShadow = `the shadow is ${shadow.model}`;
  const noReader = 'no policy of this run reads it';
  return [
    [['control.prefill_routing', 'control.decode_routing', 'control.decider'], hasRoles, noRoles],
    [['handoff'], decides, hasRoles ? 'control.decider is never' : noRoles],
    [['control.shadow.model'], readsKeys || shadow.model === 'none', noReader],
    [['control.shadow.blocks'], shadow.model === 'approximate', noShadow],
    [['control.shadow.event_delay_us'], ['events', 'speculative'].includes(shadow.model), noShadow],
    [['control.shadow.speculative_ttl_us'], shadow.model === 'speculative', noShadow],
    [['control.signals.snapshot_interval_us'], readsReports, noReader],
    [['control.signals.cache_signal_us'], readsKeys, noReader],
    // built-in policies keep their own memory; only programs, which `tierkv evaluate` runs, read this field
    [['control.history'], false, 'only programs of policies read it, as tierkv evaluate runs them'],
  ];
}

/** A pause needs users that wait for answers. */
function ofUsers(workload: Fields): FieldRule {
  const waits = Number(workload.concurrency ?? 0) > 0 || isConversation(workload.preset);
  return [['workload.think_time_ms'], waits, 'no user of this workload waits for an answer'];
}

function ofScaling(scaling: Fields): readonly FieldRule[] {
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

/** @param text of the deployment file, which was read without an error */
export function idleFields(text: string, run: IdleRun): string[] {
  const root = fieldsOf(parse(text));
  const hasShared = at(root, 'shared_tier') !== undefined;
  return [
    ...listOf(root.models).flatMap((model, i) => told(model, `models[${i}].`, ofModel(model))),
    ...listOf(root.pools).flatMap((pool, i) => [
      ...told(fieldsOf(pool.engine), `pools[${i}].engine.`, ofEngine(fieldsOf(pool.engine), pool, hasShared)),
      ...told(fieldsOf(pool.autoscaling), `pools[${i}].autoscaling.`, ofScaling(fieldsOf(pool.autoscaling))),
    ]),
    ...told(root, '', [...ofControl(run), ofUsers(fieldsOf(root.workload))]),
    ...told(fieldsOf(root.autoscaling), 'autoscaling.', ofScaling(fieldsOf(root.autoscaling))),
  ];
}

/** Warnings about pools in which no block goes down. */
export function cutOffTiers(pools: readonly Pool[]): string[] {
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
