/**
 * Every state that a scope can reach, breadth first. The manager cannot be copied, but it is deterministic: a
 * state is the list of choices that led to it, and is built again from the start for each choice but one there. A state
 * that was seen before, by any other order of choices, is not entered again. The first broken rule ends the
 * search with the shortest way to it.
 */

import { createHash } from 'node:crypto';
import { canonical } from './canonical.ts';
import { type Action, faultActions, Model, type Scope } from './model.ts';

export interface Exploration {
  readonly scope: string;
  readonly states: number;
  readonly transitions: number;
  readonly depth: number;
  /** Whether every reachable state was visited. */
  readonly complete: boolean;
  /** Times that each action was taken. */
  readonly taken: Readonly<Record<string, number>>;
  readonly violation: { readonly problem: string; readonly way: readonly Action[] } | null;
}

interface Node {
  readonly parent: Node | null;
  readonly action: Action | null;
  /** The state itself, which the first choice there takes on; null where it is built again. */
  reached: Model | null;
}

/** States of a level that are held until it is their turn, as they are: each takes some tens of KiB. */
const HELD = 2000;

export function explore(scope: Scope, statesMax: number = Number.POSITIVE_INFINITY): Exploration {
  const seen = new Set<string>([nameOf(new Model(scope))]);
  const taken: Record<string, number> = Object.fromEntries(faultActions.map((fault) => [fault, 0]));
  let level: Node[] = [{ parent: null, action: null, reached: null }];
  let depth = 0;
  let transitions = 0;
  const result = (violation: Exploration['violation'], complete: boolean): Exploration => ({
    scope: scope.name,
    states: seen.size,
    transitions,
    depth,
    complete,
    taken,
    violation,
  });
  while (level.length > 0) {
    const next: Node[] = [];
    for (const node of level) {
      const way = wayTo(node);
      let model: Model | null = node.reached ?? replay(scope, way);
      node.reached = null;
      for (const action of model.actions()) {
        const child = model ?? replay(scope, way);
        model = null;
        transitions++;
        taken[action.what] = (taken[action.what] ?? 0) + 1;
        try {
          child.apply(action);
        } catch (error) {
          return result({ problem: String(error), way: [...way, action] }, false);
        }
        const name = nameOf(child);
        if (seen.has(name)) continue;
        seen.add(name);
        next.push({ parent: node, action, reached: next.length < HELD ? child : null });
      }
      if (seen.size >= statesMax) return result(null, false);
    }
    level = next;
    if (next.length > 0) depth++;
  }
  return result(null, true);
}

export function replay(scope: Scope, way: readonly Action[]): Model {
  const model = new Model(scope);
  for (const action of way) model.apply(action, false);
  return model;
}

function wayTo(node: Node): Action[] {
  const way: Action[] = [];
  for (let at: Node | null = node; at?.action; at = at.parent) way.push(at.action);
  return way.reverse();
}

function nameOf(model: Model): string {
  return createHash('sha256').update(canonical(model)).digest('base64');
}
