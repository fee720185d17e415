/** What a decision has to be, checked alike for every language. A decision is an array of numbers. */

import { PolicyError } from '../policyError.ts';
import type { DecisionShape } from './signature.ts';

/** @throws PolicyError invalid_decision, always */
export function invalidDecision(name: string, problem: string): never {
  throw new PolicyError('invalid_decision', `${name} ${problem}`);
}

/** @param remedy what may be the reason, beside a division by 0 */
export function requireNumber(name: string, value: number, remedy = ''): number {
  return Number.isNaN(value) ? invalidDecision(name, `returns NaN. Guard divisions by 0${remedy}`) : value;
}

/** @param rows records of the input that the decision is about */
export function requireIndex(name: string, value: number, rows: number): number {
  if (Number.isInteger(value) && value >= 0 && value < rows) return value;
  const range = rows === 0 ? 'there is nothing to choose from' : `return an integer from 0 to ${rows - 1}`;
  return invalidDecision(name, `returns the index ${value}; ${range}`);
}

type ChoiceShape = Extract<DecisionShape, { kind: 'choice' }>;

/** @returns the place of the name */
export function requireChoice(name: string, choice: string, { names }: ChoiceShape): number {
  const place = names.indexOf(choice);
  if (place >= 0) return place;
  return invalidDecision(name, `returns "${choice.slice(0, 40)}". Return one of ${quoted(names)}`);
}

export function requireChoicePlace(name: string, place: number, { names }: ChoiceShape): number {
  if (Number.isInteger(place) && place >= 0 && place < names.length) return place;
  const meanings = names.map((each, i) => `${i} for ${each}`).join(', ');
  return invalidDecision(name, `returns ${place}. Return ${meanings}`);
}

export function quoted(names: readonly string[]): string {
  return names.map((each) => `"${each}"`).join(', ');
}

/** Numbers that a decision takes at most, without those of `numbers`, which has one a record. */
export const SCALARS = 2;
