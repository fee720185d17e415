/** What a run is told by: regret that a whole run confirms, anomalies that are there, summaries that fit. */

import { describe, expect, test } from 'vitest';
import { loadPlan } from '../../../src/policy/evaluate/plans.ts';
import {
  caseBuilder,
  explainCase,
  type PlannedCase,
  planCase,
} from '../../../src/policy/evaluate/runCase.ts';
import { bindBundle } from '../../../src/policy/evolve/binding/bind.ts';
import { preset } from '../../../src/policy/evolve/bundle/presets.ts';
import type { SuiteCase } from '../../../src/policy/evolve/fitness/evaluation.ts';
import { defaultSummary, summaryStrategies } from '../../../src/policy/evolve/summary.ts';
import { TraceRecorder } from '../../../src/policy/evolve/trace/recorder.ts';
import {
  type RoutingRecord,
  type TraceRecord,
  traceLevels,
} from '../../../src/policy/evolve/trace/records.ts';
import { regretsOf, sampleDecisions } from '../../../src/policy/evolve/trace/regret.ts';
import type { Simulation } from '../../../src/sim/cluster/simulation.ts';
import { withValue } from '../../../src/sim/description/settings.ts';
import { smallPool, smallSimulation } from '../../sim/cluster/smallCluster.ts';
import { isFull } from '../../sized.ts';

const [prefixes] = loadPlan('routing').suites.train;

/** The case with fewer requests. */
function cut(suiteCase: SuiteCase, requests: number): PlannedCase {
  const { deployment } = suiteCase;
  return planCase({
    ...suiteCase,
    deployment: withValue(deployment, 'workload.requests', requests),
  });
}

const short = cut(prefixes, 150);

const [, heavy] = loadPlan('routing').suites.train.filter(({ id }) => id.endsWith('/roofline/1'));
const crowded = cut(heavy, 300);

type Strategy = (typeof summaryStrategies)[number];

const explained = new Map<Strategy, ReturnType<typeof explain>>();

/** Once for all tests that want no other numbers. */
function explainOnce(strategy: Strategy): ReturnType<typeof explain> {
  const found = explained.get(strategy) ?? explain(strategy);
  explained.set(strategy, found);
  return found;
}

async function explain(strategy: Strategy, regrets = 4, maxTokens = 1500) {
  const bound = await bindBundle(preset('routing/llq'));
  return explainCase(bound, short, {
    summary: { ...defaultSummary, strategy, maxTokens },
    regrets,
    level: 'decisions',
  }).explanation;
}

describe('regret', () => {
  test('by forking equals the regret of a whole run with the decision forced', async () => {
    const { regrets } = await explain('counterfactual', 3);
    expect(regrets.length).toBe(3);
    const bound = await bindBundle(preset('routing/llq'));
    const build = caseBuilder(bound, short);
    let compared = 0;
    for (const { decision, requestId, others } of regrets) {
      for (const { instance, e2eMs, ttftMs, meanE2eMs } of others) {
        const forced = { routing: new Map([[decision, instance]]) };
        const { simulation } = build({}, forced);
        simulation.run();
        const { table } = simulation;
        const row =
          Array.from({ length: table.size }, (_, i) => i).find((i) => table.idOf(i) === requestId) ?? -1;
        expect(table.e2eUs[row] / 1000).toBe(e2eMs);
        expect(table.firstTokenUs[row] / 1000).toBe(ttftMs);
        const all = table.e2eUs.subarray(0, table.size).reduce((sum, us) => sum + us / 1000, 0);
        expect(all / table.size).toBeCloseTo(meanE2eMs, 9);
        compared++;
      }
    }
    expect(compared).toBe(9);
    // by the queue as it was seconds ago all went to instance 0
    expect(Math.max(...regrets.map(({ regretMs }) => regretMs))).toBeGreaterThan(10);
  });
});

