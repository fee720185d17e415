/**
 * What the scheduler of a bundle decides is in the log and in the snapshot: a log is replayed byte for byte
 * without the policy, and a fork is the run that was not interrupted, though the program has a memory.
 */

import { expect, test } from 'vitest';
import { bindBundle } from '../../../src/policy/evolve/binding/bind.ts';
import {
  PolicyEngine,
  type SchedulingPolicy,
  schedulingOf,
} from '../../../src/policy/evolve/binding/scheduling.ts';
import type { CodePolicy } from '../../../src/policy/evolve/bundle/policyBundle.ts';
import { TraceRecorder } from '../../../src/policy/evolve/trace/recorder.ts';
import type { TraceRecord } from '../../../src/policy/evolve/trace/records.ts';
import { loadProgram } from '../../../src/policy/sandbox/loadProgram.ts';
import { LogWriter } from '../../../src/runtime/index.ts';
import { replayLog } from '../../../src/runtime/log/replayer.ts';
import type { SimulationObserver } from '../../../src/sim/cluster/parts.ts';
import { Simulation } from '../../../src/sim/cluster/simulation.ts';
import {
  newSimulation,
  resumeSimulation,
  type SimulationSetup,
} from '../../../src/sim/description/deployment.ts';
import { managerConfigOf } from '../../../src/sim/instance/engine.ts';
import { PromptKeys, SimRequest } from '../../../src/sim/instance/simRequest.ts';
import { SeededRandom } from '../../../src/testing/index.ts';
import { randomSetup } from '../../sim/cluster/randomCluster.ts';
import { smallPool, smallWorkload } from '../../sim/cluster/smallCluster.ts';
import { audited, program, scheduledBy, smallSetup } from './scheduledRun.ts';

/** Each call goes on from what the calls before left. */
const remembering = [
  'def drawn(state):',
  '    state["x"] = (state.get("x", 1) * 16807) % 2147483647',
  '    return state["x"]',
  'def on_arrival(request, state):',
  '    return drawn(state) % 3',
  'def make_batch(requests, instance, state):',
  '    return [(drawn(state) % 1000) / 7 - r.rank for r in requests]',
  'def select_preemption_victim(requests, instance, state):',
  '    return [drawn(state) % 5 + r.computedTokens / 16 for r in requests]',
].join('\n');

const firstSeed = Number(process.env.TIERKV_SEED ?? 1);

test(`a fork is the run that was not interrupted (seeds from ${firstSeed})`, async () => {
  const bound = await bindBundle(program(remembering));
  const setupOf = (seed: number, recorder: TraceRecorder): SimulationSetup =>
    scheduledBy(randomSetup(seed, recorder), bound);
  const ended = (simulation: Simulation, recorder: TraceRecorder): Simulation => {
    recorder.attach(simulation);
    return audited(simulation);
  };
  /** All that a run comes to. */
  const resultOf = ({ table, instances, nowUs, events }: Simulation): unknown[] => [
    instances.map((each) => [each.counters, each.engine.counters, each.engine.traffic()]),
    Array.from(table.e2eUs.subarray(0, table.size)),
    Array.from(table.preemptions.subarray(0, table.size)),
    nowUs,
    events,
  ];
  let ranked = 0;
  let preempted = 0;
  for (let seed = firstSeed; seed < firstSeed + 6; seed++) {
    const whole = new TraceRecorder('decisions');
    const simulation = newSimulation(setupOf(seed, whole));
    ended(simulation, whole);
    const at = new SeededRandom(seed).below(simulation.events + 1);

    const before = new TraceRecorder('decisions');
    const interrupted = newSimulation(setupOf(seed, before));
    before.attach(interrupted);
    interrupted.runSome(at);
    const taken = interrupted.snapshot();
    const where = `seed ${seed}, forked after ${at} of ${simulation.events} events`;
    const after = new TraceRecorder('decisions');
    const fork = Simulation.fork(taken, { observer: after });
    ended(fork, after);
    const sent = new TraceRecorder('decisions');
    const resumed = resumeSimulation(setupOf(seed, sent), structuredClone(taken.data));
    ended(resumed, sent);
    for (const [late, run] of [
      [after, fork],
      [sent, resumed],
    ] as const) {
      expect(scheduled([...before.records, ...late.records]), where).toEqual(scheduled(whole.records));
      expect(resultOf(run), where).toEqual(resultOf(simulation));
    }
    for (const record of whole.records) {
      if (record.kind === 'batch' && record.rank !== null) ranked++;
      if (record.kind === 'preemption') preempted++;
    }
  }
  expect(ranked).toBeGreaterThan(120);
  expect(preempted).toBeGreaterThan(2);
});

