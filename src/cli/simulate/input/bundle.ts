/** Upstream's policy bundle (`--policy-config`), read strictly: a key that it does not have is an error. */

import { readYaml, type SpecNode } from '../../../sim/workload/spec/reader.ts';
import { readText } from '../../input/index.ts';

/** What a bundle says; absent is what it leaves out. */
export interface Bundle {
  readonly admission?: string;
  readonly bucketCapacity?: number;
  readonly bucketRefillRate?: number;
  readonly shedThreshold?: number;
  readonly shedMinPriority?: number;
  readonly queueThreshold?: number;
  readonly kvThreshold?: number;
  readonly priorities?: Readonly<Record<string, number>>;
  readonly sloTargetsUs?: Readonly<Record<string, number>>;
  readonly routing?: string;
  readonly scorers?: Readonly<Record<string, number>>;
  readonly scheduler?: string;
  readonly preemption?: string;
  readonly tenantBudgets?: Readonly<Record<string, number>>;
}

/** The fields whose values are known. */
function given<T extends object>(fields: { [K in keyof T]: T[K] | undefined }): Partial<T> {
  // entries that are undefined are left out, so the rest has its type
  return Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined)) as Partial<T>;
}

function textOf(node: SpecNode | undefined, key: string): string | undefined {
  const text = node?.text(key) ?? '';
  return text === '' ? undefined : text;
}

function numbersOf(
  node: SpecNode | undefined,
  key: string,
  range: { min?: number; max?: number; above?: number },
): Record<string, number> | undefined {
  const section = node?.section(key);
  if (section === undefined) return undefined;
  const numbers = Object.fromEntries(section.keys().map((name) => [name, section.number(name, range, 0)]));
  section.close();
  return numbers;
}

export function readBundle(file: string | undefined): Bundle {
  if (file === undefined) return {};
  const root = readYaml(readText(file), file);
  for (const key of ['autoscaler', 'node_pools', 'instance_lifecycle']) {
    if (root.has(key)) throw root.error(key, 'is not simulated', 'Leave it out');
  }
  const bundle: Bundle = {
    ...admissionOf(root.section('admission')),
    ...routingOf(root.section('routing')),
    ...given<Bundle>({
      scheduler: textOf(root, 'scheduler'),
      preemption: policyOf(root.section('preemption')),
      tenantBudgets: numbersOf(root, 'tenant_budgets', { min: 0, max: 1 }),
    }),
  };
  // upstream reads this policy and does not use it
  policyOf(root.section('priority'));
  root.close();
  return bundle;
}

function policyOf(node: SpecNode | undefined): string | undefined {
  const policy = textOf(node, 'policy');
  node?.close();
  return policy;
}

function admissionOf(node: SpecNode | undefined): Partial<Bundle> {
  if (node === undefined) return {};
  const fields = given<Bundle>({
    admission: textOf(node, 'policy'),
    bucketCapacity: node.optionalNumber('token_bucket_capacity', { above: 0 }),
    bucketRefillRate: node.optionalNumber('token_bucket_refill_rate', { above: 0 }),
    shedThreshold: node.optionalInteger('tier_shed_threshold', { min: 0 }),
    shedMinPriority: node.optionalInteger('tier_shed_min_priority', { min: -100, max: 100 }),
    queueThreshold: node.optionalNumber('gaie_qd_threshold', { above: 0 }),
    kvThreshold: node.optionalNumber('gaie_kv_threshold', { above: 0, max: 1 }),
    priorities: numbersOf(node, 'slo_priorities', { min: -100, max: 100 }),
    sloTargetsUs: numbersOf(node, 'slo_targets', { above: 0 }),
  });
  node.close();
  return fields;
}

function routingOf(node: SpecNode | undefined): Partial<Bundle> {
  if (node === undefined) return {};
  const scorers: Record<string, number> = {};
  for (const entry of node.list('scorers')) {
    scorers[entry.text('name')] = entry.number('weight', { above: 0 }, 1);
    entry.close();
  }
  const fields = given<Bundle>({
    routing: textOf(node, 'policy'),
    scorers: Object.keys(scorers).length === 0 ? undefined : scorers,
  });
  node.close();
  return fields;
}
