import { expect, it } from 'vitest';
import { parse } from 'yaml';
import { preset } from '../../src/policy/evolve/bundle/presets.ts';
import { parseBundle } from '../../src/policy/evolve/bundle/readBundle.ts';
import { routerWeights } from '../../src/policy/export/routerWeights.ts';

const bundleOf = (routing: unknown): ReturnType<typeof parseBundle> =>
  parseBundle(JSON.stringify({ routing }), 'mine.json');

it("a weighted sum becomes a profile of llm-d's picker, with its weights", () => {
  const { router, text, notExpressed } = routerWeights(
    bundleOf({
      type: 'parameterized',
      template: 'weighted',
      parameters: { scorers: { 'prefix-affinity': 2.5, 'queue-depth': 1, 'load-balance': 3 } },
    }),
  );
  expect(router).toBe('llm-d');
  const profile = parse(text) as {
    plugins: { type: string }[];
    schedulingProfiles: { plugins: { pluginRef: string; weight?: number }[] }[];
  };
  expect(profile.schedulingProfiles[0].plugins).toEqual([
    { pluginRef: 'prefix-cache-scorer', weight: 2.5 },
    { pluginRef: 'queue-scorer', weight: 1 },
    { pluginRef: 'max-score-picker' },
  ]);
  const named = profile.schedulingProfiles[0].plugins.map(({ pluginRef }) => pluginRef);
  expect(profile.plugins.map(({ type }) => type)).toEqual(named);
  expect(notExpressed).toEqual(['routing: the scorer load-balance (weight 3)']);
});

it('a rule of Dynamo becomes its options, and what has no option is listed', () => {
  const { text, notExpressed } = routerWeights(
    bundleOf({
      type: 'parameterized',
      template: 'dynamo-kv',
      parameters: { overlapWeight: 2, temperature: 0.5, hostWeight: 0.9 },
    }),
  );
  expect(text).toBe('--router-mode kv --kv-overlap-score-weight 2 --router-temperature 0.5\n');
  expect(notExpressed).toEqual(['routing: hostWeight=0.9']);
});

it('a routing without weights is refused with what to do', () => {
  expect(() => routerWeights(preset('routing/lor'))).toThrow(
    /does not sum weighted scorers.*tierkv gateway/s,
  );
  const program = { type: 'code', language: 'starlark', source: 'def score(r, c, i):\n  return []' };
  expect(() => routerWeights(bundleOf(program))).toThrow(/starlark program.*tierkv gateway/s);
  expect(() =>
    routerWeights(parseBundle('{"eviction":{"type":"parameterized","template":"lru"}}', 'e')),
  ).toThrow(/no routing/);
});
