/** Writing a spec as YAML that reads back as the same spec, for the converters. */

import { stringify } from 'yaml';
import * as is from '../../runtime/kinds.ts';
import { checkInputs } from '../../runtime/options.ts';
import type { ArrivalSpec, LengthSpec } from '../random/samplers.ts';
import type {
  ActiveWindow,
  AdditionsSpec,
  ClientSpec,
  CohortSpec,
  ModalitySpec,
  TrafficSpec,
  WalkSpec,
  WorkloadSpec,
} from './workloadSpec.ts';

type Plain = { [key: string]: unknown };

/** An object without the keys whose value is undefined. */
function compact(fields: Plain): Plain {
  return Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined));
}

const named = (text: string): string | undefined => (text === '' ? undefined : text);
const positive = (value: number): number | undefined => (value > 0 ? value : undefined);

function lengthOut(spec: LengthSpec): Plain {
  if (spec.type === 'empirical') {
    return {
      type: spec.type,
      params: Object.fromEntries(spec.bins.map(([tokens, weight]) => [String(tokens), weight])),
    };
  }
  const { type, ...params } = spec;
  return { type, params };
}

const maybeLength = (spec: LengthSpec | undefined): Plain | undefined =>
  spec === undefined ? undefined : lengthOut(spec);
const arrivalOut = (spec: ArrivalSpec): Plain => ({ ...spec });

function windowOut(window: ActiveWindow): Plain {
  return compact({
    start_us: window.startUs,
    end_us: window.endUs,
    trace_rate: window.traceRate,
    arrival: window.arrival === undefined ? undefined : arrivalOut(window.arrival),
    input_distribution: maybeLength(window.inputLength),
    output_distribution: maybeLength(window.outputLength),
  });
}

function modalities(spec: TrafficSpec): Plain | undefined {
  const { multimodal } = spec;
  if (multimodal === undefined) return undefined;
  const pair = (name: string, modality: ModalitySpec | undefined): Plain => ({
    [`${name}_distribution`]: maybeLength(modality?.length),
    [`${name}_count_distribution`]: maybeLength(modality?.count),
  });
  return compact({
    text_distribution: maybeLength(multimodal.text),
    ...pair('image', multimodal.image),
    ...pair('audio', multimodal.audio),
    ...pair('video', multimodal.video),
  });
}

function reasoningOut(spec: TrafficSpec): Plain | undefined {
  const { reasoning } = spec;
  if (reasoning === undefined) return undefined;
  const turns = reasoning.multiTurn;
  return compact({
    reason_ratio_distribution: maybeLength(reasoning.reasonRatio),
    multi_turn:
      turns === undefined
        ? undefined
        : compact({
            max_rounds: turns.maxRounds,
            think_time_us: turns.thinkTimeUs,
            context_growth: turns.accumulate ? 'accumulate' : '',
            single_session: turns.singleSession || undefined,
          }),
  });
}

function trafficOut(spec: TrafficSpec): Plain {
  return {
    id: spec.id,
    tenant_id: named(spec.tenantId),
    slo_class: named(spec.sloClass),
    model: named(spec.model),
    adapter: named(spec.adapter),
    rate_fraction: positive(spec.rateFraction),
    arrival: arrivalOut(spec.arrival),
    input_distribution: lengthOut(spec.inputLength),
    output_distribution: lengthOut(spec.outputLength),
    prefix_group: named(spec.prefixGroup),
    prefix_length: positive(spec.prefixLength),
    streaming: spec.streaming || undefined,
    network:
      spec.network === undefined
        ? undefined
        : compact({ rtt_ms: spec.network.rttMs, bandwidth_mbps: positive(spec.network.bandwidthMbps) }),
    multimodal: modalities(spec),
    reasoning: spec.walk === undefined ? reasoningOut(spec) : undefined,
    timeout: spec.timeoutUs,
    slo_target_us: positive(spec.sloTargetUs),
    closed_loop: spec.closedLoop,
    ...additionsOut(spec, lengthOut),
  };
}

function clientOut(client: ClientSpec): Plain {
  return compact({
    ...trafficOut(client),
    concurrency: positive(client.concurrency),
    think_time_us: positive(client.thinkTimeUs),
    lifecycle: client.windows.length === 0 ? undefined : { windows: client.windows.map(windowOut) },
  });
}

function cohortOut(cohort: CohortSpec): Plain {
  const { diurnal, spike, drain } = cohort;
  return compact({
    ...trafficOut(cohort),
    population: cohort.population,
    prefix_sharing: cohort.prefixSharing === 'per_member' ? 'per_member' : undefined,
    diurnal:
      diurnal === undefined
        ? undefined
        : { peak_hour: diurnal.peakHour, peak_to_trough_ratio: diurnal.peakToTroughRatio },
    spike:
      spike === undefined
        ? undefined
        : compact({
            start_time_us: spike.startUs,
            duration_us: spike.durationUs,
            trace_rate: spike.traceRate,
          }),
    drain:
      drain === undefined
        ? undefined
        : { start_time_us: drain.startUs, ramp_duration_us: drain.rampDurationUs },
  });
}

