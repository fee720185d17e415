/** The model check over its small scopes. The large ones: `npm run campaign -- modelcheck`. */

import { expect, it } from 'vitest';
import { explore, replay } from './explore.ts';
import { faultActions } from './model.ts';
import { oneBlock, rivals, smallScopes } from './scopes.ts';

it.each(smallScopes)('$name: no interleaving reads a wrong block, hangs or leaks', (scope) => {
  const startMs = performance.now();
  const { states, transitions, depth, complete, taken, violation } = explore(scope);
  const seconds = ((performance.now() - startMs) / 1000).toFixed(1);
  console.log(`${scope.name}: ${states} states, ${transitions} transitions, depth ${depth}, ${seconds} s`);
  expect(violation).toBeNull();
  expect(complete).toBe(true);
  expect(states).toBeGreaterThan(1000);
  for (const what of [
    ...faultActions,
    'open',
    'load',
    'allocate',
    'tell',
    'seal',
    'release',
    'cancel',
    'late',
    ...(scope.name.startsWith(oneBlock.name) && scope.faultsMax === 1 ? [] : ['early']),
  ]) {
    expect(taken[what], `${what} never happened: the model does not reach it`).toBeGreaterThan(0);
  }
});

it('control: a driver that says "retired" before its last write is found out, and the way there can be replayed', () => {
  const lying = { ...rivals, faultsMax: 1, lyingDriver: true };
  const { violation } = explore(lying);
  expect(violation?.problem).toMatch(/finds|invariant/);
  expect(violation!.way.map(({ what }) => what)).toContain('zombie');
  const last = violation!.way.at(-1)!;
  const model = replay(lying, violation!.way.slice(0, -1));
  expect(() => model.apply(last)).toThrow(violation!.problem.replace(/^Error: /, ''));
});

it('control: a block that is sealed before its owner was told to write it is found by other requests', () => {
  const careless = { ...rivals, faultsMax: 0, sealsUntold: true };
  const { violation } = explore(careless);
  expect(violation?.problem).toMatch(/may read block 0 and finds -1, not \d/);
  const way = violation!.way.map(({ what }) => what);
  expect(way).toContain('seal');
  expect(way).not.toContain('tell');
});

it('states that differ in names only are one state: the search ends, and ends the same way twice', () => {
  const scope = { ...rivals, faultsMax: 0 };
  const [first, second] = [explore(scope), explore(scope)];
  expect(second).toEqual(first);
  expect(first.complete).toBe(true);
  expect(first.states).toBeLessThan(first.transitions);
});
