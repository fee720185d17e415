/**
 * Upstream's step traces of one tier, in two halves that account for every difference. A model of upstream
 * with no repair equals each trace to the last digit, so the model is right. The scheduler on the manager
 * equals the model with the repairs that stand beside the trace, and no others, so these defects explain all
 * that differs; where none stands, the scheduler equals the trace itself. Requests that give way start over,
 * as upstream's do.
 */

import { describe, expect, it } from 'vitest';
import { fixtures, sharedGoldens } from '../goldenFolders.ts';
import { SchedulerEngine } from '../schedulerRun.ts';
import { firstDifference, loadStepTrace, type StepTrace, stepTraceNames } from '../stepTrace.ts';
import { runTrace } from '../traceLoop.ts';
import { UpstreamEngine } from './upstreamEngine.ts';
import { asUpstream, type Repairs, repaired } from './upstreamStore.ts';

/** What tierkv does otherwise in each trace, by defect; see `Repairs`. */
const differences: Readonly<Record<string, readonly (keyof Repairs)[]>> = {
  chunked: [],
  fullhit: ['fullHit'],
  maxlen: [],
  'preempt-fcfs': ['fullHit'],
  'preempt-priority': [],
  'prefix-single': [],
  'prefix6-single': ['lastToken', 'emptyFirst'],
  simple: [],
  sjf: [],
};

function withRepairs(names: readonly (keyof Repairs)[]): Repairs {
  return { ...asUpstream, ...Object.fromEntries(names.map((name) => [name, true])) };
}

function account(name: string, trace: StepTrace): void {
  const upstream = runTrace(trace, new UpstreamEngine(trace, asUpstream));
  expect(firstDifference(upstream, trace.rows)).toBeUndefined();

  const ours = runTrace(trace, new SchedulerEngine(trace, { preemption: 'restart' }));
  const named = differences[name];
  const explained = runTrace(trace, new UpstreamEngine(trace, withRepairs(named)));
  expect(firstDifference(ours, explained)).toBeUndefined();
  expect(firstDifference(ours, trace.rows) === undefined).toBe(named.length === 0);

  const all = runTrace(trace, new UpstreamEngine(trace, repaired));
  expect(firstDifference(ours, all)).toBeUndefined();
}

describe('step traces of one tier', () => {
  const copied = stepTraceNames(fixtures);

  it('five of them are copied into the project', () => {
    expect(copied).toEqual(['chunked', 'fullhit', 'preempt-priority', 'prefix-single', 'sjf']);
  });

  it.each(copied)('%s: equal, or explained by the named defects', (name) => {
    account(name, loadStepTrace(fixtures, name) as StepTrace);
  });
});

const shared = sharedGoldens('the step traces steps-*.json');

describe.skipIf(shared === undefined)('step traces of the shared folder', () => {
  const folder = shared ?? fixtures;
  const single = Object.keys(differences);

  it.each(single)('%s: equal, or explained by the named defects', (name) => {
    account(name, loadStepTrace(folder, name) as StepTrace);
  });

  it.each(single)('%s: all requests end, as many at the length limit as upstream counts', (name) => {
    const trace = loadStepTrace(folder, name) as StepTrace;
    const engine = new SchedulerEngine(trace, { preemption: 'restart' });
    expect(runTrace(trace, engine).at(-1)?.done).toBe(trace.requests.length);
    expect(engine.cappedCount).toBe(trace.lengthCapped);
  });
});
