/**
 * What the sink is given is enough to run a scheduler again, and the second run decides the same, number for
 * number.
 */

import { expect, it } from 'vitest';
import {
  type AddedRequest,
  SchedulerDecision,
  SchedulerInput,
  type SchedulerSink,
  schedulerDecisionNames,
  schedulerInputNames,
} from '../../../src/runtime/batching/schedulerSink.ts';
import { BlockKeys } from '../../../src/runtime/index.ts';
import { SeededRandom } from '../../../src/testing/index.ts';
import { keysOf, World, type WorldConfig } from './world.ts';

interface Recorded {
  readonly op: SchedulerInput;
  readonly nowUs: number;
  readonly args: readonly number[];
  readonly id: string;
  readonly keys: Uint32Array;
}

class Recorder implements SchedulerSink {
  readonly inputs: Recorded[] = [];
  readonly decisions: string[] = [];

  input(
    op: SchedulerInput,
    nowUs: number,
    a: number,
    b: number,
    c: number,
    d: number,
    e: number,
    added?: AddedRequest,
  ): void {
    const keys = added === undefined ? new Uint32Array() : added.keys.slice();
    this.inputs.push({ op, nowUs, args: [a, b, c, d, e], id: added?.id ?? '', keys });
    this.decisions.push(`> ${schedulerInputNames[op]} ${nowUs} ${[a, b, c, d, e].join(' ')}`);
  }

  decision(op: SchedulerDecision, a: number, b: number, c: number): void {
    this.decisions.push(`${schedulerDecisionNames[op]} ${a} ${b} ${c}`);
  }
}

const config: WorldConfig = {
  hbmBlocks: 12,
  maxBatchedTokens: 24,
  maxSequences: 5,
  longPrefillTokens: 9,
  victimRule: 'priority',
  queueOrder: 'priority-fcfs',
  ddrBlocks: 40,
  preemption: 'offload',
  prefixLoads: 'overlapped',
};

function record(seed: number): Recorder {
  const random = new SeededRandom(seed);
  const recorder = new Recorder();
  const world = new World({ ...config, sink: recorder });
  const alive: string[] = [];
  for (let i = 0; i < 120; i++) {
    if (i < 60 && random.chance(0.5)) {
      const shared = random.below(5);
      const blocks = Array.from({ length: 5 }, (_, j) => (j < shared ? 1 + j : 100 * (i + 1) + j));
      const prompt = 1 + random.below(20);
      world.add(`r${i}`, prompt, 1 + random.below(9), { keys: keysOf(blocks), priority: random.below(3) });
      alive.push(`r${i}`);
    }
    if (alive.length > 0 && random.chance(0.05))
      world.scheduler.abort(alive[random.below(alive.length)], world.now);
    const planned = world.plan();
    const ids = Object.keys(planned);
    world.now += random.below(500);
    if (ids.length === 0) continue;
    const stoppable = ids.filter((id) => {
      const progress = world.scheduler.progress(id);
      return progress?.knownTokens === planned[id][1];
    });
    world.end(...(stoppable.length > 0 && random.chance(0.1) ? [stoppable[0]] : []));
  }
  return recorder;
}

function replay(inputs: readonly Recorded[]): Recorder {
  const recorder = new Recorder();
  const world = new World({ ...config, sink: recorder });
  const ids = new Map<number, string>();
  let stopped: string[] = [];
  for (const { op, nowUs, args, id, keys: words } of inputs) {
    world.now = nowUs;
    const named = ids.get(args[0]) ?? '';
    if (op === SchedulerInput.ADD) {
      const keys = new BlockKeys();
      for (let at = 0; at < words.length; at += 4) keys.append(words, at);
      ids.set(args[0], id);
      const [, promptTokens, maxOutputTokens, priority, arrivalUs] = args;
      world.scheduler.add({ id, promptTokens, maxOutputTokens, priority, arrivalUs, keys }, nowUs);
    } else if (op === SchedulerInput.ABORT) {
      world.scheduler.abort(named, nowUs);
    } else if (op === SchedulerInput.STEP) {
      world.scheduler.step(nowUs);
    } else if (op === SchedulerInput.STOP) {
      stopped.push(named);
    } else if (op === SchedulerInput.STEP_ENDED) {
      world.scheduler.stepEnded({ stopped }, nowUs);
      stopped = [];
    }
    world.audit();
  }
  return recorder;
}

const firstSeed = Number(process.env.TIERKV_SEED ?? 1);

it(`a recorded run, replayed, gives the same log (seed ${firstSeed})`, () => {
  const seen = new Set<string>();
  for (let seed = firstSeed; seed < firstSeed + 10; seed++) {
    const first = record(seed);
    const again = replay(first.inputs).decisions;
    const at = again.findIndex((line, i) => line !== first.decisions[i]);
    expect(at === -1 ? '' : `seed ${seed}: ${again[at]} instead of ${first.decisions[at]}`).toBe('');
    expect(again.length).toBe(first.decisions.length);
    for (const line of first.decisions) seen.add(line.split(' ')[0]);
  }
  for (const name of ['admit', 'chunk', 'preempt', 'skip', 'plan', 'finish']) expect(seen).toContain(name);
});

it('each op has a name', () => {
  expect(Object.values(SchedulerInput).map((op) => schedulerInputNames[op])).not.toContain(undefined);
  expect(Object.values(SchedulerDecision).map((op) => schedulerDecisionNames[op])).not.toContain(undefined);
});
