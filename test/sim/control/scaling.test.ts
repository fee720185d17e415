import { describe, expect, it } from 'vitest';
import { restoreState, saveState } from '../../../src/runtime/snapshot.ts';
import type { PolicyChoice } from '../../../src/sim/control/policy.ts';
import {
  type AutoScaleContext,
  type LoadSample,
  type ReplicaSignals,
  type ScalingActuationConfig,
  warmupFactor,
} from '../../../src/sim/control/scaling/autoScalePolicy.ts';
import {
  AutoScaler,
  type AutoScalerConfig,
  noTriggers,
  type ReplicaAction,
  Replicas,
} from '../../../src/sim/control/scaling/autoScaler.ts';
import { scalingPolicies } from '../../../src/sim/control/scaling/registry.ts';
import { PartitionedRandom } from '../../../src/sim/random/goRand.ts';
import { world } from './fixtures.ts';
import { idleMetrics } from './idleMetrics.ts';

const second = 1_000_000;

function sample(timeUs: number, fields: Partial<LoadSample> = {}): LoadSample {
  return { timeUs, concurrency: 0, requestRate: 0, avgQueueDepth: 0, avgUtilization: 0, ...fields };
}

function replica(instance: number, fields: Partial<ReplicaSignals> = {}): ReplicaSignals {
  return {
    instance,
    queueDepth: 0,
    batchSize: 0,
    inFlight: 0,
    maxBatch: 8,
    kvUtilization: 0,
    kvCapacityTokens: 1000,
    kvUsedTokens: 0,
    ...fields,
  };
}

function context(fields: Partial<AutoScaleContext> = {}): AutoScaleContext {
  const replicas = fields.replicas ?? [replica(0), replica(1)];
  const readyReplicas = fields.readyReplicas ?? replicas.length;
  const pendingReplicas = fields.pendingReplicas ?? 0;
  return {
    configId: 'default',
    nowUs: 0,
    minReplicas: 1,
    maxReplicas: 100,
    metrics: idleMetrics,
    loadHistory: [],
    pendingRequests: 0,
    sinceLastScaleUs: Infinity,
    ...fields,
    replicas,
    readyReplicas,
    pendingReplicas,
    currentReplicas: fields.currentReplicas ?? readyReplicas + pendingReplicas,
  };
}

const target = (choice: PolicyChoice, at: AutoScaleContext): number =>
  scalingPolicies.make(choice, world()).evaluate(at).targetReplicas;

