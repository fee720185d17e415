/** The metrics in the text format of Prometheus, written by `prom-client`, an optional peer. Reading them moves nothing and keeps nothing. */

import type { Registry } from 'prom-client';
import { configError, described } from '../../runtime/errors.ts';
import * as is from '../../runtime/kinds.ts';
import { checkInputs, type Kinds, optionTable } from '../../runtime/options.ts';
import { ValueHistogram } from './histogram.ts';
import {
  type MeasuredMetric,
  type Metric,
  type MetricSample,
  type MetricSource,
  requireWatched,
} from './metric.ts';
import { MetricText } from './pageText.ts';
import { importPeer } from './peer.ts';

/** Options of `prometheus`: labels and the registry. */
export interface PrometheusOptions {
  /** Labels of every sample, such as `model_name`. Default: none. */
  readonly labels?: Readonly<Record<string, string>> | undefined;
  /**
   * Where they are registered, beside metrics of yours and of other sources, each with labels of its own. Default: a
   * registry of their own.
   */
  readonly registry?: Registry | undefined;
  /**
   * `vllm`: what vLLM has is `vllm:...`, so that its dashboards fit. `tierkv`: every name begins with `tierkv_`, as
   * Prometheus would have it: it keeps colons for rules. Default `vllm`.
   */
  readonly names?: 'vllm' | 'tierkv' | undefined;
}

const prometheusOptionsTable = optionTable(
  {
    labels: is.optional(is.passed()),
    registry: is.optional(is.passed()),
    names: is.optional(is.passed()),
  } satisfies Kinds<PrometheusOptions>,
  'TKV_CONFIG',
);

/** Metrics in Prometheus' text format. */
export interface PrometheusMetrics {
  readonly registry: Registry;
  readonly contentType: string;
  /** All metrics of the registry as they are now. */
  text(): Promise<string>;
}

/** A label's name as Prometheus takes it; a name that begins with two underscores is its own. */
const labelName = /^(?!__)[a-zA-Z_][a-zA-Z0-9_]*$/;

/**
 * The metrics of a runtime or a gateway.
 * @throws TKV_CONFIG where `prom-client` is not installed, for invalid options, for a registry that has one of the names, and for labels
 * that another source of the registry has; TKV_INPUT for what cannot be a source
 */
export async function prometheus(
  source: MetricSource,
  options: PrometheusOptions = {},
): Promise<PrometheusMetrics> {
  requireWatched(source, 'source');
  checkInputs({ options }, { options: is.optional(is.object()) });
  const { measured } = source;
  const { labels = {}, names = 'vllm', ...given } = prometheusOptionsTable.read(options);
  if (names !== 'vllm' && names !== 'tierkv') {
    throw configError('names', `is ${described(names)}`, "Use 'vllm' or 'tierkv'.");
  }
  checkInputs({ labels }, { labels: is.object() });
  for (const [name, text] of Object.entries(labels)) {
    checkInputs({ [`labels.${name}`]: text }, { [`labels.${name}`]: is.text() });
    if (!labelName.test(name) || measured.some((metric) => metric.labels.includes(name)) || name === 'le') {
      throw configError(
        `labels.${name}`,
        'is not a name for a label here',
        'Use letters, digits and _, and no name that a metric has.',
      );
    }
  }
  if (given.registry !== undefined)
    checkInputs(given, { registry: is.fields({ getSingleMetric: is.func() }) });
  const client = await importPeer<typeof import('prom-client')>('prom-client', 'metrics for Prometheus');
  const registry = given.registry ?? new client.Registry();
  const ours = oursIn.get(registry) ?? new Map<string, JoinedMetric>();
  const there = (name: string): JoinedMetric | undefined => {
    const joined = ours.get(name);
    return joined?.shown === registry.getSingleMetric(name) ? joined : undefined; // a registry can be cleared
  };
  for (const metric of measured) {
    const name = nameIn(metric, names);
    const joined = there(name);
    if (joined === undefined && registry.getSingleMetric(name) !== undefined) {
      throw configError('registry', `has a metric ${name} already`, 'Give another registry.');
    }
    if (joined?.has(labels) === true) {
      const remedy = "Give each runtime of a registry labels of its own, such as { runtime: 'a' }.";
      throw configError('labels', `are those of another source of this registry`, remedy);
    }
  }
  for (const metric of measured) {
    const name = nameIn(metric, names);
    const joined = there(name) ?? new JoinedMetric(metric, name);
    // prom-client's type asks for a class of its own; a registry reads a few members alone
    const shown = joined.shown as Parameters<Registry['registerMetric']>[0];
    if (there(name) === undefined) registry.registerMetric(shown);
    joined.add(metric, labels);
    ours.set(name, joined);
  }
  oursIn.set(registry, ours);
  return { registry, contentType: registry.contentType, text: () => pageOf(registry, ours) };
}

/** Metrics that earlier calls of `prometheus` put into a registry, by name; further sources join them. */
const oursIn = new WeakMap<Registry, Map<string, JoinedMetric>>();

