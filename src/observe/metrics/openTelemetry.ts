/**
 * The metrics and the spans of requests, told to OpenTelemetry by its API alone (an optional peer): which SDK collects
 * them, and where they go, is the server's choice. Names are OpenTelemetry's where its conventions for generative models
 * have one (`gen_ai.server.*`, `gen_ai.usage.*`), else `tierkv.*`.
 *
 *     tierkv.request ---- tierkv.lookup | tierkv.wait_for_room | tierkv.load of each tier | tierkv.prefill | tierkv.decode
 *
 * A span is made when its request has ended, with the times that it had, below the span that was active when the request
 * came in.
 */

import type { Attributes, Context, Meter, Tracer } from '@opentelemetry/api';
import { packageVersion } from '../../packageFiles.ts';
import * as is from '../../runtime/kinds.ts';
import { checkInputs, type Kinds, optionTable } from '../../runtime/options.ts';
import { ValueHistogram } from './histogram.ts';
import { type MeasuredMetric, type MetricSource, requireWatched } from './metric.ts';
import { importPeer } from './peer.ts';
import type { RequestMoments } from './requestMeasures.ts';
import { RuntimeWatch } from './watch.ts';

/** Options of `openTelemetry`: meter, tracer and attributes. */
export interface OpenTelemetryOptions {
  /** Default: the meter `tierkv` of the global provider. `false`: no metrics. */
  readonly meter?: Meter | false | undefined;
  /** Default: the tracer `tierkv` of the global provider. `false`: no spans. */
  readonly tracer?: Tracer | false | undefined;
  /** Attributes of every metric and span, such as `gen_ai.request.model`. Default: none. */
  readonly attributes?: Attributes | undefined;
}

const openTelemetryOptionsTable = optionTable(
  {
    meter: is.optional(is.passed()),
    tracer: is.optional(is.passed()),
    attributes: is.optional(is.passed()),
  } satisfies Kinds<OpenTelemetryOptions>,
  'TKV_CONFIG',
);

type Api = typeof import('@opentelemetry/api');

/** Names that OpenTelemetry's conventions have for what these metrics mean. */
const conventional: Readonly<Record<string, string>> = {
  'vllm:time_to_first_token_seconds': 'gen_ai.server.time_to_first_token',
  'vllm:inter_token_latency_seconds': 'gen_ai.server.time_per_output_token',
  'vllm:e2e_request_latency_seconds': 'gen_ai.server.request.duration',
};

/** The metric's name in OpenTelemetry, where units are no part of names. */
export function openTelemetryName({ name }: Pick<MeasuredMetric, 'name'>): string {
  const bare = name.replace(/^(vllm:|tierkv_)/, '').replace(/_(total|seconds|seconds_total)$/, '');
  return conventional[name] ?? `tierkv.${bare}`;
}

/**
 * The metrics of a runtime or a gateway, and the spans of a runtime's requests.
 * @returns what ends it
 * @throws TKV_CONFIG where `@opentelemetry/api` is not installed, and for unknown options
 */
export async function openTelemetry(
  watch: MetricSource,
  options: OpenTelemetryOptions = {},
): Promise<() => void> {
  requireWatched(watch, 'watch');
  checkInputs({ options }, { options: is.optional(is.object()) });
  const { attributes = {}, ...given } = openTelemetryOptionsTable.read(options);
  checkInputs({ attributes }, { attributes: is.object() });
  if (given.meter !== undefined && given.meter !== false) {
    checkInputs(given, { meter: is.fields({ createHistogram: is.func() }) });
  }
  if (given.tracer !== undefined && given.tracer !== false) {
    checkInputs(given, { tracer: is.fields({ startSpan: is.func() }) });
  }
  const api = await importPeer<Api>('@opentelemetry/api', 'metrics for OpenTelemetry');
  const meter = given.meter ?? api.metrics.getMeter('tierkv', packageVersion());
  const tracer = given.tracer ?? api.trace.getTracer('tierkv', packageVersion());
  const stops: (() => void)[] = [];
  if (meter !== false) {
    for (const metric of watch.measured) stops.push(tell(metric, meter, attributes));
  }
  if (tracer !== false && watch instanceof RuntimeWatch)
    stops.push(traceRequests(watch, tracer, attributes, api));
  return () => {
    for (const stop of stops.splice(0)) stop();
  };
}

