/** Autoscaling policies by name. */

import { noMemory } from '../policy.ts';
import { type NumberRule, type ParameterRules, type PolicyParameters, Registry } from '../registry.ts';
import { AibrixKpa, type AibrixLimits, apa } from './aibrix.ts';
import type { AutoScalePolicy, ScaleDecision } from './autoScalePolicy.ts';
import {
  dynamoLoad,
  dynamoThresholds,
  dynamoThroughput,
  type EngineModel,
  type Forecast,
  forecastNames,
  type PoolKind,
  poolNames,
  thresholdsOf,
} from './dynamo.ts';
import {
  hpa,
  Kpa,
  type MetricName,
  metricNames,
  modelBased,
  saturation,
  tokenCapacity,
  towards,
} from './reactive.ts';

const positive = (byDefault: number): NumberRule => ({ kind: 'number', default: byDefault, above: 0 });
const share = (byDefault: number): NumberRule => ({ kind: 'number', default: byDefault, min: 0, max: 1 });
const pool = { kind: 'choice', default: 'shared', names: poolNames } as const;
const engine: ParameterRules = {
  alphaUs: positive(7000),
  betaUs: { kind: 'number', default: 25, min: 0 },
  prefillUs: { kind: 'number', default: 20, min: 0 },
  ttftUs: positive(500_000),
  tpotUs: positive(50_000),
};

function engineOf(p: PolicyParameters): EngineModel {
  return {
    alphaUs: p.number('alphaUs'),
    betaUs: p.number('betaUs'),
    prefillUs: p.number('prefillUs'),
    ttftUs: p.number('ttftUs'),
    tpotUs: p.number('tpotUs'),
  };
}

/** A choice of poolNames. */
const poolOf = (p: PolicyParameters): PoolKind => p.text('pool') as PoolKind;

const metric = { kind: 'choice', default: 'concurrency', names: metricNames } as const;

/** Tolerances of AIBrix's autoscalers. */
const tolerances: ParameterRules = {
  upTolerance: share(0.1),
  downTolerance: share(0.1),
  maxUpRate: { kind: 'number', default: 2, above: 1 },
  maxDownRate: { kind: 'number', default: 2, above: 1 },
};

function limitsOf(p: PolicyParameters): AibrixLimits {
  return {
    up: p.number('upTolerance'),
    down: p.number('downTolerance'),
    maxUp: p.number('maxUpRate'),
    maxDown: p.number('maxDownRate'),
  };
}

/** Keeps what there is. */
const none: AutoScalePolicy = {
  name: 'none',
  evaluate: (context): ScaleDecision => towards(context, context.currentReplicas, 'scaling is off'),
  ...noMemory,
};

