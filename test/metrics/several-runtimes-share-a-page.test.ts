import { Registry } from 'prom-client';
import { expect, it } from 'vitest';
import { KVRuntime, kvLayout } from '../../src/index.ts';
import { dashboard } from '../../src/observe/dashboard/dashboard.ts';
import { openTelemetry } from '../../src/observe/metrics/openTelemetry.ts';
import { prometheus } from '../../src/observe/metrics/prometheus.ts';
import { watchRuntime } from '../../src/observe/metrics/watch.ts';

const layout = kvLayout({ layers: 1, kvHeads: 1, headDim: 16, dtype: 'f16', blockTokens: 4 });
const open = (): Promise<KVRuntime> =>
  KVRuntime.open({ layout, model: 'm@1', secretKey: new Uint8Array(16), ddrBytes: 16 * layout.blockBytes });

it('each with labels of its own, and each value once', async () => {
  await using a = await open();
  await using b = await open();
  const registry = new Registry();
  const page = await prometheus(watchRuntime(a), { registry, labels: { runtime: 'a' } });
  await prometheus(watchRuntime(b), { registry, labels: { runtime: 'b' } });
  const again = prometheus(watchRuntime(b), { registry, labels: { runtime: 'b' } });
  await expect(again).rejects.toMatchObject({ code: 'TKV_CONFIG', field: 'labels' });
  for (const [kv, requests] of [
    [a, 3],
    [b, 1],
  ] as const) {
    for (let i = 0; i < requests; i++) kv.release(await kv.begin([1, 2, 3, 4, 5], { tenant: 't' }));
  }
  const text = await page.text();
  expect(text).toBe(await registry.metrics());
  const lines = text.split('\n');
  expect(lines.filter((line) => line.startsWith('vllm:prompt_tokens_total'))).toEqual([
    'vllm:prompt_tokens_total{runtime="a"} 15',
    'vllm:prompt_tokens_total{runtime="b"} 5',
  ]);
  const heads = lines.filter((line) => line.startsWith('#'));
  expect(new Set(heads).size).toBe(heads.length);
  registry.clear();
  await prometheus(watchRuntime(b), { registry, labels: { runtime: 'b' } });
  expect(await registry.metrics()).not.toContain('runtime="a"');
});

it('a runtime in place of its watch is told what to pass, and options of a dashboard are checked', async () => {
  await using kv = await open();
  const says = { code: 'TKV_INPUT', message: expect.stringContaining('Pass watchRuntime(kv)') };
  await expect(prometheus(kv as never)).rejects.toMatchObject({ ...says, field: 'source' });
  await expect(openTelemetry(kv as never)).rejects.toMatchObject({ ...says, field: 'watch' });
  for (const [options, field] of [
    [{ title: 5 }, 'title'],
    [{ token: 5 }, 'token'],
    [{ limits: { ddrToNvm: 1e9 } }, 'limits.ddrToNvm'],
    [{ limits: { ddrToNvme: -1 } }, 'limits.ddrToNvme'],
  ] as const) {
    await expect(dashboard(kv, options as never)).rejects.toMatchObject({ field });
  }
});
