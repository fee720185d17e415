import { readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { decideAgain } from '../../../src/serve/gateway/decisionLog.ts';
import { compareShadows } from '../../../src/serve/gateway/shadows.ts';
import { bundleOf, prefixBundle } from '../recordedRun.ts';
import { ask, echo, gatewayOf, operatorPage, TestBackend, textOf } from './backends.ts';

const program = (language: string, source: string) =>
  bundleOf({ routing: { type: 'code', language, source } });

const failing: readonly (readonly [string, ReturnType<typeof program>, string])[] = [
  [
    'divides by zero',
    program('starlark', 'def score(r, c, i):\n  return [1 / (x.inFlight * 0) for x in i]\n'),
    'policy_runtime',
  ],
  [
    'loops beyond its budget',
    program(
      'starlark',
      'def score(r, c, i):\n  for n in range(1000):\n    for m in range(1000):\n      pass\n  return [0 for x in i]\n',
    ),
    'step_limit',
  ],
  [
    'chooses a backend that is not there',
    program('starlark', 'def route(r, c, i):\n  return 77\n'),
    'invalid_decision',
  ],
  ['never ends, in JavaScript', program('javascript', 'function score(r, c, i) { for (;;); }'), 'step_limit'],
];

describe('a program that fails costs no request, and is counted', () => {
  it.each(failing)('one that %s', async (_what, policy, kind) => {
    await using a = await TestBackend.open(echo);
    await using b = await TestBackend.open(echo);
    await using gateway = await gatewayOf([a, b], { policy });
    for (let i = 0; i < 8; i++) expect(await textOf(await ask(gateway, `p${i}`))).toBe(`echo p${i}`);
    // after five failures running it rests
    expect(Object.fromEntries(gateway.counts.fallbacks)).toEqual({
      [`routing ${kind}`]: 5,
      'routing resting': 3,
    });
    const metrics = await (await operatorPage(gateway, '/metrics')).text();
    expect(metrics).toContain(`tierkv_gateway_policy_fallbacks_total{what="routing ${kind}"} 5`);
  });

  it('one whose on_complete works rests all the same', async () => {
    await using a = await TestBackend.open(echo);
    const source = 'def score(r, c, i):\n  return 1 / 0\n\ndef on_complete(o):\n  pass\n';
    await using gateway = await gatewayOf([a], { policy: program('starlark', source) });
    for (let i = 0; i < 8; i++) expect(await textOf(await ask(gateway, `p${i}`))).toBe(`echo p${i}`);
    const { 'routing policy_runtime': failed } = Object.fromEntries(gateway.counts.fallbacks);
    expect(failed).toBe(5);
  });

  it('an admission and a priority that fail let requests in by class', async () => {
    const source = 'def f(r, *rest):\n  return 1 / 0\n';
    const fails = (entrypoint: string, text: string) => ({
      type: 'code',
      language: 'starlark',
      source: text,
      entrypoint,
    });
    await using a = await TestBackend.open(echo);
    const policy = bundleOf({
      admission: fails('admit', source.replace('f(r, *rest)', 'admit(r, c, i)')),
      priority: fails('prioritise', source.replace('f(r, *rest)', 'prioritise(r, c)')),
    });
    await using gateway = await gatewayOf([a], { policy });
    expect(await textOf(await ask(gateway, 'p'))).toBe('echo p');
    expect([...gateway.counts.fallbacks.keys()].sort()).toEqual([
      'admission policy_runtime',
      'priority policy_runtime',
    ]);
  });
});

describe('bundles that a gateway cannot run', () => {
  it.each([
    ['does not compile', program('starlark', 'def score(r, c, i:\n'), /compile/],
    ['lacks its function', program('starlark', 'x = 1\n'), /contract/],
    [
      'decides what servers decide',
      bundleOf({ eviction: { type: 'parameterized', template: 'lru', parameters: {} } }),
      /eviction/,
    ],
  ])('one that %s is refused before anything listens', async (_what, policy, problem) => {
    await expect(gatewayOf([{ url: 'http://127.0.0.1:9' }], { policy })).rejects.toThrow(problem);
  });

  it('slots of the servers beside its own are named, and so are caches that no server tells of', async () => {
    await using a = await TestBackend.open(echo);
    const policy = bundleOf({
      routing: { type: 'parameterized', template: 'prodstack-kvaware', parameters: {} },
      eviction: { type: 'parameterized', template: 'lru', parameters: {} },
    });
    await using gateway = await gatewayOf([a], { policy });
    expect(gateway.notes).toEqual([
      expect.stringContaining('servers decide eviction'),
      expect.stringContaining('no server publishes KV events'),
    ]);
  });
});

it('shadows decide beside without effect, are counted, and the live log is decided again with them', async () => {
  await using a = await TestBackend.open(echo);
  await using b = await TestBackend.open(echo);
  const log = join(tmpdir(), `tierkv-gateway-shadow-${process.pid}.jsonl`);
  const toFirst = program('starlark', 'def route(r, c, i):\n  return 0\n');
  {
    await using gateway = await gatewayOf([a, b], {
      log,
      shadows: [
        { name: 'first', bundle: toFirst },
        { name: 'prefix', bundle: prefixBundle },
        { name: 'fails', bundle: failing[0][1] },
      ],
    });
    for (let i = 0; i < 10; i++) await ask(gateway, `p${i}`);
    expect(gateway.shadows.tallies[0]).toMatchObject({
      name: 'first',
      routes: 10,
      otherTargets: 5,
      otherVerdicts: 0,
    });
    expect([...gateway.counts.fallbacks.keys()]).toContain('fails routing policy_runtime');
    expect([a.seen.length, b.seen.length]).toEqual([5, 5]);
  }
  expect((await decideAgain(log)).differences).toEqual([]);
  const { policies, requests } = await compareShadows(log, undefined);
  expect(requests).toBe(10);
  expect(policies.map(({ name, tally }) => [name, tally?.otherTargets])).toEqual([
    ['live', undefined],
    ['first', 5],
    ['prefix', expect.any(Number)],
    ['fails', expect.any(Number)],
  ]);
  expect(readFileSync(log, 'utf8')).not.toContain('p7');
  rmSync(log);
});