/** One metric of a registry, read from each source that has it. */
class JoinedMetric {
  /** The metric in the form that a registry takes. */
  readonly shown: unknown;
  readonly #texts: MetricText[] = [];
  readonly #labels: Set<string> = new Set();
  readonly #sources: {
    readonly metric: MeasuredMetric;
    readonly more: MetricSample['labels'];
    readonly series: SeriesLabels;
  }[] = [];
  readonly #name: string;

  constructor({ help, kind }: MeasuredMetric, name: string) {
    this.#name = name;
    const said = { name, help, type: kind, aggregator: 'sum' };
    const get = async (): Promise<unknown> => ({
      ...said,
      values: this.#sources.flatMap(({ metric, more }) =>
        metric.read().flatMap((each) => rows(each, name, more)),
      ),
    });
    const getForPromString = async (): Promise<unknown> => ({
      ...said,
      values: this.#sources.flatMap(({ metric, series }) =>
        metric.read().flatMap((each) => series.rows(each)),
      ),
    });
    this.shown = { ...said, get, getForPromString, reset: () => {} };
  }

  has(labels: MetricSample['labels']): boolean {
    return this.#labels.has(keyOfLabels(labels));
  }

  add(metric: MeasuredMetric, labels: MetricSample['labels']): void {
    this.#labels.add(keyOfLabels(labels));
    this.#sources.push({ metric, more: labels, series: new SeriesLabels(this.#name, labels) });
    this.#texts.push(new MetricText(metric, this.#name, labels));
  }

  /** Its lines: the head once, then those of each source. */
  text(): string {
    const [first, ...others] = this.#texts.map((each) => each.text());
    return [first, ...others.map((text) => text.split('\n').slice(2).join('\n'))]
      .filter((text) => text !== '')
      .join('\n');
  }
}

function keyOfLabels(labels: MetricSample['labels']): string {
  return JSON.stringify(Object.entries(labels).sort(([a], [b]) => (a < b ? -1 : 1)));
}

/**
 * The registry's page, in which `ours` write themselves. That takes a fifth of the time, and is left to the registry where it
 * would write something else: where it has default labels, or another content type.
 */
async function pageOf(registry: Registry, ours: ReadonlyMap<string, JoinedMetric>): Promise<string> {
  const all = registry.getMetricsAsArray();
  const probe = all.find(({ name }) => ours.has(name))?.name ?? '';
  if (probe === '' || ours.get(probe)?.text() !== (await registry.getSingleMetricAsString(probe))) {
    return registry.metrics();
  }
  const texts: string[] = [];
  for (const { name } of all) {
    texts.push(ours.get(name)?.text() ?? (await registry.getSingleMetricAsString(name)));
  }
  return `${texts.join('\n\n')}\n`;
}

/** The metric's name under a choice of names. */
export function nameIn({ name }: Pick<Metric, 'name'>, names: 'vllm' | 'tierkv'): string {
  return names === 'vllm' ? name : name.replace(/^vllm:/, 'tierkv_');
}

interface Row {
  readonly metricName: string;
  readonly labels: Readonly<Record<string, string>>;
  readonly value: number;
}

/** A row of the page whose labels `prom-client` keeps as text, since they are one object at every scrape. */
interface SharedRow {
  readonly metricName: string;
  readonly sharedLabels: Readonly<Record<string, string>>;
  readonly value: number;
}

/** The labels of one series, with one more for each bucket of a histogram. */
interface LabelsOfSeries {
  readonly plain: Readonly<Record<string, string>>;
  readonly buckets: readonly Readonly<Record<string, string>>[];
}

/**
 * The labels of a metric's series, made once: to write them anew for each bucket at each scrape took most of a scrape. There
 * are as many as there are series, which the metrics bound.
 */
class SeriesLabels {
  readonly #name: string;
  readonly #more: Readonly<Record<string, string>>;
  readonly #known: Map<string, LabelsOfSeries> = new Map();

  constructor(name: string, more: Readonly<Record<string, string>>) {
    this.#name = name;
    this.#more = more;
  }

  rows({ labels, value }: MetricSample): SharedRow[] {
    const name = this.#name;
    const { plain, buckets } = this.#of(labels, value);
    if (!(value instanceof ValueHistogram)) return [{ metricName: name, sharedLabels: plain, value }];
    const found: SharedRow[] = [];
    let count = 0;
    for (const [i, sharedLabels] of buckets.entries()) {
      count += value.counts[i];
      found.push({ metricName: `${name}_bucket`, sharedLabels, value: count });
    }
    found.push({ metricName: `${name}_sum`, sharedLabels: plain, value: value.sum });
    found.push({ metricName: `${name}_count`, sharedLabels: plain, value: count });
    return found;
  }

  #of(labels: MetricSample['labels'], value: MetricSample['value']): LabelsOfSeries {
    const key = Object.values(labels).join('\0');
    const known = this.#known.get(key);
    if (known !== undefined) return known;
    const plain = { ...this.#more, ...labels };
    const bounds = value instanceof ValueHistogram ? [...value.bounds.map(String), '+Inf'] : [];
    const made = { plain, buckets: bounds.map((le) => ({ ...plain, le })) };
    this.#known.set(key, made);
    return made;
  }
}

function rows({ labels, value }: MetricSample, name: string, more: Readonly<Record<string, string>>): Row[] {
  const all = { ...more, ...labels };
  if (!(value instanceof ValueHistogram)) return [{ metricName: name, labels: all, value }];
  const found: Row[] = [];
  let count = 0;
  value.counts.forEach((here, i) => {
    count += here;
    const le = String(value.bounds[i] ?? '+Inf');
    found.push({ metricName: `${name}_bucket`, labels: { ...all, le }, value: count });
  });
  found.push({ metricName: `${name}_sum`, labels: all, value: value.sum });
  found.push({ metricName: `${name}_count`, labels: all, value: count });
  return found;
}
