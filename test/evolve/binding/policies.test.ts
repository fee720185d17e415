/** Programs and trees as policies: what they are told, what they may answer, and what they remember. */

import { describe, expect, test } from 'vitest';
import { bindBundle } from '../../../src/policy/evolve/binding/bind.ts';
import type { PolicyBundle, PolicySlot, TreeNode } from '../../../src/policy/evolve/bundle/policyBundle.ts';
import { PolicyError } from '../../../src/policy/sandbox/program.ts';
import { restoreState, saveState } from '../../../src/runtime/snapshot.ts';
import type { AdmissionPolicy } from '../../../src/sim/control/admission.ts';
import { PolicyControlPlane } from '../../../src/sim/control/plane.ts';
import type { PriorityPolicy } from '../../../src/sim/control/priority.ts';
import type { RoutingPolicy } from '../../../src/sim/control/routing/routingPolicy.ts';
import { cluster, instance, probe, request, router, world } from '../../sim/control/fixtures.ts';

const star = (slot: PolicySlot, source: string, entrypoint?: string): PolicyBundle => ({
  [slot]: { type: 'code', language: 'starlark', source, ...(entrypoint === undefined ? {} : { entrypoint }) },
});
const tree = (slot: PolicySlot, root: TreeNode): PolicyBundle => ({ [slot]: { type: 'decisionTree', root } });

async function admissionOf(bundle: PolicyBundle): Promise<AdmissionPolicy> {
  return (await bindBundle(bundle)).policies.admission?.(world()) as AdmissionPolicy;
}
async function priorityOf(bundle: PolicyBundle): Promise<PriorityPolicy> {
  return (await bindBundle(bundle)).policies.priority?.(world()) as PriorityPolicy;
}
async function routingOf(bundle: PolicyBundle): Promise<RoutingPolicy> {
  return (await bindBundle(bundle)).policies.routing?.(world()) as RoutingPolicy;
}

const priority = { score: 3, rank: 1, hints: { sheddable: false, dueUs: 0 } };
const busy = cluster([instance(0, { inFlight: 9 }), instance(1, { inFlight: 1 })]);

describe('admission', () => {
  const source = [
    'def admit(request, cluster, instances):',
    '    if request.sloClass == "batch" and cluster.meanInFlight > 4:',
    '        return "reject"',
    '    if instances[0].inFlight > 8 and request.promptTokens > 1000:',
    '        return ("delay", 2500)',
    '    return "admit"',
  ].join('\n');

  test('a program admits, rejects and delays', async () => {
    const policy = await admissionOf(star('admission', source));
    const decide = (fields: object): string | undefined => {
      const decision = policy.decide(request(fields), priority, router(), busy);
      return decision.verdict === 'delay' ? `${decision.durationUs}` : decision.verdict;
    };
    expect(decide({})).toBe('admit');
    expect(decide({ sloClass: 'batch' })).toBe('reject');
    expect(decide({ promptTokens: 2000 })).toBe('2500');
  });

  test('a tree does the same', async () => {
    const policy = await admissionOf(
      tree('admission', {
        condition: { feature: 'request.classPriority', comparison: '<', value: 0 },
        trueChild: { action: 'reject' },
        falseChild: {
          condition: { feature: 'cluster.maxInFlight', comparison: '>=', value: 9 },
          trueChild: { action: 'delay', value: 100 },
          falseChild: { action: 'admit' },
        },
      }),
    );
    const verdict = (sloClass: string, state: typeof busy): string =>
      policy.decide(request({ sloClass }), priority, router(), state).verdict;
    expect(verdict('batch', busy)).toBe('reject');
    expect(verdict('critical', busy)).toBe('delay');
    expect(verdict('critical', cluster([instance(0)]))).toBe('admit');
  });

  test('what a program remembers can be written down', async () => {
    const counting = [
      'def admit(request, cluster, instances, state):',
      '    state["seen"] = state.get("seen", 0) + 1',
      '    return "reject" if state["seen"] % 3 == 0 else "admit"',
    ].join('\n');
    const policy = await admissionOf(star('admission', counting));
    const decide = (): string => policy.decide(request(), priority, router(), busy).verdict;
    expect([decide(), decide()]).toEqual(['admit', 'admit']);
    const saved = structuredClone(saveState(policy));
    expect([decide(), decide()]).toEqual(['reject', 'admit']);
    restoreState(policy, saved);
    expect(decide()).toBe('reject');
  });

  test('an invalid answer names slot, request and remedy', async () => {
    const policy = await admissionOf(star('admission', 'def admit(r, c, i):\n  return "yes"'));
    expect(() => policy.decide(request({ number: 7 }), priority, router({ nowUs: 12 }), busy)).toThrow(
      /^invalid_decision: admission, request request_7, at 12 µs: admit returns "yes"\. Return one of "admit"/,
    );
  });
});

