/**
 * The plan of a gateway, as plain data: its policies and their settings. The log begins with it, and a replay is made
 * from it alone.
 */

import { bindBundle } from '../../policy/evolve/binding/bind.ts';
import { type PolicyBundle, type PolicySlot, policySlots } from '../../policy/evolve/bundle/policyBundle.ts';
import { mentions } from '../../policy/sandbox/program.ts';
import { configError } from '../../runtime/errors.ts';
import * as is from '../../runtime/kinds.ts';
import { checkInputs, type Kinds, optionTable } from '../../runtime/options.ts';
import type { BoundPolicies } from '../../sim/build/built.ts';
import type { ControlConfig } from '../../sim/control/controlPlane.ts';
import type { GatewayTiming } from '../../sim/control/gatewayQueue.ts';
import { checkControl } from '../../sim/control/plane.ts';

/** Slots of a bundle that a gateway runs. The others are matters of the servers. */
export const gatewaySlots: readonly PolicySlot[] = ['admission', 'priority', 'routing'];

/** Policies that decide beside the others, without effect, under a name. */
export interface ShadowPlan {
  readonly name: string;
  readonly bundle: PolicyBundle;
}

/** The plan of a gateway: control plane, queue and bundle. */
export interface GatewayPlan {
  /** Stages that the bundle leaves out, and signals. */
  readonly control: ControlConfig;
  /** Null without a queue in front of routing. */
  readonly queue: GatewayTiming | null;
  /** Null where the configuration decides alone. */
  readonly bundle: PolicyBundle | null;
  readonly shadows: readonly ShadowPlan[];
  /** Tokens of a block. */
  readonly blockTokens: number;
  /** Most requests in the batch of a backend. */
  readonly maxSequences: number;
  /** Key of all random streams of the policies, an integer as text. */
  readonly seed: string;
}

const planTable = optionTable(
  {
    control: is.passed(),
    queue: is.orNull(is.passed()),
    bundle: is.orNull(is.passed()),
    shadows: is.passed(),
    blockTokens: is.integer(1, 2 ** 20),
    maxSequences: is.integer(1, 2 ** 20),
    seed: is.passed(),
  } satisfies Kinds<GatewayPlan>,
  'TKV_CONFIG',
);

/** A plan with the policies of its bundles ready to be made. */
export interface BoundPlan {
  readonly plan: GatewayPlan;
  readonly bundle: BoundPolicies | null;
  readonly shadows: readonly { readonly name: string; readonly bundle: BoundPolicies }[];
}

/** Slots of the bundle that a gateway does not run. */
export function idleSlots(bundle: PolicyBundle): readonly PolicySlot[] {
  checkInputs({ bundle }, { bundle: is.object() });
  return policySlots.filter((slot) => bundle[slot] !== undefined && !gatewaySlots.includes(slot));
}

/** Fields that only some servers report: rates of blocks between tiers. A policy that reads one needs servers that do. */
const movedFields = ['offloadRate', 'reloadRate'];

/** Policies of a plan that read these fields, in words. */
export function movedReaders({ bundle, shadows }: GatewayPlan): readonly string[] {
  const all = [
    ...(bundle === null ? [] : [{ who: 'the policy', read: movedFieldsRead(bundle) }]),
    ...shadows.map((shadow) => ({ who: `shadow ${shadow.name}`, read: movedFieldsRead(shadow.bundle) })),
  ];
  return all.filter(({ read }) => read.length > 0).map(({ who, read }) => `${who} reads ${read.join(', ')}`);
}

/** The fields among these that a policy of the bundle reads, or may read by their names. */
function movedFieldsRead(bundle: PolicyBundle): readonly string[] {
  const texts = gatewaySlots.map((slot) => {
    const spec = bundle[slot];
    if (spec?.type !== 'code') return JSON.stringify(spec ?? null);
    return spec.language === 'wasm' ? Buffer.from(spec.source, 'base64').toString('latin1') : spec.source;
  });
  return movedFields.filter((field) => texts.some((text) => mentions(text, field)));
}

const SHADOWS_MOST = 16;

/**
 * Checks a plan, reads the programs of its bundles and binds them.
 * @throws TKV_CONFIG with the field at fault; PolicyError for a program that does not load
 */
export async function bindPlan(plan: GatewayPlan): Promise<BoundPlan> {
  planTable.read(plan, 'plan');
  const control = checkControl(plan.control);
  if ((plan.queue === null) !== (control.gateway === null)) {
    throw configError('plan.queue', 'and control.gateway must both be there, or neither', 'Give both.');
  }
  if (!/^-?\d{1,18}$/.test(plan.seed)) {
    throw configError('plan.seed', `is "${plan.seed}"`, 'Give an integer of at most 18 digits.');
  }
  if (plan.shadows.length > SHADOWS_MOST) {
    throw configError('shadows', `are ${plan.shadows.length}`, `Name at most ${SHADOWS_MOST}.`);
  }
  const names = new Set<string>();
  const shadows: { name: string; bundle: BoundPolicies }[] = [];
  checkInputs(plan, { shadows: is.list(is.fields({ name: is.name(), bundle: is.object() })) });
  for (const { name, bundle } of plan.shadows) {
    if (names.has(name)) throw configError('shadows', `has "${name}" twice`, 'Give each a name of its own.');
    names.add(name);
    shadows.push({ name, bundle: await bindSlots(bundle, `shadow ${name}`) });
  }
  const bundle = plan.bundle === null ? null : await bindSlots(plan.bundle, 'policy');
  return { plan: { ...plan, control }, bundle, shadows };
}

/** Binds the slots that a gateway runs. */
async function bindSlots(bundle: PolicyBundle, what: string): Promise<BoundPolicies> {
  const own = Object.fromEntries(
    Object.entries(bundle).filter(([key]) => !(policySlots as readonly string[]).includes(key)),
  );
  const slots = gatewaySlots.filter((slot) => bundle[slot] !== undefined);
  if (slots.length === 0) {
    const has = idleSlots(bundle).join(', ');
    throw configError(
      what,
      `has ${has}, which servers decide, and none of ${gatewaySlots.join(', ')}`,
      'Name a bundle with one of them.',
    );
  }
  return bindBundle({ ...own, ...Object.fromEntries(slots.map((slot) => [slot, bundle[slot]])) });
}