export const scalingPolicies: Registry<AutoScalePolicy> = new Registry<AutoScalePolicy>('scaling', [
  {
    name: 'none',
    readsKeys: false,
    readsReports: false,
    about: 'the replicas that there are',
    parameters: {},
    make: () => none,
  },
  {
    name: 'hpa',
    readsKeys: false,
    readsReports: true,
    about: "Kubernetes' horizontal pod autoscaler on one figure a replica",
    parameters: {
      metric,
      target: positive(50),
      tolerance: share(0.1),
      maxUpShare: { kind: 'number', default: 1, min: 0 },
      maxUpReplicas: { kind: 'number', default: 4, min: 1, integer: true },
    },
    make: (p) =>
      hpa(
        p.text('metric') as MetricName, // a choice of metricNames
        p.number('target'),
        p.number('tolerance'),
        p.number('maxUpShare'),
        p.number('maxUpReplicas'),
      ),
  },
  {
    name: 'kpa',
    readsKeys: false,
    readsReports: true,
    about: "Knative's pod autoscaler: a stable and a panic window of concurrency",
    parameters: {
      target: positive(70),
      stableWindowUs: positive(60_000_000),
      panicWindowUs: positive(6_000_000),
      panicThreshold: { kind: 'number', default: 2, above: 1 },
      maxScaleUpRate: { kind: 'number', default: 1000, above: 1 },
      maxScaleDownRate: { kind: 'number', default: 2, above: 1 },
    },
    make: (p) =>
      new Kpa(
        p.number('target'),
        p.number('stableWindowUs'),
        p.number('panicWindowUs'),
        p.number('panicThreshold'),
        p.number('maxScaleUpRate'),
        p.number('maxScaleDownRate'),
      ),
  },
  {
    name: 'apa',
    readsKeys: false,
    readsReports: true,
    about: 'AIBrix: a figure a replica with tolerances and bounds on one change',
    parameters: {
      metric,
      target: positive(50),
      ...tolerances,
    },
    // a choice of metricNames
    make: (p) => apa(p.text('metric') as MetricName, p.number('target'), limitsOf(p)),
  },
  {
    name: 'aibrix-kpa',
    readsKeys: false,
    readsReports: true,
    about: 'AIBrix: a stable and a panic window of concurrency, with tolerances and bounds on one change',
    parameters: {
      target: positive(50),
      stableWindowUs: positive(60_000_000),
      panicWindowUs: positive(6_000_000),
      panicThreshold: { kind: 'number', default: 2, above: 1 },
      ...tolerances,
    },
    make: (p) => {
      const windows = {
        target: p.number('target'),
        stableUs: p.number('stableWindowUs'),
        panicUs: p.number('panicWindowUs'),
        panicThreshold: p.number('panicThreshold'),
      };
      return new AibrixKpa(windows, limitsOf(p));
    },
  },
  {
    name: 'saturation',
    readsKeys: false,
    readsReports: true,
    about: 'spare KV and queue of the replicas that are not saturated',
    parameters: {
      kvThreshold: { kind: 'number', default: 0.8, above: 0, max: 1 },
      queueThreshold: positive(5),
      spareKv: share(0.1),
      spareQueue: { kind: 'number', default: 3, min: 0 },
    },
    make: (p) =>
      saturation({
        kvThreshold: p.number('kvThreshold'),
        queueThreshold: p.number('queueThreshold'),
        spareKv: p.number('spareKv'),
        spareQueue: p.number('spareQueue'),
      }),
  },
  {
    name: 'token-capacity',
    readsKeys: false,
    readsReports: true,
    about: 'tokens in use and queued against the tokens that replicas hold',
    parameters: {
      kvThreshold: { kind: 'number', default: 0.8, above: 0, max: 1 },
      upThreshold: positive(0.8),
      downBoundary: positive(0.4),
      promptTokens: { kind: 'number', default: 0, min: 0 },
      boundsByBatch: { kind: 'flag', default: false },
    },
    make: (p) =>
      tokenCapacity({
        kvThreshold: p.number('kvThreshold'),
        upThreshold: p.number('upThreshold'),
        downBoundary: p.number('downBoundary'),
        promptTokens: p.number('promptTokens'),
        boundsByBatch: p.flag('boundsByBatch'),
      }),
  },
  {
    name: 'model-based',
    readsKeys: false,
    readsReports: true,
    about: 'the fewest replicas that a queueing model meets the targets with',
    parameters: engine,
    make: (p) => modelBased(engineOf(p)),
  },
  {
    name: 'dynamo-throughput',
    readsKeys: false,
    readsReports: true,
    about: "Dynamo's planner: what the traffic that is to come takes to prefill and to decode",
    parameters: {
      ...engine,
      pool,
      forecast: { kind: 'choice', default: 'constant', names: forecastNames },
      hitRate: share(0),
    },
    make: (p) =>
      // a choice of forecastNames
      dynamoThroughput(engineOf(p), poolOf(p), p.text('forecast') as Forecast, p.number('hitRate')),
  },
  {
    name: 'dynamo-load',
    readsKeys: false,
    readsReports: true,
    about: "Dynamo's planner: one more where all replicas miss a target, one fewer where that keeps them",
    parameters: { ...engine, pool, sensitivity: { kind: 'number', default: 0.8, above: 0, max: 1 } },
    make: (p) => dynamoLoad(engineOf(p), poolOf(p), p.number('sensitivity')),
  },
  {
    name: 'dynamo-thresholds',
    readsKeys: false,
    readsReports: true,
    about: "Dynamo's planner without targets: thresholds on queued tokens and KV",
    parameters: {
      aim: { kind: 'choice', default: 'throughput', names: Object.keys(thresholdsOf) },
      contextTokens: positive(8192),
      pool,
    },
    make: (p) => {
      const aim = p.text('aim') === 'latency' ? 'latency' : 'throughput';
      const rules = { ...thresholdsOf[aim], contextTokens: p.number('contextTokens') };
      return dynamoThresholds(rules, poolOf(p));
    },
  },
]);