/**
 * YAML text of a spec. Arrivals that only an expansion can express (`ownArrivals`) are written as their
 * process.
 */
export function formatWorkloadSpec(spec: WorkloadSpec): string {
  checkInputs({ spec }, { spec: is.fields({ seed: is.bigint(), category: is.text() }) });
  const perf = spec.inferencePerf;
  const targets = Object.entries(spec.goodputSloTargets);
  return stringify(
    compact({
      version: '2',
      seed: spec.seed,
      category: named(spec.category),
      aggregate_rate: spec.aggregateRate,
      horizon: Number.isFinite(spec.horizonUs) ? spec.horizonUs : undefined,
      num_requests: positive(spec.numRequests),
      goodput_slo_targets:
        targets.length === 0
          ? undefined
          : Object.fromEntries(
              targets.map(([name, one]) => [
                name,
                compact({ ttft_ms: one.ttftMs, itl_ms: one.itlMs, e2e_ms: one.e2eMs }),
              ]),
            ),
      servegen_data:
        spec.servegen === undefined
          ? undefined
          : {
              path: spec.servegen.path,
              window_duration_secs: spec.servegen.windowDurationS,
              drain_timeout_secs: spec.servegen.drainTimeoutS,
            },
      inference_perf:
        perf === undefined
          ? undefined
          : {
              stages: perf.stages.map((stage) => ({ rate: stage.rate, duration: stage.durationS })),
              shared_prefix: {
                num_unique_system_prompts: perf.systemPrompts,
                num_users_per_system_prompt: perf.usersPerPrompt,
                system_prompt_len: perf.systemPromptTokens,
                question_len: perf.questionTokens,
                output_len: perf.outputTokens,
                enable_multi_turn_chat: perf.multiTurn,
              },
            },
      clients: spec.clients.length === 0 ? undefined : spec.clients.map(clientOut),
      cohorts: spec.cohorts.length === 0 ? undefined : spec.cohorts.map(cohortOut),
    }),
    { lineWidth: 0, aliasDuplicateObjects: false },
  );
}

// Writes what a client has beyond upstream's keys, so that it reads back as the same.

type AdditionFields = { [key: string]: unknown };
type LengthOut = (spec: LengthSpec) => AdditionFields;

function walkOut(walk: WalkSpec, lengthOut: LengthOut): AdditionFields {
  const { growth, contextLimit, maxRounds, rounds, promptGrowthRate, decodeVariation } = walk;
  return {
    markov: {
      ...(rounds === undefined ? {} : { rounds: lengthOut(rounds) }),
      states: walk.states.map(({ name, inputLength, outputLength, pauseMs, next }) => ({
        name,
        input_distribution: lengthOut(inputLength),
        output_distribution: lengthOut(outputLength),
        ...(pauseMs === undefined ? {} : { pause_ms: lengthOut(pauseMs) }),
        next,
      })),
    },
    max_rounds: maxRounds,
    context_growth: growth,
    ...(growth === 'bounded' ? { context_limit: contextLimit } : {}),
    ...(promptGrowthRate === 0 ? {} : { prompt_growth_rate: promptGrowthRate }),
    ...(decodeVariation === 0 ? {} : { decode_variation: decodeVariation }),
  };
}

function additionsOut(spec: AdditionsSpec, lengthOut: LengthOut): AdditionFields {
  const { walk, behavior, prefixes, correlation, cancellation } = spec;
  const { burst, oversized, synchronised } = behavior ?? {};
  return {
    session: walk === undefined ? undefined : walkOut(walk, lengthOut),
    behavior:
      behavior === undefined
        ? undefined
        : {
            ...(burst === undefined
              ? {}
              : {
                  burst: {
                    probability: burst.probability,
                    size: burst.size,
                    interval_us: burst.intervalUs,
                  },
                }),
            ...(oversized === undefined ? {} : { oversized }),
            ...(synchronised === undefined
              ? {}
              : { synchronised: { every_us: synchronised.everyUs, size: synchronised.size } }),
          },
    prefixes:
      prefixes === undefined
        ? undefined
        : {
            reuse_probability: prefixes.reuseProbability,
            groups: prefixes.groups.map(({ id, tokens, popularity }) => ({ id, length: tokens, popularity })),
          },
    correlation: correlation === undefined ? undefined : { burst_size: correlation.burstSize },
    cancellation:
      cancellation === undefined
        ? undefined
        : { share: cancellation.share, delay_ms: lengthOut(cancellation.delayMs) },
  };
}
