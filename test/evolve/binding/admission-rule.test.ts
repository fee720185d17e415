/** The published admission rule, by name and as a program with state: the same verdict for every request. */

import fs from 'node:fs';
import path from 'node:path';
import { expect, test } from 'vitest';
import { bindBundle } from '../../../src/policy/evolve/binding/bind.ts';
import { restoreState, saveState } from '../../../src/runtime/snapshot.ts';
import { type AdmissionPolicy, admissionPolicies } from '../../../src/sim/control/admission.ts';
import { SeededRandom } from '../../../src/testing/index.ts';
import { cluster, instance, request, router, world } from '../../sim/control/fixtures.ts';

const file = path.join(import.meta.dirname, '../../../examples/policies/starlark/shedding.star');

test('the evolved admission rule decides alike by name and in Starlark', async () => {
  const source = fs.readFileSync(file, 'utf8');
  const bound = await bindBundle({ admission: { type: 'code', language: 'starlark', source } });
  const named = admissionPolicies.make({ policy: 'evolved' }, world());
  let program = bound.policies.admission?.(world()) as AdmissionPolicy;
  const random = new SeededRandom(11);
  const classes = ['critical', 'standard', 'batch', 'sheddable', 'background', ''];
  const priority = { score: 0, rank: 0, hints: { sheddable: true, dueUs: 0 } };
  const verdicts: string[] = [];
  for (let number = 0; number < 3000; number++) {
    const asked = request({
      number,
      sloClass: classes[random.below(classes.length)],
      tenantId: `tenant-${random.below(3)}`,
    });
    const load = random.below(45);
    const state = cluster([
      instance(0, { inFlight: load }),
      instance(1, { inFlight: load + random.below(3) }),
    ]);
    const wanted = named.decide(asked, priority, router(), state).verdict;
    expect(program.decide(asked, priority, router(), state).verdict, `request ${number}`).toBe(wanted);
    verdicts.push(wanted);
    if (number % 500 !== 499) continue;
    // another instance of the program goes on from what this one remembers
    const saved = structuredClone(saveState(program));
    program = bound.policies.admission?.(world()) as AdmissionPolicy;
    restoreState(program, saved);
  }
  expect(new Set(verdicts)).toEqual(new Set(['admit', 'reject']));
});
