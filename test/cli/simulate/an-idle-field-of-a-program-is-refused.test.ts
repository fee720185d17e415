/**
 * A field of a program's description that another field switches off is refused by its own name, as the command refuses the
 * option, and taken beside what it needs. What came of it otherwise would be a run of something else than was described.
 */

import { expect, it } from 'vitest';
import { simulate } from '../../../src/sim/build/simulate.ts';
import type { DeploymentSpec } from '../../../src/sim/description/knobs.ts';

const bare = { model: 'qwen3-14b', tp: 2, engine: { kvBlocks: 2000 } } as const;
const load = { preset: 'chatbot', rate: 30, requests: 5 } as const;

/** A field, what it is set to alone, and what it needs beside it. */
const rows: readonly (readonly [field: string, alone: DeploymentSpec, needs: DeploymentSpec])[] = [
  ['speculation.acceptance', { speculation: { acceptance: 0.8 } }, { speculation: { draftTokens: 2 } }],
  [
    'speculation.draftModel',
    { speculation: { draftModel: 'qwen3-0.6b' } },
    { speculation: { draftTokens: 2, acceptance: 0.8 } },
  ],
  [
    'speculation.draftUs',
    { speculation: { draftUs: 300 } },
    { speculation: { draftTokens: 2, acceptance: 0.8 } },
  ],
  ['engine.maxLoraRank', { engine: { maxLoraRank: 8 } }, { engine: { maxLoras: 2 } }],
  ['engine.loraLoadUs', { engine: { loraLoadUs: 80 } }, { engine: { maxLoras: 2 } }],
  ['tiers.load', { tiers: { load: 'always' } }, { tiers: { ddr: 500 } }],
  ['tiers.loadTokensPerUs', { tiers: { loadTokensPerUs: 5 } }, { tiers: { hostBlocks: 500 } }],
  ['workload.thinkTimeMs', { workload: { thinkTimeMs: 5 } }, { workload: { preset: 'chat' } }],
  ['pools.decider', { pools: { decider: 'always' } }, { pools: { prefill: 1, decode: 1 } }],
  [
    'control.routing.scorers',
    { control: { routing: { policy: 'round-robin', scorers: { 'queue-depth': 1 } } } },
    { control: { routing: { policy: 'weighted' } } },
  ],
  [
    'control.snapshotUs',
    { control: { snapshotUs: 5000 } },
    { control: { routing: { policy: 'least-loaded' } } },
  ],
  [
    'control.cacheSignalUs',
    { control: { cacheSignalUs: 500 } },
    { control: { routing: { policy: 'weighted' } } },
  ],
];

type Tree = Record<string, unknown>;
const isTree = (value: unknown): value is Tree => typeof value === 'object' && value !== null;
/** One description over another, field by field. */
function over(under: Tree, upper: Tree): Tree {
  const both = Object.entries(upper).map(([key, value]) => {
    const below = under[key];
    return [key, isTree(below) && isTree(value) ? over(below, value) : value] as const;
  });
  return { ...under, ...Object.fromEntries(both) };
}
const described = (...parts: readonly DeploymentSpec[]): DeploymentSpec =>
  parts.reduce<Tree>((all, part) => over(all, part as Tree), { ...bare, workload: load });

it.each(rows)('%s', (field, alone, needs) => {
  expect(() => simulate(described(alone))).toThrow(
    expect.objectContaining({ code: 'TKV_CONFIG', field, message: expect.stringContaining(field) }),
  );
  const { metrics } = simulate(described(alone, needs));
  expect(metrics.completed_requests).toBeGreaterThan(0);
});