describe('priority', () => {
  test('a higher score is more urgent, and ranks are whole numbers', async () => {
    const policy = await priorityOf(
      star('priority', 'def prioritise(request, cluster):\n  return request.classPriority + 0.5'),
    );
    const rank = (sloClass: string): number => policy.prioritise(request({ sloClass }), router()).rank;
    expect(rank('critical')).toBeLessThan(rank('standard'));
    expect(Number.isInteger(rank('critical'))).toBe(true);
    expect(policy.prioritise(request({ sloClass: 'batch' }), router())).toMatchObject({
      score: -0.5,
      hints: { sheddable: true },
    });
  });

  test('a tree adds to the class', async () => {
    const policy = await priorityOf(
      tree('priority', {
        condition: { feature: 'request.promptTokens', comparison: '<', value: 200 },
        trueChild: { action: 'class', value: 1 },
        falseChild: { action: 'score', value: 0 },
      }),
    );
    const score = (fields: object): number => policy.prioritise(request(fields), router()).score;
    expect(score({ sloClass: 'critical', promptTokens: 100 })).toBe(5);
    expect(score({ sloClass: 'critical', promptTokens: 400 })).toBe(0);
  });
});

describe('routing', () => {
  const context = (candidates = busy.instances) => ({
    request: request({ group: 3, promptTokens: 320 }),
    priority,
    candidates,
    router: router({ cached: [2, 9] }),
  });

  test('an index or scores; ties go to the lowest instance', async () => {
    const byIndex = await routingOf(star('routing', 'def route(request, cluster, instances):\n  return 1'));
    expect(byIndex.choose(context()).index).toBe(1);
    const even = await routingOf(
      star('routing', 'def score(r, c, instances):\n  return [0 for i in instances]'),
    );
    expect(even.choose(context()).index).toBe(0);
    const own = await routingOf(
      star('routing', 'def fewest(r, c, instances):\n  return [-i.inFlight for i in instances]', 'fewest'),
    );
    expect(own.choose(context()).index).toBe(1);
    const both = 'def score(r, c, i):\n  return [0 for x in i]\ndef route(r, c, i):\n  return 1';
    expect((await routingOf(star('routing', both, 'route'))).choose(context()).index).toBe(1);
  });

  test('only what a program reads is kept for it', async () => {
    const blind = await routingOf(star('routing', 'def score(r, c, i):\n  return [0 for x in i]'));
    const seeing = await routingOf(
      star('routing', 'def score(r, c, i):\n  return [x.cachedBlocks for x in i]'),
    );
    expect([blind.readsCaches, seeing.readsCaches]).toEqual([false, true]);
    expect(seeing.choose(context()).index).toBe(1);
  });

  test('a program or tree says whether it goes by what instances report', async () => {
    const score = (value: string): PolicyBundle =>
      star('routing', `def score(r, cluster, i):\n  return [${value} for x in i]`);
    const leaf = (action: string): TreeNode => ({ action, value: 1 });
    const asks = (feature: string): TreeNode => ({
      condition: { feature, comparison: '<', value: 1 },
      trueChild: leaf('score'),
      falseChild: leaf('active-requests'),
    });
    const of = async (bundle: PolicyBundle): Promise<boolean> => (await routingOf(bundle)).readsReports;
    for (const value of ['-x.inFlight', 'x.cachedBlocks', 'cluster.meanInFlight']) {
      expect(await of(score(value))).toBe(false);
    }
    for (const value of ['-x.queueDepth', 'x.load', 'cluster.maxLoad']) {
      expect(await of(score(value))).toBe(true);
    }
    for (const feature of ['instance.inFlight', 'cluster.minInFlight', 'request.promptTokens']) {
      expect(await of(tree('routing', asks(feature)))).toBe(false);
    }
    for (const feature of ['instance.kvUtilization', 'cluster.meanQueueDepth']) {
      expect(await of(tree('routing', asks(feature)))).toBe(true);
    }
    expect(await of(tree('routing', leaf('lor')))).toBe(false);
    expect(await of(tree('routing', leaf('llq')))).toBe(true);
    expect(await of(tree('routing', leaf('queue-depth')))).toBe(true);
  });

  test('the router remembers where it sent a prefix, also in a copy', async () => {
    const make = (): Promise<RoutingPolicy> =>
      routingOf(star('routing', 'def score(r, c, i):\n  return [x.prefixAffinity for x in i]'));
    const policy = await make();
    expect(policy.choose(context()).index).toBe(0);
    policy.routed?.(context(), 1);
    expect(policy.choose(context()).index).toBe(1);
    const copy = await make();
    restoreState(copy, structuredClone(saveState(policy)));
    expect(copy.choose(context()).index).toBe(1);
    policy.removed?.(1);
    expect(policy.choose(context()).index).toBe(0);
  });

  test('a tree scores each instance by its leaf', async () => {
    const policy = await routingOf(
      tree('routing', {
        condition: { feature: 'instance.inFlight', comparison: '>', value: 5 },
        trueChild: { action: 'score', value: -100 },
        falseChild: { action: 'lor', value: 2 },
      }),
    );
    const choice = policy.choose(context());
    expect(choice.index).toBe(1);
    expect([...(choice.scores as Float64Array).slice(0, 2)]).toEqual([-100, -2]);
  });
});