describe('autoscaling policies, by their formulas', () => {
  it('hpa: ceil(ready x metric / target), nothing within the tolerance, limited growth', () => {
    const hpa = { policy: 'hpa', metric: 'concurrency', target: 10 };
    const at = (concurrency: number, fields: Partial<AutoScaleContext> = {}): number =>
      target(hpa, context({ loadHistory: [sample(0, { concurrency })], ...fields }));
    expect(at(21)).toBe(2); // 1.05 is within the tolerance
    expect(at(23)).toBe(3); // ceil(2 x 1.15)
    expect(at(19)).toBe(2);
    expect(at(9)).toBe(1); // ceil(2 x 0.45)
    expect(at(400)).toBe(6); // ceil(40) > 2 + max(2, 4)
    // two pending ones carry their share: 38 over four is 9.5 of 10
    expect(at(38, { pendingReplicas: 2 })).toBe(4);
    expect(at(46, { pendingReplicas: 2 })).toBe(5); // ceil(4 x 1.15)
    expect(target(hpa, context())).toBe(2); // nothing measured
  });

  it('kpa: stable and panic windows; in panic it never shrinks, and panic ends after a stable window', () => {
    const policy = scalingPolicies.make({ policy: 'kpa', target: 10 }, world());
    const history: LoadSample[] = [];
    let replicas = 2;
    const at = (seconds: number, concurrency: number): number => {
      history.push(sample(seconds * second, { concurrency }));
      const list = Array.from({ length: replicas }, (_, i) => replica(i));
      const decision = policy.evaluate(
        context({ nowUs: seconds * second, loadHistory: history, replicas: list }),
      );
      replicas = decision.targetReplicas;
      return replicas;
    };
    expect(at(0, 20)).toBe(2);
    // stable mean (20 + 22) / 2 = 21, ceil(2.1) = 3; panic has the last reading alone: 22, 3 / 2 < 2
    expect(at(10, 22)).toBe(3);
    // panic: 90 / 10 = 9 replicas, 9 / 3 = 3 >= 2
    expect(at(20, 90)).toBe(9);
    // stable mean (20 + 22 + 90 + 5) / 4 / 10 = 4, but panic holds 9
    expect(at(30, 5)).toBe(9);
    // 60 s after the last panic, only (0) readings are in the window: down to floor(9 / 2)
    for (let seconds = 40; seconds < 80; seconds += 10) expect(at(seconds, 0)).toBe(9);
    expect(at(80, 0)).toBe(4);
  });

  it('apa: up to maxUp and down to 1 / maxDown at once', () => {
    const apa = { policy: 'apa', target: 10, maxUpRate: 2, maxDownRate: 2 };
    const four = [0, 1, 2, 3].map((i) => replica(i));
    const at = (concurrency: number): number =>
      target(apa, context({ replicas: four, loadHistory: [sample(0, { concurrency })] }));
    expect([at(44), at(36), at(46), at(200), at(35), at(2)]).toEqual([4, 4, 5, 8, 4, 2]);
  });

  it('saturation: one more when spare runs out, one fewer when N - 1 would keep it', () => {
    const saturation = { policy: 'saturation' };
    const at = (a: Partial<ReplicaSignals>, b: Partial<ReplicaSignals>, pendingReplicas = 0): number =>
      target(saturation, context({ replicas: [replica(0, a), replica(1, b)], pendingReplicas }));
    expect(at({ kvUtilization: 0.75 }, { kvUtilization: 0.72 })).toBe(3); // mean spare KV 0.065
    expect(at({ queueDepth: 3 }, { queueDepth: 3 })).toBe(3); // mean spare queue 2
    expect(at({ kvUtilization: 0.9 }, { queueDepth: 7 })).toBe(3); // all saturated
    expect(at({ kvUtilization: 0.3 }, { kvUtilization: 0.3 })).toBe(1); // 0.8 - 0.6 >= 0.1
    expect(at({ kvUtilization: 0.4 }, { kvUtilization: 0.35 })).toBe(2); // 0.8 - 0.75 < 0.1
    expect(at({ kvUtilization: 0.9 }, { queueDepth: 7 }, 1)).toBe(3); // the pending one counts already
  });

  it('token-capacity: demand / up against supply, spare against demand / down', () => {
    const policy = { policy: 'token-capacity', promptTokens: 100 };
    const used = (tokens: number, queueDepth = 0, fields: Partial<AutoScaleContext> = {}): number =>
      target(
        policy,
        context({ replicas: [replica(0, { kvUsedTokens: tokens, queueDepth }), replica(1)], ...fields }),
      );
    // supply 2 x 800; 1280 / 0.8 = 1600
    expect(used(1280)).toBe(2);
    expect(used(1281)).toBe(3);
    expect(used(1000, 9)).toBe(3); // 1000 + 900 = 1900 / 0.8 = 2375: 775 missing
    expect(used(1000, 20)).toBe(5); // 3000 / 0.8 = 3750: 2150 missing, three replicas
    expect(used(1000, 9, { pendingReplicas: 1 })).toBe(3); // 2400 is enough
    // spare: 1600 - 800 - d / 0.4 > 0 for d < 320
    expect([used(319), used(321)]).toEqual([1, 2]);
    // bounded by the batch: 8 x (100 + 20 / 2) = 880 tokens is above 800, 8 x (50 + 5) = 440 below
    const metrics = { ...context().metrics, avgPromptTokens: 50, avgOutputTokens: 10 };
    const bounded = { ...policy, boundsByBatch: true };
    const at = context({ replicas: [replica(0, { kvUsedTokens: 705 }), replica(1)], metrics });
    expect([target(policy, at), target(bounded, at)]).toEqual([2, 3]); // 705 / 0.8 = 881 > 880
  });

  it('model-based: one slot is the M/M/1 queue; the fewest replicas that meet both targets', () => {
    const rules = { policy: 'model-based', alphaUs: 100, betaUs: 0, prefillUs: 0, ttftUs: 3000, tpotUs: 200 };
    const one = [replica(0, { maxBatch: 1 })];
    const metrics = { ...context().metrics, requestRate: 800, avgPromptTokens: 10, avgOutputTokens: 10 };
    // service 1000 µs; a wait of rho / (1 - rho) x 1000 + 100: n = 1: 4100, n = 2: 767
    expect(target(rules, context({ replicas: one, metrics }))).toBe(2);
    expect(target({ ...rules, ttftUs: 4101 }, context({ replicas: one, metrics }))).toBe(1);
    expect(target({ ...rules, tpotUs: 99 }, context({ replicas: one, metrics, maxReplicas: 7 }))).toBe(7);
    expect(target(rules, context({ replicas: one, metrics: { ...metrics, requestRate: 0 } }))).toBe(1);
  });
});

