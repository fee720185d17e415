import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterAll, expect, it } from 'vitest';
import { parse } from 'yaml';
import { exportCommand } from '../../src/cli/export.ts';
import { preset } from '../../src/policy/evolve/bundle/presets.ts';
import { parseBundle } from '../../src/policy/evolve/bundle/readBundle.ts';
import { routerWeights } from '../../src/policy/export/routerWeights.ts';
import { endOf, printedBy } from '../cli/printed.ts';

const out = mkdtempSync(path.join(tmpdir(), 'tierkv-export-'));
afterAll(() => rmSync(out, { recursive: true, force: true }));

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

it('what is no weighted sum is refused with what to do', () => {
  expect(() => routerWeights(preset('routing/lor'))).toThrow(/no weighted sum.*tierkv gateway/s);
  const program = { type: 'code', language: 'starlark', source: 'def score(r, c, i):\n  return []' };
  expect(() => routerWeights(bundleOf(program))).toThrow(/starlark program.*tierkv gateway/s);
  expect(() =>
    routerWeights(parseBundle('{"eviction":{"type":"parameterized","template":"lru"}}', 'e')),
  ).toThrow(/no routing/);
});

it('the command writes the module, prints its settings, and refuses what cannot be', async () => {
  const file = path.join(out, 'tierkv_mine.py');
  const call = ['hazard', '--to', 'vllm', '--parameters', 'behindLru=0.01', '--out', file];
  const written = await printedBy(exportCommand(), ...call);
  expect(written).toContain('{"eviction_policy":"TierkvHazard","cache_policy_module_path":"tierkv_mine"}');
  const module = readFileSync(file, 'utf8');
  expect(module).toContain('vLLM 0.33.0');
  expect(module).toContain('Policy(self, behindLru=0.01)');
  const piped = await printedBy(exportCommand(), 'eviction/lru', '--to', 'vllm');
  expect(piped.startsWith('"""Eviction policy lru')).toBe(true);
  const refused: readonly (readonly [string[], RegExp])[] = [
    [['priority', '--to', 'vllm'], /does not tell a policy who owns a chunk.*Take one of lru/],
    [['hazrd', '--to', 'vllm'], /Did you mean hazard/],
    [['hazard', '--to', 'sglang'], /--to is .*vllm/],
    [['hazard', '--to', 'vllm', '--parameters', 'behindLru=2'], /behindLru is 2.*from 0 to 1/],
    [['hazard', '--to', 'vllm', '--parameters', 'behindLru'], /Write name=number/],
    [['lru', '--to', 'vllm', '--parameters', 'behindLru=0'], /takes no parameters/],
    [['hazard', '--to', 'vllm', '--out', path.join(out, 'a-b.py')], /which Python cannot import/],
    [['routing/lor', '--to', 'scorer', '--parameters', 'a=1'], /--parameters is for an eviction policy/],
    [['routing/lor', '--to', 'vllm'], /has no eviction/],
  ];
  for (const [words, says] of refused) {
    const { status, stderr } = await endOf(['export', ...words]);
    expect(status, words.join(' ')).not.toBe(0);
    expect(stderr, words.join(' ')).toMatch(says);
  }
});

it('a module runs where no other file of tierkv is', () => {
  const source = readFileSync(path.join(out, 'tierkv_mine.py'), 'utf8');
  const imported = [...source.matchAll(/^(?:import|from) (\S+)/gm)].map(([, name]) => name.split('.')[0]);
  expect(new Set(imported)).toEqual(new Set(['bisect', 'heapq', 'math', 'time', 'collections', 'vllm']));
});
