/**
 * Metrics as the lines of a page for Prometheus. Between two scrapes most values stay, so a line is kept and written again
 * only when its value has changed; there are as many lines as there are series, which the metrics bound.
 */

import { ValueHistogram } from './histogram.ts';
import type { MeasuredMetric, MetricSample } from './metric.ts';

type PageLabels = MetricSample['labels'];

/** One metric of the page. */
export class MetricText {
  readonly name: string;
  readonly #metric: MeasuredMetric;
  readonly #more: PageLabels;
  readonly #head: string;
  #series: SeriesText[] = [];
  #text = '';

  /** @param more labels of every line, before its own */
  constructor(metric: MeasuredMetric, name: string, more: PageLabels) {
    this.name = name;
    this.#metric = metric;
    this.#more = more;
    this.#head = `# HELP ${name} ${escaped(metric.help)}\n# TYPE ${name} ${metric.kind}`;
  }

  /** Its lines as they are now, without a line end behind the last one. */
  text(): string {
    const samples = this.#metric.read();
    let isChanged = this.#text === '' || samples.length !== this.#series.length;
    for (const [i, { labels, value }] of samples.entries()) {
      let series = this.#series[i];
      if (series === undefined || !isSame(series.labels, labels)) {
        series = new SeriesText(this.name, { ...this.#more, ...labels }, labels, value);
        this.#series[i] = series;
      }
      if (series.take(value)) isChanged = true;
    }
    if (!isChanged) return this.#text;
    this.#series = this.#series.slice(0, samples.length);
    this.#text = [this.#head, ...this.#series.map(({ text }) => text)].join('\n');
    return this.#text;
  }
}

/** The lines of one series: one, or a histogram's. */
class SeriesText {
  readonly labels: PageLabels;
  text = '';
  /** Text before each value. */
  readonly #starts: readonly string[];
  readonly #lines: string[] = [];
  readonly #values: number[] = [];

  constructor(name: string, all: PageLabels, labels: PageLabels, value: MetricSample['value']) {
    this.labels = labels;
    const written = Object.entries(all).map(([label, text]) => `${label}="${escaped(text, true)}"`);
    const start = (ending: string, own: readonly string[] = written): string =>
      `${name}${ending}${own.length === 0 ? '' : `{${own.join(',')}}`} `;
    this.#starts =
      value instanceof ValueHistogram
        ? [
            ...[...value.bounds, '+Inf'].map((le) => start('_bucket', [...written, `le="${le}"`])),
            start('_sum'),
            start('_count'),
          ]
        : [start('')];
  }

  /** @returns whether the text is another one now */
  take(value: MetricSample['value']): boolean {
    if (!(value instanceof ValueHistogram)) {
      if (!this.#put(0, value)) return false;
      this.text = this.#lines[0];
      return true;
    }
    const count = this.#starts.length - 1;
    if (this.#values[count] === value.count && this.#values[count - 1] === value.sum) return false;
    let below = 0;
    for (const [i, here] of value.counts.entries()) {
      below += here;
      this.#put(i, below);
    }
    this.#put(count - 1, value.sum);
    this.#put(count, value.count);
    this.text = this.#lines.join('\n');
    return true;
  }

  #put(line: number, value: number): boolean {
    if (Object.is(this.#values[line], value)) return false;
    this.#values[line] = value;
    this.#lines[line] = `${this.#starts[line]}${valueText(value)}`;
    return true;
  }
}

function isSame(a: PageLabels, b: PageLabels): boolean {
  for (const name in b) if (a[name] !== b[name]) return false;
  return true;
}

function valueText(value: number): string {
  if (Number.isFinite(value)) return String(value);
  return Number.isNaN(value) ? 'NaN' : value < 0 ? '-Inf' : '+Inf';
}

function escaped(text: string, isLabel: boolean = false): string {
  const plain = text.replaceAll('\\', '\\\\').replaceAll('\n', '\\n');
  return isLabel ? plain.replaceAll('"', '\\"') : plain;
}