function tell(metric: MeasuredMetric, meter: Meter, attributes: Attributes): () => void {
  const { help: description, unit } = metric;
  const name = openTelemetryName(metric);
  if (metric.kind === 'histogram') {
    const samples = metric.read().filter(({ value }) => value instanceof ValueHistogram);
    const [first] = samples;
    // a runtime without a device, or without a tier below, has no transfers to time
    if (first === undefined) return () => {};
    const advice = { explicitBucketBoundaries: [...(first.value as ValueHistogram).bounds] };
    const instrument = meter.createHistogram(name, { description, unit, advice });
    const stops = samples.map(({ labels, value }) => {
      const all = { ...attributes, ...labels };
      return (value as ValueHistogram).tellOf((seconds) => instrument.record(seconds, all));
    });
    return () => {
      for (const stop of stops) stop();
    };
  }
  const make = metric.kind === 'counter' ? 'createObservableCounter' : 'createObservableGauge';
  const instrument = meter[make](name, { description, unit });
  const observe = (result: { observe(value: number, attributes: Attributes): void }): void => {
    for (const { labels, value } of metric.read()) {
      if (typeof value === 'number') result.observe(value, { ...attributes, ...labels });
    }
  };
  instrument.addCallback(observe);
  return () => instrument.removeCallback(observe);
}

// Spans.

function traceRequests(watch: RuntimeWatch, tracer: Tracer, attributes: Attributes, api: Api): () => void {
  const { requests } = watch;
  requests.surroundings = () => api.context.active();
  const told = (request: Readonly<RequestMoments>): void => {
    const context = (request.surroundings as Context | undefined) ?? api.context.active();
    // the runtime's clock stands while the process does: times are counted back from now
    const offsetMs = Date.now() - request.endedUs / 1000;
    const at = (us: number): number => offsetMs + us / 1000;
    const root = tracer.startSpan(
      'tierkv.request',
      { startTime: at(request.askedUs), attributes: { ...attributes, ...attributesOf(request) } },
      context,
    );
    const inside = api.trace.setSpan(context, root);
    for (const part of partsOf(request, watch)) {
      tracer
        .startSpan(
          part.name,
          { startTime: at(part.fromUs), attributes: { ...attributes, ...part.attributes } },
          inside,
        )
        .end(at(part.toUs));
    }
    root.end(at(request.endedUs));
  };
  requests.onEnd.add(told);
  return () => {
    requests.onEnd.delete(told);
    if (requests.onEnd.size === 0) requests.surroundings = null; // another tracer may be told still
  };
}

function attributesOf({ id, promptTokens, cachedTokens, tokens, how }: Readonly<RequestMoments>): Attributes {
  return {
    ...(id === undefined ? {} : { 'tierkv.request.id': id }),
    'gen_ai.usage.input_tokens': promptTokens,
    'gen_ai.usage.cache_read.input_tokens': cachedTokens,
    'gen_ai.usage.output_tokens': tokens,
    'gen_ai.response.finish_reasons': [how],
  };
}

interface SpanPart {
  readonly name: string;
  readonly fromUs: number;
  readonly toUs: number;
  readonly attributes: Attributes;
}

/** Parts of the request one after the other; the last part ends with the request. */
function partsOf(request: Readonly<RequestMoments>, { cache }: RuntimeWatch): SpanPart[] {
  const { askedUs, hashedUs, placedUs, filledUs, prefilledUs, endedUs, story } = request;
  const parts: SpanPart[] = [];
  const add = (name: string, fromUs: number, toUs: number, attributes: Attributes = {}): void => {
    if (fromUs !== -1) parts.push({ name, fromUs, toUs: toUs === -1 ? endedUs : toUs, attributes });
  };
  add('tierkv.lookup', askedUs, hashedUs);
  add('tierkv.wait_for_room', hashedUs, placedUs);
  for (const [position, blocks] of story?.foundByTier.entries() ?? []) {
    if (position === 0 || blocks === 0) continue;
    const attributes = { 'tierkv.tier': cache.tiers[position].tier, 'tierkv.blocks': blocks };
    add('tierkv.load', placedUs, filledUs, attributes);
  }
  add('tierkv.prefill', filledUs, prefilledUs);
  add('tierkv.decode', prefilledUs, endedUs);
  return parts;
}