test(`a small run forked after each few events (seeds from ${firstSeed})`, async () => {
  const bound = await bindBundle(program(remembering));
  const slow = { baseLatencyUs: 3000, bandwidthBytesPerS: 1e6 };
  for (let seed = firstSeed; seed < firstSeed + 2; seed++) {
    const random = new SeededRandom(seed);
    const requests = Array.from({ length: 24 }, (_, i) => ({
      atUs: 4000 * i * random.below(2),
      prompt: 1 + random.below(40),
      output: 1 + random.below(8),
      stream: random.below(3),
    })).sort((a, b) => a.atUs - b.atUs);
    // loads are slow, so that steps go by in which no request can compute
    const { engine, ...rest } = smallPool({ topBlocks: 14, ddrBlocks: 60, maxSequences: 3 });
    const loads = { kind: 'deferred', links: { ddrToHbm: slow }, prefetch: false } as const;
    const setupOf = (observer: SimulationObserver): SimulationSetup =>
      scheduledBy(smallSetup({ ...rest, engine: { ...engine, loads } }, requests, observer), bound);
    const ranked = (recorder: TraceRecorder, run: Simulation): string[] => {
      recorder.attach(run);
      audited(run);
      return scheduled(recorder.records);
    };
    const whole = new TraceRecorder('decisions');
    const told = ranked(whole, newSimulation(setupOf(whole)));
    const run = newSimulation(setupOf({}));
    for (let events = 0; run.runSome(4); events += 4) {
      const taken = run.snapshot();
      const late = new TraceRecorder('decisions');
      const rest = ranked(late, Simulation.fork(taken, { observer: late }));
      expect(rest, `seed ${seed}, after ${events + 4} events`).toEqual(told.slice(told.length - rest.length));
    }
  }
});

/** Who joined and who gave way, when and by which rank. */
function scheduled(records: readonly TraceRecord[]): string[] {
  return records.flatMap((record) =>
    record.kind === 'batch' || record.kind === 'preemption'
      ? [`${record.timeUs} ${record.kind} ${record.instance} ${record.requestId} ${record.rank}`]
      : [],
  );
}

/**
 * The log of an engine that serves random requests, and how often one gave way. They have no keys: a block
 * with one is sealed by a job, which this engine ends in the middle of a step, and a replay between two.
 */
function recorded(policy: SchedulingPolicy, seed: number): { log: string; preemptions: number } {
  const random = new SeededRandom(seed);
  const { engine: config } = smallPool({ topBlocks: 20, maxSequences: 5 });
  const scheduler = { ...config.scheduler, queueOrder: 'ranked', victimRule: 'ranked' };
  const ranked = { ...config, scheduler };
  let log = '';
  const writer = new LogWriter(managerConfigOf(ranked), { log: (piece) => (log += piece) });
  const timeline = { nowUs: 0, schedule: () => {} };
  const engine = new PolicyEngine(policy, ranked, timeline, () => {}, writer);
  const keys = new PromptKeys(config.blockTokens, true);
  const sizes = Array.from({ length: 60 }, () => ({
    atUs: 0,
    prompt: 1 + random.below(40),
    output: 1 + random.below(12),
  }));
  const requests = smallWorkload(sizes).map((workload, i) => new SimRequest(workload, i, keys));
  for (let next = 0; next < 60 || engine.runningCount + engine.waitingCount > 0; ) {
    timeline.nowUs += random.below(900);
    if (next < 60 && random.chance(0.4)) engine.add(requests[next++], timeline.nowUs);
    engine.step(timeline.nowUs);
    if (next % 8 === 0) engine.checkIntegrity();
  }
  engine.checkIntegrity();
  writer.end();
  return { log, preemptions: engine.counters.preemptions };
}

test(`a log is replayed byte for byte, without the policy (seeds from ${firstSeed})`, async () => {
  const { instanceScheduler } = program(remembering);
  const code = instanceScheduler as CodePolicy;
  const loaded = { code, program: await loadProgram('starlark', code.source) };
  let preempted = 0;
  for (let seed = firstSeed; seed < firstSeed + 5; seed++) {
    const policy = schedulingOf(code, loaded).makePolicy?.() as SchedulingPolicy;
    const { log, preemptions } = recorded(policy, seed);
    expect(log, `seed ${seed}`).toMatch(/^\( \d+ rerank \d+ -?[\d.]+/m);
    preempted += preemptions;
    let again = '';
    const [head] = log.split('\n');
    const config = JSON.parse(head.slice(head.indexOf('{'), head.lastIndexOf('}') + 1));
    const writer = new LogWriter(config, { log: (piece) => (again += piece) });
    replayLog(log.trimEnd().split('\n'), 'run.log', writer);
    writer.end();
    expect(again === log, `seed ${seed}: the replayed log is the recorded one`).toBe(true);
  }
  expect(preempted).toBeGreaterThan(5);
});
