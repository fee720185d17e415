/** Each object that a simulation is built from: a name that it does not have is refused, with the nearest one. */

import { describe, expect, it } from 'vitest';
import { TierKVError } from '../../../src/runtime/errors.ts';
import { checkControl, PolicyControlPlane } from '../../../src/sim/control/plane.ts';
import type { ScalingActuationConfig } from '../../../src/sim/control/scaling/autoScalePolicy.ts';
import {
  type AutoScalerConfig,
  checkActuation,
  checkAutoScaler,
  noTriggers,
} from '../../../src/sim/control/scaling/autoScaler.ts';
import { newSimulation, type SimulationSetup } from '../../../src/sim/description/deployment.ts';
import { smallPool, streamOf } from './smallCluster.ts';

const pool = smallPool();
/** A control plane serves one simulation: each gets its own. */
const begun = (value: unknown): unknown =>
  newSimulation({
    ...(value as SimulationSetup),
    control: new PolicyControlPlane({}, { key: 1n, blockTokens: 4, maxSequences: 16 }),
  });
const setup: SimulationSetup = {
  deployment: { pools: [pool] },
  workload: { stream: streamOf([]), sessions: undefined },
  control: new PolicyControlPlane({}, { key: 1n, blockTokens: 4, maxSequences: 16 }),
  options: {
    horizonUs: Infinity,
    admissionLatencyUs: 0,
    routingLatencyUs: 0,
    lastTokenInContext: true,
    handoff: {
      baseLatencyUs: 50,
      bandwidthBytesPerS: 1e8,
      granularity: 'request',
      pipelined: false,
      missingOnly: false,
    },
    gateway: { tickUs: 100, ttlUs: 0 },
  },
};
const scaler: AutoScalerConfig = {
  policy: { policy: 'hpa' },
  mode: 'periodic',
  pollIntervalUs: 1000,
  minReplicas: 1,
  maxReplicas: 2,
  upWindowUs: 0,
  downWindowUs: 0,
  triggers: noTriggers,
};
const delay = { meanUs: 0, stddevUs: 0 };
const actuation: ScalingActuationConfig = {
  decisionDelay: delay,
  provisioningDelay: delay,
  modelLoadTime: delay,
  warmup: { durationUs: 0, curve: 'step', initialPenaltyFactor: 1 },
  drain: { mode: 'wait', drainTimeoutUs: 0 },
};
const whole = checkControl({});

type Plain = Record<string, unknown>;
/** Paths of all objects in a value of plain data; functions and instances of classes stay closed. */
function objectsIn(value: unknown, path: readonly string[] = []): string[][] {
  const isPlain =
    typeof value === 'object' && value !== null && Object.getPrototypeOf(value) === Object.prototype;
  if (!isPlain && !Array.isArray(value)) return [];
  const inner = Object.entries(value as Plain).flatMap(([name, one]) => objectsIn(one, [...path, name]));
  return Array.isArray(value) ? inner : [[...path], ...inner];
}

/** A copy in which the object at `path` has a mistyped twin of its first name. */
function mistyped(value: unknown, path: readonly string[]): { copy: unknown; wrong: string } {
  if (path.length > 0) {
    const [first, ...rest] = path;
    const copy = (Array.isArray(value) ? [...value] : { ...(value as Plain) }) as Plain;
    const inner = mistyped(copy[first], rest);
    copy[first] = inner.copy;
    return { copy, wrong: inner.wrong };
  }
  const name = Object.keys(value as Plain)[0] ?? 'meanUs';
  const wrong = `${name.slice(0, 1)}${name.slice(2)}x`;
  return { copy: { ...(value as Plain), [wrong]: 1 }, wrong };
}

/** Objects whose names are free, or which are made by the simulator itself. */
const free = [
  /^workload/,
  /^deployment\.pools\.0\.(latency|engine\.loads\.links)/,
  /^admission\.tenantBudgets/,
  /^priority\.priorities/,
];

describe.each([
  ['newSimulation', setup, begun],
  ['checkControl', whole, (value: unknown) => checkControl(value as typeof whole)],
  ['checkAutoScaler', scaler, (value: unknown) => checkAutoScaler(value as AutoScalerConfig)],
  ['checkActuation', actuation, (value: unknown) => checkActuation(value as ScalingActuationConfig)],
] as const)('%s', (_, good, make) => {
  const paths = objectsIn(good).filter((path) => !free.some((names) => names.test(path.join('.'))));

  it('takes what is right', () => {
    expect(() => make(good)).not.toThrow();
    expect(paths.length).toBeGreaterThan(2);
  });

  it.each(paths.map((path) => [path.join('.') || 'the object itself', path] as const))(
    'names the unknown name in %s',
    (__, path) => {
      const { copy, wrong } = mistyped(good, path);
      let said: unknown;
      try {
        make(copy);
      } catch (error) {
        said = error;
      }
      expect(said, 'it was taken').toBeInstanceOf(TierKVError);
      expect((said as TierKVError).message).toContain(wrong);
    },
  );
});