test('a trace ends with the metrics at each level, and at the level minimal they follow the anomalies alone', async () => {
  const bound = await bindBundle(preset('routing/llq'));
  const kinds = (level: (typeof traceLevels)[number]): [Set<string>, unknown] => {
    const { metrics, explanation } = explainCase(bound, short, {
      summary: defaultSummary,
      regrets: 0,
      level,
    });
    const rows = explanation.trace.map((line) => JSON.parse(line));
    expect(rows.filter(({ kind }) => kind === 'anomaly').length).toBe(explanation.anomalies.length);
    expect(rows.at(-1)).toEqual({ kind: 'metrics', caseId: short.id, policyId: bound.policyId, metrics });
    return [new Set(rows.map(({ kind }) => kind)), metrics];
  };
  const [minimal, ...others] = traceLevels.map(kinds);
  expect([...minimal[0]].filter((kind) => kind !== 'anomaly')).toEqual(['metrics']);
  for (const [all, metrics] of others) {
    expect(all).toContain('routing');
    expect(metrics).toEqual(minimal[1]);
  }
});

test.each([
  ['roles', ['prefill', 'decode', 'decode'] as const, ['', '', ''], [1, 2]],
  ['models', ['monolithic', 'monolithic', 'monolithic'] as const, ['a', 'b', 'b'], [1, 2]],
  ['both', ['prefill', 'decode', 'monolithic'] as const, ['b', 'b', 'a'], []],
])(
  'where instances differ in %s, only those are tried that can take the request',
  (_, roles, models, able) => {
    const pools = roles.map((role, i) => smallPool({ role, model: models[i], configId: `pool${i}` }));
    const requests = Array.from({ length: 12 }, (_each, i) => {
      return { atUs: i * 500, prompt: 20, output: 6, model: models[1] };
    });
    const recorder = new TraceRecorder('minimal');
    const control = { routing: { policy: 'least-loaded' }, decider: { policy: 'always' } };
    const begin = (): Simulation => smallSimulation(pools, requests, control);
    const done = smallSimulation(pools, requests, control, recorder);
    recorder.attach(done);
    done.run();
    done.close();
    const sampled = sampleDecisions([...recorder.routings.values()], 5);
    expect(sampled.length > 0).toBe(able.length > 0);
    const rows = new Map([...recorder.routings].map(([row, record]) => [record, row]));
    for (const { chosen, others } of regretsOf(
      begin,
      done,
      sampled,
      (record) => rows.get(record) as number,
    )) {
      expect([chosen, ...others].map(({ instance }) => instance).sort()).toEqual(able);
    }
  },
);

describe('a trace', () => {
  test('has a record of each decision, with its outcome', async () => {
    const { trace } = await explain('issue_focused', 2);
    const records = trace.map((line) => JSON.parse(line) as TraceRecord);
    const of = (kind: string): TraceRecord[] => records.filter((record) => record.kind === kind);
    expect(of('admission')).toHaveLength(150);
    expect(of('priority')).toHaveLength(150);
    expect(of('routing')).toHaveLength(150);
    expect(of('batch').length).toBeGreaterThanOrEqual(150);
    const routings = of('routing') as RoutingRecord[];
    expect(routings.map(({ decision }) => decision)).toEqual(routings.map((_, i) => i));
    expect(routings.every(({ actualTtftUs, cachedBlocks }) => actualTtftUs > 0 && cachedBlocks >= 0)).toBe(
      true,
    );
    expect(routings.filter(({ regretMs }) => regretMs >= 0)).toHaveLength(2);
    expect(routings.some(({ cacheHit }) => cacheHit)).toBe(true);
    // requests in flight are those before the decision
    expect(routings[0].instances.map(({ inFlight }) => inFlight)).toEqual([0, 0, 0, 0]);
  });
});

