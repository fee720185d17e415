/**
 * What a run depends on beside its deployment and its workload's description. Runs of one key are equal to
 * the last byte: rows, metrics and decisions.
 */

import { fnv1a64 } from '../random/index.ts';

export interface SimulationKey {
  /** Names the policies with all their parameters: equal names, equal policies. */
  readonly policies: string;
  /** Of the requests: when they come, and what is in them. */
  readonly workloadSeed: bigint;
  /** Of what policies draw: routing, admission. */
  readonly simulationSeed: bigint;
  /** Of delays that vary: when machines come, how long they load. */
  readonly jitterSeed: bigint;
}

/** One seed for everything. */
export function keyOfSeed(seed: bigint, policies: string = ''): SimulationKey {
  return { policies, workloadSeed: seed, simulationSeed: seed, jitterSeed: seed };
}

/** A name for policies that are described by plain data: 16 hexadecimal digits, equal for equal data. */
export function policiesName(...choices: readonly unknown[]): string {
  return fnv1a64(JSON.stringify(choices, plain)).toString(16).padStart(16, '0');
}

export function sameKey(a: SimulationKey, b: SimulationKey): boolean {
  return keyText(a) === keyText(b);
}

/** For messages and files. */
export function keyText({ policies, workloadSeed, simulationSeed, jitterSeed }: SimulationKey): string {
  return `policies ${policies || 'unnamed'}, seeds ${workloadSeed}, ${simulationSeed} and ${jitterSeed}`;
}

/** Fields in order of their names, and what JSON has no form for as text. */
function plain(_name: string, value: unknown): unknown {
  if (typeof value === 'bigint' || value === Infinity) return String(value);
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return value;
  return Object.fromEntries(Object.entries(value).sort(([a], [b]) => (a < b ? -1 : 1)));
}
