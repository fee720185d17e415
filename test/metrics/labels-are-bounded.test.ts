/** However many tenants come, a page has no more lines; all of them are counted, the later ones as one. */

import { expect, it } from 'vitest';
import { prometheus } from '../../src/observe/metrics/prometheus.ts';
import { watchRuntime } from '../../src/observe/metrics/watch.ts';
import { openHostRuntime, prompt } from '../embed/liveRuntime.ts';

it.each([
  [undefined, 20],
  [3, 3],
  [0, 0],
])('tenants: %s tells %i of a thousand apart', async (tenants, named) => {
  await using kv = await openHostRuntime();
  const page = await prometheus(watchRuntime(kv, { tenants }));
  const serve = async (from: number, to: number): Promise<void> => {
    for (let i = from; i < to; i++) kv.release(await kv.begin(prompt(i % 3), { tenant: `tenant "${i}"\n` }));
  };
  const lines = async (): Promise<string[]> => (await page.text()).split('\n');
  await serve(0, 30);
  const before = await lines();
  await serve(30, 1000);
  const after = await lines();
  expect(after).toHaveLength(before.length);
  const counts = after
    .filter((line) => line.startsWith('tierkv_tenant_requests_total{'))
    .map((line) => [/tenant="(.*)"\}/.exec(line)?.[1], Number(line.split(' ').at(-1))]);
  expect(counts).toHaveLength(named + 1);
  expect(counts).toContainEqual(['other', 1000 - named]);
  expect(after.join('\n')).toBe(`${(await page.registry.metrics()).trimEnd()}\n`);
});

it('scrapes by the thousand give the same page, and change nothing', async () => {
  await using kv = await openHostRuntime();
  const page = await prometheus(watchRuntime(kv));
  kv.release(await kv.begin(prompt(1), { tenant: 'a' }));
  const first = await page.text();
  for (let i = 0; i < 3000; i++) expect(await page.text()).toBe(first);
  expect(await page.registry.metrics()).toBe(first);
});

it.each([1, 2, 3, 20])(
  'no series stands there twice where a tenant is called as the later ones are: %i',
  async (tenants) => {
    await using kv = await openHostRuntime();
    const page = await prometheus(watchRuntime(kv, { tenants }));
    for (const tenant of ['a', 'other', 'b', 'c']) kv.release(await kv.begin(prompt(1), { tenant }));
    const series = (await page.text()).split('\n').filter((line) => line.includes('tenant="'));
    const names = series.map((line) => line.slice(0, line.lastIndexOf(' ')));
    expect(names.length).toBeGreaterThan(4);
    expect(new Set(names).size).toBe(names.length);
    const requests = series.filter((line) => line.startsWith('tierkv_tenant_requests_total{'));
    expect(requests.reduce((sum, line) => sum + Number(line.split(' ').at(-1)), 0)).toBe(4);
  },
);
