/** Classes and tenants are named by users: names that every object has are names as all others. */

import { expect, it } from 'vitest';
import { attainmentOf } from '../../../src/policy/evolve/fitness/rawMetrics.ts';
import { goodputTargets } from '../../../src/sim/build/classTargets.ts';
import { admissionPolicies } from '../../../src/sim/control/admission.ts';
import { priorityPolicies } from '../../../src/sim/control/priority.ts';
import { askedBy, readWords } from '../../../src/sim/description/readers.ts';
import { parseWorkloadSpec } from '../../../src/sim/description/readWorkload.ts';
import { attainedOf, goodputOf } from '../../../src/sim/report/metricsOutput.ts';
import { smallWorkload as workloadText } from '../../cli/evaluate/smallWorkload.ts';
import { smallPool, smallSimulation } from '../cluster/smallCluster.ts';
import { cluster, instance, request, router, world } from '../control/fixtures.ts';

const names = ['__proto__', 'constructor', 'standard', 'toString'];
const each = <T>(value: T): Record<string, T> => Object.fromEntries(names.map((name) => [name, value]));

it('a report has every class with a target', () => {
  const requests = [...names, 'hasOwnProperty', 'valueOf'].map((sloClass, i) => {
    return { atUs: 1000 * i, prompt: 16, output: 4, sloClass };
  });
  const simulation = smallSimulation([smallPool()], requests);
  simulation.run();
  simulation.close();
  const { table } = simulation;
  const targets = each({ ttftUs: 1e9 });
  const attainment = attainmentOf(table, targets);
  expect(Object.entries(attainment.byClass)).toEqual(names.map((name) => [name, 1]));
  // what an object has by its prototype is not a weight
  expect([attainment.overall, attainment.weighted]).toEqual([1, 1]);
  const missed = attainmentOf(table, { ...targets, constructor: { ttftUs: 1 } });
  expect(missed.weighted).toBe((1 + 0 + 2 + 1) / 5);
  expect(Object.keys(goodputOf(table, targets, 1)?.per_class ?? {})).toEqual(names);
  const attained = attainedOf(table, targets);
  expect([Object.keys(attained.byClass), attained.attained, attained.withoutTargets]).toEqual([names, 4, 2]);
});

it('targets of options and specifications have every class', () => {
  const { deployment } = askedBy(
    readWords(['--model', 'm', '--slo-ttft', '__proto__=1s,constructor=2s', '--slo-e2e', '__proto__=3s']),
  );
  const section = 'goodput_slo_targets: { __proto__: { itl_ms: 5 }, toString: { ttft_ms: 7 } }';
  const spec = parseWorkloadSpec(workloadText.replace('clients:', `${section}\nclients:`), 'spec.yaml');
  expect(Object.entries(goodputTargets(deployment, spec))).toEqual([
    ['__proto__', { itlUs: 5000, ttftUs: 1e6, e2eUs: 3e6 }],
    ['toString', { ttftUs: 7000 }],
    ['constructor', { ttftUs: 2e6 }],
  ]);
});

it('a policy has the priority of every class, and the budget of every tenant', () => {
  const policy = priorityPolicies.make({ policy: 'slo-class', priorities: each(7) }, world());
  for (const sloClass of names) expect(policy.prioritise(request({ sloClass }), router()).score).toBe(7);
  const tight = admissionPolicies.make({ policy: 'always-admit', tenantBudgets: each(1e-9) }, world());
  for (const tenantId of names) {
    const view = request({ tenantId, sloClass: 'batch' });
    const priority = priorityPolicies.make({ policy: 'slo-class' }, world()).prioritise(view, router());
    const busy = router({ tenant: () => ({ ...router().tenant(tenantId), activeRequests: 5 }) });
    expect(tight.decide(view, priority, busy, cluster([instance(0)])).verdict, tenantId).toBe('reject');
  }
});
