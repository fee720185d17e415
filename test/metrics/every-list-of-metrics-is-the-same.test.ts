/** The list of the code is the list of the reference page and of Grafana's dashboard, and Prometheus's own tool takes the page. */

import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import {
  AggregationTemporality,
  InMemoryMetricExporter,
  MeterProvider,
  PeriodicExportingMetricReader,
} from '@opentelemetry/sdk-metrics';
import {
  BasicTracerProvider,
  InMemorySpanExporter,
  SimpleSpanProcessor,
} from '@opentelemetry/sdk-trace-base';
import { describe, expect, it } from 'vitest';
import { metrics } from '../../src/observe/metrics/catalogue.ts';
import { openTelemetry, openTelemetryName } from '../../src/observe/metrics/openTelemetry.ts';
import { nameIn, prometheus } from '../../src/observe/metrics/prometheus.ts';
import { watchRuntime } from '../../src/observe/metrics/watch.ts';
import { compiledCharts } from '../../tools/dashboardCharts.ts';
import { grafanaDashboard } from '../../tools/grafana.ts';
import { blocks, cacheBelow, openRuntime, prompt, tenant, write } from '../embed/liveRuntime.ts';

const root = join(import.meta.dirname, '..', '..');
const page = readFileSync(join(root, 'docs', 'reference', 'metrics.md'), 'utf8');

it('the reference page has each metric with its kind, labels and meaning, in the order of the code', () => {
  const rows = [
    ...page.matchAll(/^\| `([a-z_:0-9]+)` \| (\w+) \| ([^|]*) \| ([^|]*) \| ([^|]*) \|$/gm),
  ].filter(
    ([, name]) => !name.startsWith('tierkv_gateway_'), // a test of the gateway holds those
  );
  const listed = rows.map(([, name, kind, labels, unit, help]) => ({
    name,
    kind,
    labels: labels.trim(),
    unit,
    help: help.trim(),
  }));
  expect(listed).toEqual(
    metrics.map(({ name, kind, labels, unit, help }) => ({
      name,
      kind,
      labels: labels.map((label) => `\`${label}\``).join(', '),
      unit: `\`${unit}\``,
      help,
    })),
  );
  expect(new Set(metrics.map((metric) => nameIn(metric, 'tierkv'))).size).toBe(metrics.length);
  expect(new Set(metrics.map(openTelemetryName)).size).toBe(metrics.length);
});

/** Names of metrics in a query, without the ends that histograms add. */
const asked = (query: string): string[] =>
  [...query.matchAll(/\b(?:vllm:|tierkv_)\w+/g)].map(([name]) => name.replace(/_(bucket|sum|count)$/, ''));

it("Grafana's dashboard is made of metrics of the list", () => {
  const written = JSON.parse(readFileSync(join(root, 'docs', 'reference', 'grafana-dashboard.json'), 'utf8'));
  expect(written, 'run: node tools/grafana.ts').toEqual(JSON.parse(JSON.stringify(grafanaDashboard)));
  const names = written.panels.flatMap(({ targets }: { targets: { expr: string }[] }) =>
    targets.flatMap(({ expr }) => asked(expr)),
  );
  expect(new Set(names).size).toBeGreaterThan(20);
  const known = new Set(metrics.map(({ name }) => name));
  expect(names.filter((name: string) => !known.has(name))).toEqual([]);
  expect(asked('rate(tierkv_gone_total[5m])')).toEqual(['tierkv_gone_total']);
});

it("the dashboard's charts are compiled from what tools/dashboardCharts.ts says", () => {
  const written = JSON.parse(readFileSync(join(root, 'data', 'dashboard', 'charts.json'), 'utf8'));
  expect(written, 'run: node tools/dashboardCharts.ts').toEqual(JSON.parse(JSON.stringify(compiledCharts)));
});

it('the page is the one that the registry writes, also when values have changed', async () => {
  await using kv = await openRuntime({ ddrBytes: blocks(40) });
  const page = await prometheus(watchRuntime(kv), { labels: { model_name: 'a "b"\\\n' } });
  const first = await page.text();
  expect(first).toBe(await page.registry.metrics());
  await cacheBelow(kv, 1, 1);
  kv.release(await kv.begin(prompt(2), { tenant: 'another "tenant"' }));
  const second = await page.text();
  expect(second).toBe(await page.registry.metrics());
  expect(second).not.toBe(first);
  expect(await page.text()).toBe(second);
  const { Counter } = await import('prom-client');
  new Counter({ name: 'mine_total', help: 'Mine.', registers: [page.registry] }).inc();
  page.registry.setDefaultLabels({ zone: 'a' });
  expect(await page.text()).toBe(await page.registry.metrics());
  expect(await page.text()).toContain('mine_total{zone="a"} 1');
});

