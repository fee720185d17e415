/**
 * Options of the doors beside the main one: a name that is unknown is refused with the nearest, or with
 * all; and every known name, which the error itself lists, refuses values of the wrong kind or takes them, and never ends
 * in an error that has no code, field and remedy.
 */

import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { openInBrowser } from '../../src/adapters/browser/index.ts';
import type { KVRuntime } from '../../src/index.ts';
import { WorkerPool } from '../../src/io/workerPool.ts';
import { dashboard, followedLogDashboard, logDashboard } from '../../src/observe/dashboard/dashboard.ts';
import { explainSimulation } from '../../src/observe/explain/explainSimulation.ts';
import { openTelemetry } from '../../src/observe/metrics/openTelemetry.ts';
import { prometheus } from '../../src/observe/metrics/prometheus.ts';
import { type RuntimeWatch, watchRuntime } from '../../src/observe/metrics/watch.ts';
import { defaultSummary, summarise } from '../../src/policy/evolve/summary.ts';
import * as policy from '../../src/policy/index.ts';
import { publishKVEvents } from '../../src/serve/gateway/events/publisher.ts';
import { subscribeKVEvents } from '../../src/serve/gateway/events/subscriber.ts';
import { Gateway } from '../../src/serve/gateway/gateway.ts';
import { HandoffReceiver } from '../../src/serve/handoff/receiver.ts';
import { HandoffSender } from '../../src/serve/handoff/sender.ts';
import { simulate } from '../../src/sim/build/simulate.ts';
import { checkControl } from '../../src/sim/control/plane.ts';
import type { DeploymentSpec } from '../../src/sim/description/knobs.ts';
import { wekaSessionRequests } from '../../src/sim/workload/agentSessions.ts';
import { distributionSpec } from '../../src/sim/workload/presets.ts';
import * as sim from '../../src/studies/index.ts';
import { plan } from '../../src/studies/plan/plan.ts';
import { blocks, layout, openHostRuntime } from '../embed/liveRuntime.ts';

const wrongs: readonly unknown[] = [
  ...[null, -1, 1.5, Number.NaN, 2 ** 60, 7n, '', 'text', true, Symbol('s')],
  ...[[], [1, 'x'], {}, () => 7, new Map(), new Uint8Array(3)],
];

const scratch = mkdtempSync(join(tmpdir(), 'tierkv-options-'));
let kv: KVRuntime;
let watch: RuntimeWatch;
beforeAll(async () => {
  kv = await openHostRuntime({ ddrBytes: blocks(20) });
  watch = watchRuntime(kv);
});
afterAll(async () => {
  watch.close();
  await kv.close();
  rmSync(scratch, { recursive: true });
});

const spec = {
  model: 'qwen/qwen3-14b',
  workload: { preset: 'chatbot', rate: 20, requests: 5 },
} satisfies DeploymentSpec;
const noRunner = { run: () => Promise.reject(new Error('unreached')), close: async () => {} };
const suites = policy.loadPlan('routing');
const workload = sim.parseWorkloadSpec(
  'version: "2"\nseed: 1\naggregate_rate: 1\nnum_requests: 1\nclients:\n  - id: a\n    rate_fraction: 1\n    arrival: {process: constant}\n    input_distribution: {type: constant, params: {value: 4}}\n    output_distribution: {type: constant, params: {value: 2}}\n',
  'w.yaml',
);
const frames = { head: { title: 'x', tiers: [], mode: 'log' }, frames: [] } as never;
const aborted = AbortSignal.abort(new Error('called off'));

