/** `tierkv export`: what it writes and says, and what it refuses. */

import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterAll, expect, it } from 'vitest';
import { exportCommand } from '../../src/cli/export.ts';
import { endOf, printedBy } from './printed.ts';

const out = mkdtempSync(path.join(tmpdir(), 'tierkv-export-command-'));
afterAll(() => rmSync(out, { recursive: true, force: true }));

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