const delays: ScalingActuationConfig = {
  decisionDelay: { meanUs: 0, stddevUs: 0 },
  provisioningDelay: { meanUs: 120 * second, stddevUs: 0 },
  modelLoadTime: { meanUs: 30 * second, stddevUs: 0 },
  warmup: { durationUs: 100 * second, curve: 'linear', initialPenaltyFactor: 1.5 },
  drain: { mode: 'wait', drainTimeoutUs: 60 * second },
};
const scaler = (fields: Partial<AutoScalerConfig>): AutoScaler =>
  new AutoScaler(
    {
      policy: { policy: 'hpa', metric: 'queueDepth', target: 5 },
      mode: 'periodic',
      pollIntervalUs: 10 * second,
      minReplicas: 1,
      maxReplicas: 4,
      upWindowUs: 0,
      downWindowUs: 0,
      triggers: noTriggers,
      ...fields,
    },
    world(),
  );

describe('the autoscaler', () => {
  const queued = (seconds: number, avgQueueDepth: number): AutoScaleContext =>
    context({ nowUs: seconds * second, loadHistory: [sample(seconds * second, { avgQueueDepth })] });

  it('Scale up on sustained load', () => {
    const auto = scaler({
      mode: 'event',
      triggers: { ...noTriggers, queueDepth: 10, sustainedUs: 60 * second },
    });
    const loadHistory: LoadSample[] = [];
    const at = (seconds: number, avgQueueDepth: number): string => {
      loadHistory.push(sample(seconds * second, { avgQueueDepth }));
      return auto.evaluate(context({ nowUs: seconds * second, loadHistory })).action;
    };
    for (let seconds = 0; seconds < 60; seconds += 10) expect(at(seconds, 12)).toBe('none');
    expect(at(60, 12)).toBe('up');
    // a reading below the threshold starts the 60 s anew
    expect(at(70, 9)).toBe('none');
    expect(at(80, 12)).toBe('none');
  });

  it('refuses events without a trigger that can fire: its policy would never be asked', () => {
    expect(() => scaler({ mode: 'event' })).toThrow(/scaling\.triggers hold nothing that can fire/);
    expect(() => scaler({ mode: 'event', triggers: { ...noTriggers, utilizationLow: 0 } })).toThrow(
      /can fire/,
    );
    expect(() => scaler({ mode: 'event', triggers: { ...noTriggers, utilizationLow: 0.1 } })).not.toThrow();
  });

  it('keeps to its bounds whatever its policy wishes', () => {
    expect(scaler({}).evaluate(queued(0, 500))).toMatchObject({ action: 'up', targetReplicas: 4 });
    expect(scaler({ minReplicas: 2 }).evaluate(queued(0, 0))).toMatchObject({ action: 'none' });
    expect(scaler({ minReplicas: 3 }).evaluate(queued(0, 5))).toMatchObject({
      action: 'up',
      targetReplicas: 3,
    });
  });

  it('acts in a direction only after its window without a break', () => {
    const auto = scaler({ upWindowUs: 30 * second, downWindowUs: 20 * second });
    const actions = [9, 9, 9, 5, 9, 9, 9, 9, 1, 1, 1].map(
      (depth, i) => auto.evaluate(queued(i * 10, depth)).action,
    );
    expect(actions.join(' ')).toBe('none none none none none none none up none none down');
  });

  it.each([
    [{ minReplicas: 5 }, /scaling\.minReplicas is 5, above scaling\.maxReplicas 4/],
    [{ policy: { policy: 'hpaa' } }, /scaling\.policy.*hpa/],
    [{ policy: { policy: 'hpa', targt: 1 } }, /scaling\.targt.*target/],
    [{ pollIntervalUs: 0 }, /scaling\.pollIntervalUs/],
  ] satisfies readonly (readonly [Partial<AutoScalerConfig>, RegExp])[])('refuses %j', (fields, message) => {
    expect(() => scaler(fields)).toThrow(message);
  });
});