/** A call that is right; `more` goes into the object of options. */
type Call = (more: object) => unknown;
const calls: Readonly<Record<string, Call>> = {
  'simulate spec': (more) => simulate({ ...spec, ...more }),
  ...Object.fromEntries(
    [
      ...['latency', 'engine', 'tiers', 'pools', 'control', 'targets', 'gateway', 'handoff', 'speculation'],
      ...['workload.prompt', 'workload.output', 'control.admission', 'control.routing'],
    ].map((path): [string, Call] => {
      const [section, part] = path.split('.');
      const of = (more: object): object => (part === undefined ? more : { [part]: more });
      const own = section === 'workload' ? spec.workload : {};
      return [`simulate ${path}`, (more) => simulate({ ...spec, [section]: { ...own, ...of(more) } })];
    }),
  ),
  'simulate workload': (more) => simulate({ ...spec, workload: { ...spec.workload, ...more } }),
  'simulate second options': (more) => simulate(spec, { ...more }),
  'explainSimulation spec': (more) => explainSimulation({ ...spec, ...more }),
  'plan question': (more) =>
    plan(
      {
        ...{ model: 'no-such-model', workload: { preset: 'chatbot', rate: 1, requests: 5 } },
        ...{ targets: { ttft_p99: 500 }, ...more },
      },
      { runner: noRunner as never },
    ),
  'plan options': (more) => plan({ model: 'no-such-model' } as never, { runner: noRunner, ...more } as never),
  'evaluate options': (more) =>
    policy.evaluate(policy.baseline, 'routing', { workers: 1, signal: aborted, ...more }),
  'SimulationEvaluator options': (more) =>
    new policy.SimulationEvaluator({ plan: suites, limits: { workers: 1, wallMs: 1 }, ...more }),
  'WorkerPool limits': (more) => new WorkerPool({ workers: 1, wallMs: 1, ...more }),
  'EvaluationService options': (more) =>
    new policy.EvaluationService({
      evaluator: { objectiveNames: [], caseIds: () => [], evaluate: async () => [] },
      ...more,
    }),
  'loadPlan changes': (more) => policy.loadPlan('routing', { ...more }),
  'Gateway config': (more) =>
    Gateway.open({ backends: [{ id: 'a', url: 'http://127.0.0.1:9' }], port: 0, ...more } as never),
  'publishKVEvents options': (more) => publishKVEvents(kv, { endpoint: 'no endpoint', ...more }),
  'subscribeKVEvents options': (more) => subscribeKVEvents({ endpoint: 'no endpoint', ...more }),
  'HandoffSender options': (more) => HandoffSender.open(kv, { ...more }),
  'HandoffReceiver options': (more) => new HandoffReceiver(kv, { ...more }),
  'watchRuntime options': (more) => watchRuntime(kv, { ...more }),
  'prometheus options': (more) => prometheus(watch, { ...more }),
  'openTelemetry options': (more) => openTelemetry(watch, { ...more }),
  'dashboard options': (more) => dashboard(kv, { ...more }),
  'logDashboard options': (more) => logDashboard(frames, { ...more }),
  'followedLogDashboard options': (more) => followedLogDashboard(join(scratch, 'no.log'), { ...more }),
  'openInBrowser config': (more) =>
    openInBrowser({ layout, model: 'm', secretKey: new Uint8Array(32), ddrBytes: blocks(9), ...more }),
  'parseWorkloadSpec options': (more) => sim.parseWorkloadSpec('', 'w.yaml', { ...more }),
  'generateWorkload limits': (more) => sim.generateWorkload(workload, { maxRequests: 1, ...more }),
  'distributionSpec options': (more) => distributionSpec({ rate: 1, numRequests: 1, ...more }),
  'mooncakeRequests options': (more) => first(sim.mooncakeRequests([] as never, 'x', { ...more })),
  'bailianRequests options': (more) => first(sim.bailianRequests([] as never, 'x', { ...more })),
  'textTraceRequests options': (more) => first(sim.textTraceRequests([], { ...more })),
  'wekaRequests options': (more) => first(sim.wekaRequests([] as never, 'x', { ...more })),
  'wekaSessionRequests options': (more) => first(wekaSessionRequests([], { ...more })),
  'lengthFileRequests options': (more) => first(sim.lengthFileRequests([] as never, 'x', { ...more })),
  'checkControl config': (more) => checkControl({ ...more }),
  'summarise config': (more) =>
    summarise(
      {
        caseId: 'a',
        policyId: 'b',
        metrics: {},
        targets: {},
        requests: [],
        anomalies: [],
        regrets: [],
      } as never,
      { ...defaultSummary, ...more } as never,
    ),
};

function first(rows: Iterable<unknown> | AsyncIterable<unknown>): unknown {
  const iterator =
    Symbol.iterator in rows
      ? rows[Symbol.iterator]()
      : (rows as AsyncIterable<unknown>)[Symbol.asyncIterator]();
  return iterator.next();
}

async function failureOf(call: () => unknown): Promise<unknown> {
  let made: unknown;
  try {
    made = await call();
  } catch (error) {
    return error === aborted.reason ? undefined : error;
  }
  if (typeof made === 'function') made();
  const { close } = (made ?? {}) as { close?: () => unknown };
  if (typeof close === 'function') await close.call(made);
  return undefined;
}

const shown = (value: unknown): string =>
  typeof value === 'object' ? Object.prototype.toString.call(value) : String(value);

it.each(Object.keys(calls))('%s', async (name) => {
  const unknown = (await failureOf(() => calls[name]({ zyxwvut: 1 }))) as Error;
  expect(unknown, name).toMatchObject({ isTierKVError: true, field: expect.stringMatching(/zyxwvut$/) });
  const [, list] = /(?:names are|Known:) (.*?)\.(?: |$)/.exec(unknown.message) ?? [];
  expect(list, `${name}: ${unknown.message}`).toBeDefined();
  for (const option of list.split(', ')) {
    for (const wrong of wrongs) {
      const error = await failureOf(() => calls[name]({ [option]: wrong }));
      const what = `${name}.${option} of ${shown(wrong)}: ${String(error)}`;
      if (error === undefined) continue;
      expect(error, what).toMatchObject({ isTierKVError: true });
      expect(String(error), what).toMatch(/^[A-Za-z]*Error: .+\. [A-Z].+/s);
      const { field, path } = error as { field?: string; path?: string };
      expect(field ?? path, what).toMatch(/./);
    }
  }
});

it('a wrong element of a list, and a wrong value behind right ones, is named', async () => {
  const question = {
    model: 'qwen3-14b',
    workload: { preset: 'chatbot', rate: 1 },
    targets: { ttft_p99: 500 },
  };
  const refused: readonly [field: string, code: string, call: () => unknown][] = [
    ['backends[0]', 'TKV_INPUT', () => Gateway.open({ backends: [null], port: 0 } as never)],
    [
      'backends[0].url',
      'TKV_INPUT',
      () => Gateway.open({ backends: [{ url: Symbol('s') }], port: 0 } as never),
    ],
    [
      'prices',
      'TKV_CONFIG',
      () => plan({ ...question, prices: null } as never, { runner: noRunner as never }),
    ],
  ];
  for (const [field, code, call] of refused) {
    expect(await failureOf(call)).toMatchObject({ code, field });
  }
});
