/**
 * Saved states of managers and of simulations (with schedulers, policies and programs), each with something in it changed,
 * cut, doubled or replaced, and then restored: each is refused, and the object is left as it was, or it equals what was saved.
 */

import { isDeepStrictEqual } from 'node:util';
import { KVManager, TierKVError } from '../../../src/runtime/index.ts';
import { restoreState, type SavedState, saveState } from '../../../src/runtime/snapshot.ts';
import type { SnapshotData } from '../../../src/sim/cluster/snapshot.ts';
import { newSimulation, resumeSimulation } from '../../../src/sim/description/deployment.ts';
import { SeededRandom } from '../../../src/testing/index.ts';
import { randomSetup } from '../../sim/cluster/randomCluster.ts';
import { Caller, configOf } from './randomManager.ts';

export interface DamageReport {
  readonly refused: number;
  /** Taken, and the state is what was saved. */
  readonly equal: number;
  /** Seed and damage of each that was neither. */
  readonly wrong: readonly string[];
  /** More than any restore may take: what a state in it asked for, and not the state itself. */
  readonly largestBytes: number;
}

/** States of simulations are large, so that fewer of them are made. */
const SIMULATION_SHARE = 0.2;
/** Damaged copies of each state. */
const COPIES = 10;

/** A state, and what takes it back. */
interface Kept {
  readonly where: string;
  readonly whole: unknown;
  /** @returns the state that the object then has; throws where it refuses */
  restore(state: unknown): unknown;
  /** Whether the object that refused last is as it was. */
  isUntouched(): boolean;
}

export function damagedStates(
  states: number,
  seed: number,
  onState: (done: number) => void = () => {},
): DamageReport {
  const wrong: string[] = [];
  let [refused, equal, largestBytes] = [0, 0, 0];
  let kept: Kept | undefined;
  for (let done = 0; done < states; done++) {
    const random = new SeededRandom(seed * 1_000_003 + done);
    if (kept === undefined || done % COPIES === 0) {
      kept = random.chance(SIMULATION_SHARE) ? simulationState(random.below(160)) : managerState(random);
    }
    const copy = structuredClone(kept.whole);
    const damages: string[] = [];
    for (let n = 1 + random.below(3); n > 0; n--) damages.push(damage(copy, random));
    const where = `state ${done} of seed ${seed}, ${kept.where}: ${damages.join('; ')}`;
    const before = bytesInUse();
    try {
      const restored = kept.restore(copy);
      if (isDeepStrictEqual(restored, kept.whole)) equal++;
      else wrong.push(`${where}: taken, and is another one`);
    } catch (error) {
      if (!(error instanceof TierKVError && ['TKV_MISMATCH', 'TKV_INPUT'].includes(error.code))) {
        wrong.push(`${where}: ${error}`);
      } else if (!kept.isUntouched()) wrong.push(`${where}: refused, and the object has changed`);
      else refused++;
    }
    largestBytes = Math.max(largestBytes, bytesInUse() - before);
    onState(done + 1);
  }
  return { refused, equal, wrong, largestBytes };
}

function managerState(random: SeededRandom): Kept {
  const config = configOf(random.below(600));
  const caller = new Caller(new KVManager(config), random);
  for (let calls = 20 + random.below(150); calls > 0; calls--) caller.call();
  const fresh = saveState(new KVManager(config));
  let target = new KVManager(config);
  return {
    where: `manager with ${config.eviction?.policy}`,
    whole: saveState(caller.manager),
    restore(state) {
      target = new KVManager(config);
      restoreState(target, state as SavedState);
      target.checkIntegrity();
      return saveState(target);
    },
    isUntouched: () => isDeepStrictEqual(saveState(target), fresh),
  };
}

function simulationState(number: number): Kept {
  const run = newSimulation(randomSetup(number));
  run.runSome(20 + 13 * (number % 50));
  return {
    where: `simulation ${number}`,
    whole: run.snapshot().data,
    restore: (state) => resumeSimulation(randomSetup(number), state as SnapshotData).snapshot().data,
    isUntouched: () => true, // a call that refuses returns no simulation
  };
}

/** What the last call allocated counts whole: garbage is what it is about. */
function bytesInUse(): number {
  const { heapUsed, arrayBuffers } = process.memoryUsage();
  return heapUsed + arrayBuffers;
}

const wrongNumbers = [0, 1, -1, 2, 7, 31, 1e9, -1e9, NaN, Infinity, 2 ** 28, 2 ** 31, 2 ** 53, 0.5];
const wrongValues = [null, undefined, {}, [], 'x', 5, true, 3n, new Uint8Array(3)];

/** A place in a tree of plain values. */
interface Place {
  readonly holder: Record<string | number, unknown>;
  readonly name: string | number;
}

/** Changes one thing in the state, wherever a random way down ends. @returns what */
function damage(state: unknown, random: SeededRandom): string {
  const { holder, name } = placeIn(state, random);
  const value = holder[name];
  const say = (what: string): string => `${String(name)} ${what}`;
  if (ArrayBuffer.isView(value)) {
    const array = value as Uint32Array;
    if (array.length > 0 && random.chance(0.8)) {
      const at = random.below(array.length);
      const was = array[at];
      array[at] = random.chance(0.5) ? was + pick(random, [1, -1, 2, 16]) : pick(random, wrongNumbers);
      if (Object.is(array[at], was)) array[at] = was ^ 1;
      return say(`[${at}] ${was} -> ${array[at]}`);
    }
    holder[name] = array.slice(0, random.below(array.length + 1));
    return say(`cut to ${(holder[name] as Uint32Array).length} of ${array.length}`);
  }
  if (Array.isArray(value) && random.chance(0.7)) return say(damageList(value, random));
  if (typeof value === 'number' && random.chance(0.8)) {
    holder[name] = random.chance(0.5) ? value + pick(random, [1, -1, 100]) : pick(random, wrongNumbers);
  } else if (typeof value === 'boolean') holder[name] = !value;
  else holder[name] = random.chance(0.1) ? state : pick(random, wrongValues); // a circle, now and then
  return say(
    `${typeof value} -> ${typeof holder[name]} ${Object.is(holder[name], state) ? '' : holder[name]}`,
  );
}

function damageList(list: unknown[], random: SeededRandom): string {
  const at = random.below(list.length + 1);
  const how = random.below(4);
  if (how === 0) list.splice(at, 1);
  else if (how === 1) list.splice(at, 0, structuredClone(list[random.below(list.length)]));
  else if (how === 2) list.length = pick(random, [0, list.length + 1, 2 ** 28, 2 ** 32 - 1]);
  else list.reverse();
  return `list changed at ${at}, way ${how}, to a length of ${list.length}`;
}

function placeIn(root: unknown, random: SeededRandom): Place {
  let place: Place = { holder: { root } as Place['holder'], name: 'root' };
  for (let value = root; ; value = place.holder[place.name]) {
    if (typeof value !== 'object' || value === null || ArrayBuffer.isView(value)) return place;
    const names = Array.isArray(value) ? undefined : Object.keys(value);
    const length = names?.length ?? (value as unknown[]).length;
    if (length === 0 || (value !== root && random.chance(0.1))) return place;
    const at = random.below(length);
    place = { holder: value as Place['holder'], name: names === undefined ? at : names[at] };
  }
}

function pick<T>(random: SeededRandom, from: readonly T[]): T {
  return from[random.below(from.length)];
}
