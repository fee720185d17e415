/**
 * The control plane of a deployment file: a policy by name for each stage, with its parameters, and how old
 * the router's signals are.
 */

import {
  type ControlConfig,
  checkControl,
  defaultControl,
  type PolicyChoice,
  shadowNames,
} from '../../../sim/control/index.ts';
import type { SpecNode } from '../../../sim/workload/spec/reader.ts';
import { camel, inFile, type Place } from './fields.ts';

const stages = [
  'admission',
  'priority',
  'routing',
  'prefill_routing',
  'decode_routing',
  'decider',
  'gateway',
] as const;

/** What the registries call a stage, where it is not its key. */
const stageOf: Readonly<Record<string, string>> = { prefill_routing: 'routing', decode_routing: 'routing' };

export interface DeployedControl {
  readonly control: ControlConfig;
  readonly gateway: { readonly tickUs: number; readonly ttlUs: number } | null;
  readonly admissionLatencyUs: number;
  readonly routingLatencyUs: number;
}

/** A policy and its parameters; names may have underscores. @param placeOf where a parameter is said */
export function readPolicy(node: SpecNode, except: readonly string[] = []): PolicyChoice {
  const policy = node.text('policy');
  if (policy === '') throw node.error('policy', 'is missing', 'Name one');
  const parameters = node.keys().filter((key) => key !== 'policy' && !except.includes(key));
  return { policy, ...Object.fromEntries(parameters.map((key) => [camel(key), node.plain(key)])) };
}

/** The key of a policy's mapping that a field such as `routing.scorers.queue-depth` is about. */
export function placeIn(node: SpecNode, field: string): Place {
  const [, parameter = 'policy'] = field.split('.');
  return [node, node.keys().find((key) => camel(key) === parameter) ?? 'policy'];
}

const time = { min: 0, max: 1e15 };

export function readControl(root: SpecNode): DeployedControl {
  const node = root.section('control');
  const sections = new Map<string, SpecNode>();
  for (const stage of stages) {
    const section = node?.section(stage);
    if (section !== undefined) sections.set(stage, section);
  }
  const choices: Record<string, PolicyChoice> = {};
  for (const [stage, section] of sections) {
    choices[camel(stage)] = readPolicy(section, stage === 'gateway' ? ['tick_us', 'ttl_us'] : []);
  }
  const config: Partial<ControlConfig> = {
    ...choices,
    signals: readSignals(node?.section('signals')),
    shadow: readShadow(node?.section('shadow')),
    history: readHistory(node?.section('history')),
    topK: node?.integer('top_k', { min: -1, max: 10_000 }, 0) ?? 0,
  };
  const control = inFile(
    (field) => {
      const [stage] = field.split('.');
      const found = [...sections].find(([key]) => (stageOf[key] ?? key) === stage);
      return found === undefined ? undefined : placeIn(found[1], field);
    },
    () => checkControl(config),
  );
  const gatewayNode = sections.get('gateway');
  const gateway =
    gatewayNode === undefined
      ? null
      : {
          tickUs: gatewayNode.integer('tick_us', { min: 1, max: 1e12 }, 1000),
          ttlUs: gatewayNode.integer('ttl_us', time, 0),
        };
  const admissionLatencyUs = node?.integer('admission_latency_us', time, 0) ?? 0;
  const routingLatencyUs = node?.integer('routing_latency_us', time, 0) ?? 0;
  node?.close();
  return { control, gateway, admissionLatencyUs, routingLatencyUs };
}

function readSignals(node: SpecNode | undefined): ControlConfig['signals'] {
  const known = defaultControl.signals;
  if (node === undefined) return known;
  const signals = {
    snapshotIntervalUs: node.integer('snapshot_interval_us', time, known.snapshotIntervalUs),
    cacheSignalUs: node.integer('cache_signal_us', time, known.cacheSignalUs),
  };
  node.close();
  return signals;
}

function readShadow(node: SpecNode | undefined): ControlConfig['shadow'] {
  const known = defaultControl.shadow;
  if (node === undefined) return known;
  const shadow = {
    model: node.choice('model', shadowNames, 'none'),
    blocks: node.integer('blocks', { min: 0, max: 2 ** 24 }, known.blocks),
    eventDelayUs: node.integer('event_delay_us', time, known.eventDelayUs),
    speculativeTtlUs: node.integer('speculative_ttl_us', time, known.speculativeTtlUs),
  };
  node.close();
  return shadow;
}

function readHistory(node: SpecNode | undefined): ControlConfig['history'] {
  const known = defaultControl.history;
  if (node === undefined) return known;
  const history = {
    windowUs: node.integer('window_us', { min: 1000, max: 86_400e6 }, known.windowUs),
    windows: node.integer('windows', { min: 0, max: 100_000 }, known.windows),
    burstFactor: node.number('burst_factor', { above: 1, max: 1e6 }, known.burstFactor),
  };
  node.close();
  return history;
}