describe('replicas', () => {
  const up = (targetReplicas: number) => ({ action: 'up', targetReplicas, reason: '' }) as const;
  const make = (config: Partial<ScalingActuationConfig> = {}, initial = 2): Replicas =>
    new Replicas({ ...delays, ...config }, { min: 1, max: 5 }, initial, world());

  it('Scale-up takes its time: provisioning, loading, ready, and slower until it is warm', () => {
    const replicas = make();
    expect(replicas.apply(up(3), 0)).toEqual([{ kind: 'wait', replica: 2, untilUs: 0 }]);
    expect(replicas.due(2, 0)).toEqual([{ kind: 'wait', replica: 2, untilUs: 120 * second }]);
    expect([replicas.all[2].phase, replicas.ready, replicas.current]).toEqual(['provisioning', 2, 3]);
    expect(replicas.due(2, 100 * second)).toEqual([]); // not yet
    expect(replicas.due(2, 120 * second)).toEqual([{ kind: 'wait', replica: 2, untilUs: 150 * second }]);
    expect(replicas.all[2].phase).toBe('loading');
    expect(replicas.due(2, 150 * second)).toEqual([{ kind: 'ready', replica: 2 }]);
    expect([150, 200, 250, 900].map((s) => replicas.slowdown(2, s * second))).toEqual([1.5, 1.25, 1, 1]);
    expect(replicas.slowdown(0, 0)).toBe(1);
    expect(replicas.warmUntilUs(2)).toBe(250 * second);
  });

  it('warm-up curves', () => {
    const profile = (curve: 'linear' | 'exponential' | 'step') =>
      ({ durationUs: 100, curve, initialPenaltyFactor: 3 }) as const;
    expect([0, 25, 100].map((t) => warmupFactor(profile('linear'), t))).toEqual([3, 2.5, 1]);
    expect([0, 99, 100].map((t) => warmupFactor(profile('step'), t))).toEqual([3, 3, 1]);
    expect(warmupFactor(profile('exponential'), 0)).toBe(3);
    // half of the time leaves a tenth of the penalty
    expect(warmupFactor(profile('exponential'), 50)).toBeCloseTo(1.2, 12);
    expect(warmupFactor(profile('exponential'), 100)).toBe(1);
  });

  it('drains: immediate at once, wait until it is empty or time is up, and lowest number first', () => {
    const down = { action: 'down', targetReplicas: 1, reason: '' } as const;
    expect(make({ drain: { mode: 'immediate', drainTimeoutUs: 0 } }).apply(down, 5)).toEqual([
      { kind: 'drain', replica: 0, mode: 'immediate', untilUs: 5 },
      { kind: 'terminate', replica: 0 },
    ]);
    const waiting = make();
    expect(waiting.apply(down, 5)).toEqual([
      { kind: 'drain', replica: 0, mode: 'wait', untilUs: 60 * second + 5 },
      { kind: 'wait', replica: 0, untilUs: 60 * second + 5 },
    ]);
    expect(waiting.empty(0)).toEqual([{ kind: 'terminate', replica: 0 }]);
    expect(waiting.due(0, 60 * second + 5)).toEqual([]);
    const slow = make({ drain: { mode: 'redirect', drainTimeoutUs: 10 } });
    slow.apply(down, 0);
    expect(slow.due(0, 9)).toEqual([]);
    expect(slow.due(0, 10)).toEqual([{ kind: 'terminate', replica: 0 }]);
  });

  it('calls off what is on its way before anything drains', () => {
    const replicas = make();
    replicas.apply(up(3), 0);
    expect(replicas.apply({ action: 'down', targetReplicas: 2, reason: '' }, 1)).toEqual([
      { kind: 'terminate', replica: 2 },
    ]);
    expect(replicas.due(2, 999 * second)).toEqual([]);
  });

  it('never leaves its bounds, and repeats itself from a snapshot', () => {
    const seed = 20261124n;
    const random = new PartitionedRandom(seed).stream('workload');
    const spread = { meanUs: 50, stddevUs: 30 };
    const noisy = { decisionDelay: spread, provisioningDelay: spread, modelLoadTime: spread };
    const one = make(noisy);
    let twin = make(noisy);
    const pending: { replica: number; untilUs: number }[] = [];
    for (let nowUs = 0; nowUs < 4000; nowUs += 10) {
      const act = (run: (replicas: Replicas) => ReplicaAction[]): void => {
        const actions = run(one);
        expect(run(twin), `seed ${seed}`).toEqual(actions);
        for (const action of actions) if (action.kind === 'wait') pending.push(action);
      };
      const targetReplicas = random.intn(12) - 3;
      if (random.intn(3) === 0)
        act((replicas) => replicas.apply({ action: 'up', targetReplicas, reason: '' }, nowUs));
      for (const { replica, untilUs } of pending.splice(0)) {
        if (untilUs > nowUs) pending.push({ replica, untilUs });
        else act((replicas) => replicas.due(replica, nowUs));
      }
      one.checkIntegrity();
      if (nowUs % 500 === 0) {
        const restored = make(noisy);
        restoreState(restored, structuredClone(saveState(one)));
        twin = restored;
      }
    }
    expect(one.all.length).toBeGreaterThan(20);
  });

  it('refuses delays and factors out of range', () => {
    expect(() => make({ modelLoadTime: { meanUs: -1, stddevUs: 0 } })).toThrow(/modelLoadTime\.meanUs is -1/);
    const warmup = { ...delays.warmup, initialPenaltyFactor: 0.5 };
    expect(() => make({ warmup })).toThrow(/warmup\.initialPenaltyFactor is 0\.5/);
    expect(() => make({}, 6)).toThrow(/replicas is 6/);
  });
});