describe('outcomes', () => {
  test('a program learns from them, and what it learnt is part of its state', async () => {
    const source = [
      'def on_complete(outcome, state):',
      '    if not outcome.completed:',
      '        return',
      '    state[outcome.instance] = outcome.ttftUs',
      'def score(request, cluster, instances, state):',
      '    return [-state.get(i.number, 0) for i in instances]',
    ].join('\n');
    const bundle = star('routing', source);
    const { policies } = await bindBundle(bundle);
    const plane = (): PolicyControlPlane => {
      const made = new PolicyControlPlane({}, { key: 1n, blockTokens: 16, maxSequences: 8, policies });
      for (const number of [0, 1]) {
        made.addInstance(probe(number));
        made.setRoutable(number, true);
      }
      return made;
    };
    const first = plane();
    const serve = (
      control: PolicyControlPlane,
      number: number,
      nowUs: number,
      how: 'completed' | 'timedOut',
    ) => {
      const asked = request({ number, arrivalUs: nowUs });
      control.arrived(asked, nowUs);
      const target = control.route(asked, control.prioritise(asked, nowUs), nowUs)?.target ?? -1;
      control.firstToken(asked, target, nowUs + 500);
      control.ended(asked, target, how, 3, nowUs + 900);
      return target;
    };
    expect(serve(first, 0, 10, 'timedOut')).toBe(0);
    expect(serve(first, 1, 20, 'completed')).toBe(0);
    const second = plane();
    restoreState(second, structuredClone(saveState(first)));
    expect(serve(first, 2, 30, 'completed')).toBe(1);
    expect(serve(second, 2, 30, 'completed')).toBe(1);
  });

  test('an error in on_complete names the request', async () => {
    const source =
      'def on_complete(outcome, state):\n  return 1 // 0\ndef score(r, c, i):\n  return [0 for x in i]';
    const policy = await routingOf(star('routing', source));
    const outcome = {
      request: request(),
      instance: 0,
      completed: true,
      outputTokens: 1,
      ttftUs: 1,
      e2eUs: 2,
      nowUs: 9,
    };
    expect(() => policy.completed?.(outcome)).toThrow(
      /^policy_runtime: routing, line 2, request request_0, at 9 µs: /,
    );
  });
});

describe('what is wrong with a program is found before a run', () => {
  test.each([
    [
      'routing',
      'def score(r, c, i):\n  return [0 for x in i]\ndef route(r, c, i):\n  return 0',
      /^contract: routing: the program has score and route, and only one may decide\. Keep one$/,
    ],
    ['routing', 'def score(a, b):\n  return []', /^contract: routing: score gets 3 arguments/],
    [
      'routing',
      'x = 1',
      /^contract: routing: the program has no function score\(.*\) or route\(.*\)\. Define it$/,
    ],
    ['admission', 'def admit(', /^compile: admission, line 1: /],
    ['priority', 'x = 1 // 0\ndef prioritise(r, c):\n  return 1', /^policy_runtime: priority, line 1: /],
    [
      'instanceScheduler',
      'def on_arrival():\n  return 1',
      /^contract: instanceScheduler: on_arrival gets 1 arg/,
    ],
    ['autoScale', 'y = 2', /^contract: autoScale: the program has no function scale\(deployment\)/],
  ] as const)('%s: %s', async (slot, source, message) => {
    const bound = bindBundle(star(slot, source));
    await expect(bound).rejects.toThrow(PolicyError);
    await expect(bound).rejects.toThrow(message);
  });
});
