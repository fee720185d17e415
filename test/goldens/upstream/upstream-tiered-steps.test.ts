/**
 * Upstream's step traces with lower tiers. They equal the scheduler's steps to the last digit until a lower
 * tier acts for the first time, and from there on upstream does what its named defects say; the table has
 * that step and the first difference. What tierkv does instead is shown on the same requests.
 */

import { describe, expect, it } from 'vitest';
import { fixtures, sharedGoldens } from '../goldenFolders.ts';
import { SchedulerEngine } from '../schedulerRun.ts';
import { firstDifference, loadStepTrace, type StepTrace } from '../stepTrace.ts';
import { runTimed, runTrace } from '../traceLoop.ts';

interface Tiered {
  readonly name: string;
  /** The first step in which a lower tier of upstream acts. */
  readonly step: number;
  /** What differs in that step, and the defect that is the reason. */
  readonly differs: 'hits' | 'start' | 'batch';
  readonly why: string;
}

const mirrored =
  'D4, D12: blocks are reloaded for a prompt that is computed all the same, and counted as hits';
const billed = 'D4: the reload is billed to a step that computes the prompt all the same';
const deferred =
  'D13: a request that a lower tier has blocks of waits for rounds of steps, and then computes them';

const traces: readonly Tiered[] = [
  { name: 'prefix-tiered', step: 8, differs: 'hits', why: mirrored },
  { name: 'prefix6-tiered', step: 12, differs: 'hits', why: mirrored },
  { name: 'prefix6-tiered-smallcpu', step: 24, differs: 'start', why: billed },
  { name: 'prefix-offload-cold', step: 8, differs: 'hits', why: mirrored },
  { name: 'prefix6-offload-fast', step: 12, differs: 'batch', why: deferred },
  { name: 'prefix6-offload-slow', step: 12, differs: 'batch', why: deferred },
  { name: 'prefix6-offload-decode', step: 12, differs: 'batch', why: deferred },
];

const shared = sharedGoldens('the step traces steps-*.json of lower tiers');

function load(name: string): StepTrace {
  return loadStepTrace(shared ?? fixtures, name) as StepTrace;
}

describe.skipIf(shared === undefined)('step traces with lower tiers', () => {
  it.each(traces)('$name: $why', ({ name, step, differs }) => {
    const trace = load(name);
    const ours = runTrace(trace, new SchedulerEngine(trace, { preemption: 'restart' }));
    const first = firstDifference(ours, trace.rows);
    expect(first?.step).toBe(step);
    const [mine, theirs] = [first?.ours, first?.theirs];
    const differences = {
      hits: { ...mine, hit_rate: theirs?.hit_rate },
      start: { ...mine, t: theirs?.t },
      batch: { ...mine, batch_after: theirs?.batch_after, waitq: theirs?.waitq, used: theirs?.used },
    };
    expect(differences[differs]).toEqual(theirs);
  });

  it.each(['prefix-tiered', 'prefix6-tiered'])(
    "%s: host memory saves prefill; with the same bill for transfers first tokens come before upstream's",
    (name) => {
      const trace = load(name);
      const without = measure(trace, 0, 0);
      const billed = measure(trace, 200, 10 + Math.ceil(trace.config.block_size / 0.39));
      expect(billed.done).toBe(trace.requests.length);
      expect(billed.prefillTokens).toBeLessThan(without.prefillTokens);
      expect(billed.meanFirstTokenUs).toBeLessThan(trace.meanFirstTokenUs);
    },
  );
});

interface Measured {
  readonly done: number;
  readonly prefillTokens: number;
  readonly meanFirstTokenUs: number;
}

function measure(trace: StepTrace, blocks: number, reloadUsPerBlock: number): Measured {
  const engine = new SchedulerEngine(trace, {}, { blocks, reloadUsPerBlock });
  const { rows, endsUs } = runTimed(trace, engine);
  let sumUs = 0;
  for (const { id, arrival } of trace.requests)
    sumUs += endsUs[engine.firstTokenStep.get(id) ?? -1] - arrival;
  return {
    done: rows.at(-1)?.done ?? 0,
    prefillTokens: engine.prefillTokens,
    meanFirstTokenUs: sumUs / trace.requests.length,
  };
}