const hasPromtool = spawnSync('promtool', ['--version']).status === 0;
if (!hasPromtool) console.log('SKIPPED: promtool check metrics; run: apt-get install prometheus');

describe.skipIf(!hasPromtool)('promtool check metrics', () => {
  it.each(['tierkv', 'vllm'] as const)('is content with the names of %s', async (names) => {
    await using kv = await openRuntime({ ddrBytes: blocks(40) });
    const watch = watchRuntime(kv);
    await cacheBelow(kv, 1, 1);
    const text = await (await prometheus(watch, { names, labels: { model_name: 'tiny' } })).text();
    const { status, stdout, stderr } = spawnSync('promtool', ['check', 'metrics'], {
      input: text,
      encoding: 'utf8',
    });
    // vLLM's names have a colon, which is Prometheus's own for rules: the one thing that it says of them
    const said = `${stdout}${stderr}`
      .split('\n')
      .filter((line) => line !== '' && !/^vllm:\S+ metric names should not contain ':'$/.test(line));
    expect(said).toEqual([]);
    expect(status).toBe(names === 'tierkv' ? 0 : 3);
  });

  it('control: it says what is wrong', () => {
    const input = '# TYPE bad_count counter\nbad_count 1\n';
    expect(spawnSync('promtool', ['check', 'metrics'], { input }).status).not.toBe(0);
  });
});

it('OpenTelemetry gets every metric, and a span of each part of a request', async () => {
  await using kv = await openRuntime({ ddrBytes: blocks(40) });
  const watch = watchRuntime(kv);
  const exporter = new InMemoryMetricExporter(AggregationTemporality.CUMULATIVE);
  const reader = new PeriodicExportingMetricReader({ exporter, exportIntervalMillis: 3_600_000 });
  const meters = new MeterProvider({ readers: [reader] });
  const spans = new InMemorySpanExporter();
  const tracers = new BasicTracerProvider({ spanProcessors: [new SimpleSpanProcessor(spans)] });
  const stop = await openTelemetry(watch, {
    meter: meters.getMeter('test'),
    tracer: tracers.getTracer('test'),
    attributes: { 'gen_ai.request.model': 'tiny' },
  });
  await cacheBelow(kv, 1, 1);
  const sequence = await kv.begin(prompt(1), { tenant });
  write(kv, sequence, 1);
  await kv.seal(sequence);
  await kv.step([{ sequence, tokens: Uint32Array.of(5) }]);
  kv.release(sequence);
  await reader.forceFlush();
  const found = exporter
    .getMetrics()
    .flatMap(({ scopeMetrics }) => scopeMetrics.flatMap((scope) => scope.metrics));
  const named = new Map(found.map((each) => [each.descriptor.name, each]));
  const silent = metrics.filter(
    (metric) => !named.has(openTelemetryName(metric)) && metric.kind !== 'histogram',
  );
  // a metric that has no series yet has nothing to tell
  expect(silent.filter((metric) => metric.read(watch).length > 0).map(({ name }) => name)).toEqual([]);
  const hits = named.get('tierkv.hit_blocks')?.dataPoints.find(({ attributes }) => attributes.tier === 'ddr');
  expect(hits?.value).toBe(4);
  expect(hits?.attributes['gen_ai.request.model']).toBe('tiny');
  expect(named.get('gen_ai.server.request.duration')?.dataPoints[0].value).toMatchObject({ count: 2 });
  const last = spans
    .getFinishedSpans()
    .filter(({ name }) => name === 'tierkv.request')
    .at(-1);
  const parts = spans
    .getFinishedSpans()
    .filter((span) => span.parentSpanContext?.spanId === last?.spanContext().spanId);
  expect(parts.map(({ name }) => name)).toEqual([
    'tierkv.lookup',
    'tierkv.wait_for_room',
    'tierkv.load',
    'tierkv.prefill',
    'tierkv.decode',
  ]);
  expect(parts[2].attributes).toMatchObject({ 'tierkv.tier': 'ddr', 'tierkv.blocks': 4 });
  expect(last?.attributes).toMatchObject({
    'gen_ai.usage.input_tokens': 65,
    'gen_ai.usage.cache_read.input_tokens': 64,
  });
  const told = spans.getFinishedSpans().length;
  const stopAnother = await openTelemetry(watch, { meter: false, tracer: tracers.getTracer('another') });
  stop();
  // where the other's requests come in from is asked still
  expect(watch.requests.surroundings).not.toBeNull();
  stopAnother();
  expect(watch.requests.surroundings).toBeNull();
  kv.release(await kv.begin(prompt(2), { tenant }));
  expect(spans.getFinishedSpans().length).toBe(told);
  await meters.shutdown();
});
