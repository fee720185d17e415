/** Reads what a client has beyond upstream's keys, and what follows from it for upstream's. */

import type { LengthSpec } from '../../../random/index.ts';
import { readLength } from '../distribution.ts';
import type { SpecNode } from '../reader.ts';
import type { MultiTurnSpec, ReasoningSpec } from '../types.ts';
import { readArchetype, readBehavior, readCorrelation, readPrefixes } from './behavior.ts';
import { readSession } from './session.ts';
import type { AdditionsSpec } from './types.ts';

export interface ReadAdditions {
  readonly additions: AdditionsSpec;
  /** Of the first request of a session, or of an archetype; absent: the client's own. */
  readonly inputLength: LengthSpec | undefined;
  readonly outputLength: LengthSpec | undefined;
  /** Makes the client's requests the first ones of sessions. */
  readonly reasoning: ReasoningSpec | undefined;
}

const KEYS = ['session', 'behavior', 'prefixes', 'correlation', 'archetype'] as const;

/** @param concurrency users in closed loop; they have none of this */
export function readAdditions(
  node: SpecNode,
  readFile: (path: string) => string,
  concurrency: number,
): ReadAdditions {
  const given = KEYS.filter((key) => node.has(key));
  const none = { additions: {}, inputLength: undefined, outputLength: undefined, reasoning: undefined };
  if (given.length === 0) return none;
  if (concurrency > 0) throw node.error(given[0], 'excludes concurrency', 'Keep one of them');
  const tenantId = node.text('tenant_id');
  const archetype = readArchetype(node, tenantId);
  const input = readLength(node, 'input_distribution', readFile) ?? archetype?.inputLength;
  const output = readLength(node, 'output_distribution', readFile);
  const walk = readSession(node, { input, output }, readFile);
  const behavior = readBehavior(node) ?? archetype?.behavior;
  const correlations = readCorrelation(node, tenantId);
  const ownPrefixes = readPrefixes(node);
  if (ownPrefixes !== undefined && correlations.prefixes !== undefined) {
    throw node.error('prefixes', 'exclude correlation.intra_tenant_prefix', 'Keep one of them');
  }
  const prefixes = ownPrefixes ?? correlations.prefixes ?? archetype?.prefixes;
  if (prefixes !== undefined && node.text('prefix_group') !== '') {
    throw node.error('prefix_group', 'excludes a choice among prefixes', 'Keep one of them');
  }
  const { correlation } = correlations;
  const turns = archetype?.sessionLength ?? 1;
  if (walk !== undefined) requireAlone(node);
  const multiTurn: MultiTurnSpec | undefined =
    walk !== undefined
      ? { maxRounds: 1, thinkTimeUs: 0, accumulate: walk.growth !== 'none', singleSession: false }
      : turns > 1 && !node.has('reasoning')
        ? { maxRounds: turns, thinkTimeUs: 10_000_000, accumulate: true, singleSession: false }
        : undefined;
  return {
    additions: {
      ...(walk === undefined ? {} : { walk }),
      ...(behavior === undefined ? {} : { behavior }),
      ...(prefixes === undefined ? {} : { prefixes }),
      ...(correlation === undefined ? {} : { correlation }),
    },
    inputLength: walk?.states[0].inputLength ?? archetype?.inputLength,
    outputLength: walk?.states[0].outputLength,
    reasoning: multiTurn === undefined ? undefined : { multiTurn },
  };
}

/** Rounds of a session are the session's; they come when the ones before have ended. */
function requireAlone(node: SpecNode): void {
  if (node.has('reasoning')) throw node.error('reasoning', 'excludes session', 'Keep one of them');
  if (node.has('multimodal')) throw node.error('multimodal', 'excludes session', 'Keep one of them');
  if (node.flag('closed_loop') === false) {
    throw node.error('closed_loop', 'is false', 'Sessions go on when a request has ended: leave it out');
  }
}
