import { describe, expect, it } from 'vitest';
import { restoreState, saveState } from '../../../src/runtime/snapshot.ts';
import { type AdmissionPolicy, admissionPolicies } from '../../../src/sim/control/admission.ts';
import type { InstanceSnapshot, PolicyChoice, RequestView } from '../../../src/sim/control/policy.ts';
import { priorityPolicies } from '../../../src/sim/control/priority.ts';
import type { RouterState } from '../../../src/sim/control/routerState.ts';
import { cluster, instance, request, router, world } from './fixtures.ts';

const priorities = priorityPolicies.make({ policy: 'slo-class' }, world());
const make = (choice: PolicyChoice): AdmissionPolicy => admissionPolicies.make(choice, world());

function decide(
  policy: AdmissionPolicy,
  view: RequestView,
  instances: readonly InstanceSnapshot[] = [],
  state: RouterState = router(),
): ReturnType<AdmissionPolicy['decide']> {
  return policy.decide(view, priorities.prioritise(view, state), state, cluster(instances));
}
const verdict = (...args: Parameters<typeof decide>): string => decide(...args).verdict;

describe('admission', () => {
  it('always-admit admits, reject-all rejects', () => {
    expect(verdict(make({ policy: 'always-admit' }), request())).toBe('admit');
    expect(verdict(make({ policy: 'reject-all' }), request())).toBe('reject');
  });

  it('token-bucket: starts full, takes prompt tokens, refills by elapsed time up to its capacity', () => {
    const bucket = make({ policy: 'token-bucket', capacity: 1000, refillRate: 500 });
    const at = (nowUs: number, promptTokens: number): string =>
      verdict(bucket, request({ promptTokens }), [], router({ nowUs }));
    expect(at(0, 1000)).toBe('admit');
    expect(at(0, 1)).toBe('reject');
    // 0.2 s x 500/s = 100 tokens
    expect(at(200_000, 101)).toBe('reject');
    expect(at(200_000, 100)).toBe('admit');
    // ten seconds would be 5,000, but the bucket holds 1,000
    expect(at(10_200_000, 1001)).toBe('reject');
    expect(at(10_200_000, 1000)).toBe('admit');
  });

  it('token-bucket with onEmpty delay: says when enough are there, rejects what never fits', () => {
    const bucket = make({ policy: 'token-bucket', capacity: 1000, refillRate: 500, onEmpty: 'delay' });
    decide(bucket, request({ promptTokens: 1000 }));
    const delayed = decide(bucket, request({ promptTokens: 250 }));
    expect(delayed).toMatchObject({ verdict: 'delay', durationUs: 500_000 });
    expect(verdict(bucket, request({ promptTokens: 250 }), [], router({ nowUs: 500_000 }))).toBe('admit');
    expect(verdict(bucket, request({ promptTokens: 1001 }), [], router({ nowUs: 9e9 }))).toBe('reject');
  });

  it('tier-shed: only above the threshold, only below the priority', () => {
    const policy = make({ policy: 'tier-shed', threshold: 5, minPriority: 0 });
    const calm = [instance(0, { queueDepth: 2, batchSize: 2, inFlight: 1 })];
    const busy = [instance(0), instance(1, { queueDepth: 2, batchSize: 2, inFlight: 2 })];
    expect(verdict(policy, request({ sloClass: 'batch' }), calm)).toBe('admit');
    expect(verdict(policy, request({ sloClass: 'batch' }), busy)).toBe('reject');
    expect(verdict(policy, request({ sloClass: 'standard' }), busy)).toBe('admit');
    const strict = make({ policy: 'tier-shed', threshold: 5, minPriority: 4 });
    expect(verdict(strict, request({ sloClass: 'standard' }), busy)).toBe('reject');
  });

  it('gaie-legacy: mean over instances of max(queue/5, utilisation/0.8) reaches 1', () => {
    const policy = make({ policy: 'gaie-legacy' });
    // (4/5 + 0.9/0.8) / 2 = (0.8 + 1.125) / 2 = 0.9625
    const below = [instance(0, { queueDepth: 4 }), instance(1, { used: 900 })];
    // (5/5 + 1.125) / 2 = 1.0625
    const above = [instance(0, { queueDepth: 5 }), instance(1, { used: 900 })];
    expect(verdict(policy, request({ sloClass: 'batch' }), below)).toBe('admit');
    expect(verdict(policy, request({ sloClass: 'batch' }), above)).toBe('reject');
    expect(verdict(policy, request({ sloClass: 'critical' }), above)).toBe('admit');
    expect(verdict(policy, request({ sloClass: 'batch' }), [])).toBe('reject');
  });

  it('probabilistic: 300 x saturation^5, so about 2.3% at 0.15 and everything from 0.32 on', () => {
    const policy = make({ policy: 'probabilistic' });
    const shed = (utilization: number, sloClass: string): number => {
      const instances = [instance(0, { used: utilization * 800 })];
      let count = 0;
      for (let i = 0; i < 20_000; i++) {
        if (verdict(policy, request({ sloClass }), instances) === 'reject') count++;
      }
      return count / 20_000;
    };
    // 300 x 0.15^5 = 0.02278; six standard deviations of 20,000 draws are 0.0063
    expect(Math.abs(shed(0.15, 'batch') - 0.02278)).toBeLessThan(0.0063);
    expect(shed(0.33, 'batch')).toBe(1);
    expect(shed(0.05, 'batch')).toBeLessThan(0.002);
    expect(shed(0.9, 'standard')).toBe(0);
  });

  it('soft-reflective: ceilings 1 - i x s / (N - 1), and one in round(s / (1 - s)) opens', () => {
    const policy = make({ policy: 'soft-reflective', retryUs: 7000 });
    const at = (saturation: number, sloClass: string): string =>
      verdict(policy, request({ sloClass }), [instance(0, { used: saturation * 800 })]);
    // three bands: ceilings at 0.75 are 1, 0.625 and 0.25
    for (const sloClass of ['critical', 'standard', 'batch']) at(0, sloClass);
    expect(at(0.75, 'critical')).toBe('admit');
    // round(0.75 / 0.25) = 3: two are held, the third opens
    expect([at(0.75, 'batch'), at(0.75, 'batch'), at(0.75, 'batch')]).toEqual(['delay', 'delay', 'admit']);
    // at 0.4 the middle ceiling is 0.8 and the last one 0.6: both are open
    expect([at(0.4, 'standard'), at(0.4, 'batch')]).toEqual(['admit', 'admit']);
    const rejecting = make({ policy: 'soft-reflective' });
    for (const sloClass of ['critical', 'batch']) {
      verdict(rejecting, request({ sloClass }), [instance(0)]);
    }
    expect(verdict(rejecting, request({ sloClass: 'batch' }), [instance(0, { used: 720 })])).toBe('reject');
  });

  it('tenant budgets: a sheddable request of a tenant above its share of all batch slots', () => {
    const policy = make({ policy: 'always-admit', tenantBudgets: { greedy: 0.1 } });
    const busy = (activeRequests: number): RouterState =>
      router({ tenant: (tenantId) => ({ ...router().tenant(tenantId), activeRequests }) });
    const two = [instance(0), instance(1)];
    // 0.1 x 2 x 256 = 51.2
    const batch = request({ tenantId: 'greedy', sloClass: 'batch' });
    expect(verdict(policy, batch, two, busy(51))).toBe('admit');
    expect(verdict(policy, batch, two, busy(52))).toBe('reject');
    expect(verdict(policy, request({ tenantId: 'greedy', sloClass: 'critical' }), two, busy(52))).toBe(
      'admit',
    );
    expect(verdict(policy, request({ tenantId: 'other', sloClass: 'batch' }), two, busy(52))).toBe('admit');
  });

  it('evolved: batch above 12 an instance is shed, 20 for tenants that got little', () => {
    const policy = make({ policy: 'evolved' });
    const at = (inFlight: number, sloClass: string): string =>
      verdict(policy, request({ tenantId: 'a', sloClass }), [
        instance(0, { inFlight }),
        instance(1, { inFlight }),
      ]);
    expect([at(12, 'batch'), at(13, 'batch'), at(25, 'sheddable'), at(26, 'sheddable')]).toEqual([
      'admit',
      'reject',
      'admit',
      'reject',
    ]);
    expect(at(500, 'critical')).toBe('admit');
    // 3 of 5 came in; 3/6 and 3/7 are not below 0.4, 3/8 is
    for (let i = 0; i < 2; i++) expect(at(13, 'batch')).toBe('reject');
    expect(at(13, 'batch')).toBe('admit');
    expect(at(21, 'batch')).toBe('reject');
  });

  it('goes on from a snapshot as if nothing had been in between', () => {
    for (const name of admissionPolicies.names) {
      const one = make({ policy: name });
      const run = (policy: AdmissionPolicy, from: number): string[] =>
        Array.from({ length: 40 }, (_, i) => {
          const sloClass = i % 3 === 0 ? 'batch' : 'standard';
          const busy = [instance(0, { inFlight: 14 + (i % 9), used: 150 + i * 10 })];
          const state = router({ nowUs: (from + i) * 50_000 });
          return verdict(policy, request({ promptTokens: 500, sloClass }), busy, state);
        });
      run(one, 0);
      const two = make({ policy: name });
      restoreState(two, structuredClone(saveState(one)));
      expect(run(two, 40), name).toEqual(run(one, 40));
    }
  });

  it.each([
    [{ policy: 'token-buckett' }, /admission\.policy.*token-bucket/],
    [{ policy: 'token-bucket', capacty: 1 }, /admission\.capacty.*capacity/],
    [{ policy: 'token-bucket', capacity: 0 }, /admission\.capacity is 0.*above 0/],
    [{ policy: 'tier-shed', threshold: 1.5 }, /admission\.threshold is 1\.5.*integer/],
    [{ policy: 'token-bucket', onEmpty: 'dely' }, /admission\.onEmpty.*delay/],
    [{ policy: 'always-admit', tenantBudgets: { a: 2 } }, /admission\.tenantBudgets\.a is 2/],
  ] satisfies readonly (readonly [PolicyChoice, RegExp])[])('refuses %j', (choice, message) => {
    expect(() => make(choice)).toThrow(message);
  });
});
