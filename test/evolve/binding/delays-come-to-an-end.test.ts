/** Programs and trees that put requests off for ever end in an error of the policy, in a fork as well. */

import { expect, test } from 'vitest';
import { bindBundle } from '../../../src/policy/evolve/binding/bind.ts';
import { readBundle } from '../../../src/policy/evolve/bundle/readBundle.ts';
import { restoreState, saveState } from '../../../src/runtime/snapshot.ts';
import type { AdmissionPolicy } from '../../../src/sim/control/admission.ts';
import { cluster, instance, request, router, world } from '../../sim/control/fixtures.ts';

const priority = { score: 0, rank: 0, hints: { sheddable: true, dueUs: 0 } };
const state = cluster([instance(0)]);

async function policyOf(spec: unknown): Promise<AdmissionPolicy> {
  const bound = await bindBundle(readBundle({ admission: spec }));
  return bound.policies.admission?.(world()) as AdmissionPolicy;
}

const tree = { type: 'decisionTree', root: { action: 'delay', value: 5 } };
const program = {
  type: 'code',
  language: 'starlark',
  source: 'def admit(request, cluster, instances):\n    return ("delay", 1000)\n',
};

test.each([
  ['tree', tree],
  ['program', program],
])('a %s that always delays', async (_, spec) => {
  let policy = await policyOf(spec);
  const decide = (number: number): string =>
    policy.decide(request({ number, id: `request_${number}` }), priority, router(), state).verdict;
  for (let i = 0; i < 1999; i++) expect(decide(i % 2)).toBe('delay');
  const saved = structuredClone(saveState(policy));
  policy = await policyOf(spec);
  restoreState(policy, saved);
  expect(decide(1)).toBe('delay');
  expect(() => decide(0)).toThrow(
    /^invalid_decision: admission, request request_0, .*: 2001 delays for 2 requests.* admit or reject/,
  );
});

test('one that delays each request once goes on', async () => {
  const source =
    'def admit(request, cluster, instances, state):\n' +
    '    if state.get(request.sessionId) == None:\n' +
    '        state[request.sessionId] = 1\n' +
    '        return ("delay", 1)\n' +
    '    return "admit"\n';
  const policy = await policyOf({ ...program, source });
  for (let number = 0; number < 3000; number++) {
    const asked = request({ number, sessionId: `s${number}` });
    expect(policy.decide(asked, priority, router(), state).verdict).toBe('delay');
    expect(policy.decide(asked, priority, router(), state).verdict).toBe('admit');
  }
});

test.each([
  ['starlark', 'def admit(request, cluster, instances):\n    return ("delay", -5)\n'],
  ['javascript', 'function admit() { return ["delay", -5]; }'],
])('a delay below 0 is refused as a decision, in %s', async (language, source) => {
  const policy = await policyOf({ type: 'code', language, source });
  expect(() => policy.decide(request({ id: 'request_7' }), priority, router(), state)).toThrow(
    /^invalid_decision: admission, request request_7, at \d+ µs: the delay is -5 µs\. Give one of at least 0$/,
  );
});

test('a delay of 0 is the shortest one, and none is longer than a day', async () => {
  const by = async (amount: string): Promise<unknown> => {
    const policy = await policyOf({
      ...program,
      source: `def admit(r, c, i):\n  return ("delay", ${amount})\n`,
    });
    return policy.decide(request({ id: 'request_7' }), priority, router(), state);
  };
  expect(await by('0')).toMatchObject({ verdict: 'delay', durationUs: 1 });
  expect(await by('0.2')).toMatchObject({ durationUs: 1 });
  expect(await by('1e300')).toMatchObject({ durationUs: 86_400_000_000 });
});