describe('a summary', () => {
  test.each(summaryStrategies)('%s has 500 to 1500 tokens and is the same each time', async (strategy) => {
    const { summary } = await explainOnce(strategy);
    expect(summary.length / 4).toBeGreaterThan(500);
    expect(summary.length / 4).toBeLessThan(1500);
    // the run and its regrets are the same for all of them
    if (isFull || strategy === 'counterfactual') expect((await explain(strategy)).summary).toBe(summary);
    expect(summary).toMatch(/^## Outcome\npolicy [0-9a-f]{16} on shared-prefixes/);
    expect(summary).toContain('## Suggested focus');
    // the filters of search frameworks
    expect(summary).not.toMatch(/[A-Za-z0-9]{32}/);
    expect(summary).not.toMatch(/(token|key|secret|password)s?\s*[:=]/i);
  });

  test('names old snapshots as a cause only of a policy that reads them', async () => {
    const causeOf = async (name: string): Promise<string | undefined> => {
      const bound = await bindBundle(preset(name));
      const summary = { ...defaultSummary, maxTokens: 20_000 };
      const told = explainCase(bound, crowded, { summary, regrets: 0, level: 'minimal' }).explanation.summary;
      return /4 or more requests more[\s\S]*?cause: (.*)/.exec(told)?.[1];
    };
    expect(await causeOf('routing/llq')).toMatch(
      /differs from the load now: snapshots were up to \d+\.\d s old$/,
    );
    expect(await causeOf('routing/round-robin')).toMatch(
      /^stale reports are not to blame, since the policy reads none: /,
    );
  });

  test('keeps to fewer tokens when asked, in whole lines', async () => {
    const whole = (await explainOnce('issue_focused')).summary;
    const { summary } = await explain('issue_focused', 4, 300);
    expect(summary.length).toBeLessThanOrEqual(1201);
    for (const line of summary.split('\n')) expect(whole).toContain(line);
  });
});

describe('anomalies', () => {
  const watched = (run: (recorder: TraceRecorder) => ReturnType<typeof smallSimulation>) => {
    const recorder = new TraceRecorder('minimal');
    const simulation = run(recorder);
    recorder.attach(simulation);
    simulation.run();
    simulation.close();
    return recorder;
  };

  test('a less urgent request that joins the batch first is an inversion, and fcfs makes it', () => {
    const requests = [
      { atUs: 0, prompt: 200, output: 40, sloClass: 'batch' },
      { atUs: 1, prompt: 60, output: 4, sloClass: 'batch' },
      { atUs: 2, prompt: 60, output: 4, sloClass: 'critical' },
    ];
    const run = (queueOrder: string): number => {
      const pool = smallPool({ topBlocks: 64, maxSequences: 1 });
      const engine = { ...pool.engine, scheduler: { ...pool.engine.scheduler, queueOrder } };
      const recorder = watched((observer) => smallSimulation([{ ...pool, engine }], requests, {}, observer));
      return recorder.anomalies
        .found({})
        .filter(({ type }) => type === 'priority_inversion')
        .reduce((sum, { count }) => sum + count, 0);
    };
    expect(run('fcfs')).toBe(1);
    expect(run('priority-fcfs')).toBe(0);
  });

  test('missed targets are named by class with examples', () => {
    const requests = Array.from({ length: 12 }, (_, i) => ({
      atUs: i,
      prompt: 64,
      output: 8,
      sloClass: i % 2 === 0 ? 'critical' : 'batch',
    }));
    const recorder = watched((observer) => smallSimulation([smallPool()], requests, {}, observer));
    const found = recorder.anomalies.found({ critical: { ttftUs: 1 }, batch: { ttftUs: 1e9 } });
    expect(found.filter(({ type }) => type === 'slo_violation')).toEqual([
      {
        type: 'slo_violation',
        timeUs: 0,
        description: 'class critical: 6 requests missed their targets',
        requests: ['request_0', 'request_2', 'request_4', 'request_6', 'request_8'],
        count: 6,
        concerned: 6,
        severity: 'high',
      },
    ]);
  });

  test('preemptions in a burst are a storm', () => {
    const requests = Array.from({ length: 16 }, (_, i) => ({ atUs: i, prompt: 8, output: 60 }));
    const recorder = watched((observer) =>
      smallSimulation([smallPool({ topBlocks: 40 })], requests, {}, observer),
    );
    const [storm] = recorder.anomalies.found({}).filter(({ type }) => type === 'preemption_storm');
    expect(storm.count).toBeGreaterThanOrEqual(8);
    expect(storm.requests.length).toBeGreaterThan(0);
  });

  test('a shadow that remembers too much diverges', () => {
    const requests = Array.from({ length: 30 }, (_, i) => ({
      atUs: 20_000 * i,
      prompt: 40,
      output: 2,
      stream: i % 10,
    }));
    const recorder = watched((observer) =>
      smallSimulation(
        [smallPool({ topBlocks: 24 })],
        requests,
        { shadow: { model: 'approximate', blocks: 1000, eventDelayUs: 0, speculativeTtlUs: 0 } },
        observer,
      ),
    );
    const found = recorder.anomalies.found({}).filter(({ type }) => type === 'shadow_divergence');
    expect(found.length).toBe(1);
    expect(found[0].description).toMatch(/^the router expected more cached than there was/);
  });
});
