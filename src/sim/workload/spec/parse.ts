/**
 * Reads a v2 workload spec from YAML text (a v1 text is upgraded). What comes out is complete and consistent:
 * a spec that parses can be generated from. File access, for distributions that name a file, is the caller's.
 */

import { TierKVError } from '../../../runtime/errors.ts';
import { horizonFromInt64 } from '../../kernel/index.ts';
import { maxRequestTokens } from '../request.ts';
import { readArrival, readLength } from './distribution.ts';
import { readYaml, type SpecNode } from './reader.ts';
import { type Reading, readTraffic } from './traffic.ts';
import {
  type ActiveWindow,
  CATEGORIES,
  type ClientSpec,
  type CohortSpec,
  type InferencePerfSpec,
  type ServeGenSpec,
  type SloTargets,
  type WorkloadSpec,
} from './types.ts';
import { checkSpec } from './validate.ts';

export interface ParseOptions {
  /** Text of a file that the spec names, relative to the spec. */
  readonly readFile?: (path: string) => string;
}

const MAX_COHORT_POPULATION = 100_000;

function readWindow(node: SpecNode, reading: Reading): ActiveWindow {
  const startUs = node.integer('start_us', { min: 0 }, 0);
  const endUs = node.integer('end_us', { min: 0 }, 0);
  if (endUs <= startUs)
    throw node.error('end_us', `is ${endUs}, not after start_us ${startUs}`, 'Let the window end later');
  const traceRate = node.optionalNumber('trace_rate', { min: 0 });
  const arrival = node.has('arrival') ? readArrival(node, 'arrival', true) : undefined;
  const inputLength = readLength(node, 'input_distribution', reading.readFile);
  const outputLength = readLength(node, 'output_distribution', reading.readFile);
  node.close();
  return {
    startUs,
    endUs,
    ...(traceRate === undefined ? {} : { traceRate }),
    ...(arrival === undefined ? {} : { arrival }),
    ...(inputLength === undefined ? {} : { inputLength }),
    ...(outputLength === undefined ? {} : { outputLength }),
  };
}

function readClient(node: SpecNode, reading: Reading): ClientSpec {
  const concurrency = node.integer('concurrency', { min: 0, max: 10_000_000 }, 0);
  const traffic = readTraffic(node, reading, 'client', concurrency);
  const lifecycle = node.section('lifecycle');
  const windows = lifecycle?.list('windows').map((window) => readWindow(window, reading)) ?? [];
  if (lifecycle !== undefined && windows.length === 0) {
    throw lifecycle.error(
      'windows',
      'is empty',
      'Give it a window, or leave lifecycle out for a client that is always on',
    );
  }
  lifecycle?.close();
  const client: ClientSpec = {
    ...traffic,
    concurrency,
    thinkTimeUs: node.integer('think_time_us', { min: 0 }, 0),
    windows,
  };
  node.close();
  return client;
}

function readCohort(node: SpecNode, reading: Reading): CohortSpec {
  const traffic = readTraffic(node, reading, 'cohort', 0);
  const population = node.integer('population', { min: 1, max: MAX_COHORT_POPULATION }, 0);
  if (population === 0)
    throw node.error('population', 'is missing', `Set it to an integer from 1 to ${MAX_COHORT_POPULATION}`);
  const sharing = node.choice('prefix_sharing', ['', 'shared', 'per_member'], '');
  if (sharing === 'per_member' && traffic.prefixGroup === '') {
    throw node.error(
      'prefix_sharing',
      'has no prefix_group',
      'Name the group that each member gets a copy of',
    );
  }
  const diurnal = node.section('diurnal');
  const spike = node.section('spike');
  const drain = node.section('drain');
  const spikeRate = spike?.optionalNumber('trace_rate', { above: 0 });
  const cohort: CohortSpec = {
    ...traffic,
    population,
    prefixSharing: sharing === 'per_member' ? 'per_member' : 'shared',
    ...(diurnal === undefined
      ? {}
      : {
          diurnal: {
            peakHour: diurnal.integer('peak_hour', { min: 0, max: 23 }, 0),
            peakToTroughRatio: requiredNumber(diurnal, 'peak_to_trough_ratio', { min: 1 }),
          },
        }),
    ...(spike === undefined
      ? {}
      : {
          spike: {
            startUs: spike.integer('start_time_us', { min: 0 }, 0),
            durationUs: requiredNumber(spike, 'duration_us', { min: 1 }),
            ...(spikeRate === undefined ? {} : { traceRate: spikeRate }),
          },
        }),
    ...(drain === undefined
      ? {}
      : {
          drain: {
            startUs: drain.integer('start_time_us', { min: 0 }, 0),
            rampDurationUs: requiredNumber(drain, 'ramp_duration_us', { min: 1 }),
          },
        }),
  };
  for (const section of [diurnal, spike, drain, node]) section?.close();
  return cohort;
}

function requiredNumber(
  node: SpecNode,
  key: string,
  range: { min?: number; above?: number; max?: number },
): number {
  const value =
    key.endsWith('_us') || key.startsWith('num_') || key.endsWith('_len') || key === 'duration'
      ? node.optionalInteger(key, range)
      : node.optionalNumber(key, range);
  if (value === undefined) throw node.error(key, 'is missing', 'Set it');
  return value;
}

function readInferencePerf(node: SpecNode): InferencePerfSpec {
  const stages = node.list('stages').map((stage) => {
    const read = {
      rate: requiredNumber(stage, 'rate', { above: 0 }),
      durationS: requiredNumber(stage, 'duration', { min: 1 }),
    };
    stage.close();
    return read;
  });
  if (stages.length === 0)
    throw node.error('stages', 'is empty', 'Give at least one stage with rate and duration');
  const shared = node.section('shared_prefix');
  if (shared === undefined)
    throw node.error('shared_prefix', 'is missing', 'Say how many prompts and users there are');
  const count = { min: 1, max: 1_000_000 };
  const tokens = { min: 0, max: maxRequestTokens };
  const spec: InferencePerfSpec = {
    stages,
    systemPrompts: requiredNumber(shared, 'num_unique_system_prompts', count),
    usersPerPrompt: requiredNumber(shared, 'num_users_per_system_prompt', count),
    systemPromptTokens: shared.integer('system_prompt_len', tokens, 0),
    questionTokens: shared.integer('question_len', tokens, 0),
    outputTokens: shared.integer('output_len', tokens, 0),
    multiTurn: shared.flag('enable_multi_turn_chat') ?? false,
  };
  shared.close();
  node.close();
  return spec;
}

function readServeGen(node: SpecNode): ServeGenSpec {
  const spec: ServeGenSpec = {
    path: node.text('path'),
    windowDurationS: node.integer('window_duration_secs', { min: 0, max: 86_400 }, 0) || 600,
    drainTimeoutS: node.integer('drain_timeout_secs', { min: 0, max: 86_400 }, 180),
    timeWindow: node.choice('time_window', ['', 'midnight', 'morning', 'afternoon'], ''),
    spanStartS: node.integer('span_start', { min: 0 }, 0),
    spanEndS: node.integer('span_end', { min: 0 }, 0),
  };
  if (spec.path === '') throw node.error('path', 'is missing', 'Name the folder with the chunk files');
  node.close();
  return spec;
}

function readTargets(root: SpecNode): Record<string, SloTargets> {
  const section = root.section('goodput_slo_targets');
  const targets: Record<string, SloTargets> = {};
  for (const name of section?.keys() ?? []) {
    const one = section!.section(name);
    const ttftMs = one?.optionalNumber('ttft_ms', { min: 0 });
    const itlMs = one?.optionalNumber('itl_ms', { min: 0 });
    const e2eMs = one?.optionalNumber('e2e_ms', { min: 0 });
    one?.close();
    targets[name] = {
      ...(ttftMs === undefined ? {} : { ttftMs }),
      ...(itlMs === undefined ? {} : { itlMs }),
      ...(e2eMs === undefined ? {} : { e2eMs }),
    };
  }
  return targets;
}

/**
 * Reads and checks a workload spec.
 * @param file the name that errors show.
 * @throws {TierKVError} TKV_INPUT with file, line, path of the key and a remedy.
 */
export function parseWorkloadSpec(text: string, file: string, options: ParseOptions = {}): WorkloadSpec {
  return readWorkloadSpec(readYaml(text, file), file, options);
}

/** A spec that is a part of another file. @throws {TierKVError} as `parseWorkloadSpec` */
export function readWorkloadSpec(root: SpecNode, file: string, options: ParseOptions = {}): WorkloadSpec {
  const version = root.choice('version', ['', '1', '2'], '');
  const reading: Reading = {
    version1: version !== '2',
    readFile:
      options.readFile ??
      ((path) => {
        throw new TierKVError(
          'TKV_INPUT',
          `${file}: names the file ${path}, which cannot be read here. Write its bins as params`,
          {
            path: file,
          },
        );
      }),
  };
  const servegen = root.section('servegen_data');
  const inferencePerf = root.section('inference_perf');
  const spec: WorkloadSpec = {
    seed: root.int64('seed', 0n),
    category: root.choice('category', CATEGORIES, ''),
    aggregateRate: root.number('aggregate_rate', { min: 0 }, 0),
    horizonUs: horizonOf(root),
    numRequests: root.integer('num_requests', { min: 0 }, 0),
    goodputSloTargets: readTargets(root),
    clients: root.list('clients').map((client) => readClient(client, reading)),
    cohorts: root.list('cohorts').map((cohort) => readCohort(cohort, reading)),
    ...(servegen === undefined ? {} : { servegen: readServeGen(servegen) }),
    ...(inferencePerf === undefined ? {} : { inferencePerf: readInferencePerf(inferencePerf) }),
  };
  root.close();
  checkSpec(spec, (field, problem, remedy) => root.error(field, problem, remedy));
  return spec;
}

/** 0 and absent mean none. */
function horizonOf(root: SpecNode): number {
  const ticks = root.int64('horizon', 0n);
  if (ticks < 0n)
    throw root.error('horizon', `is ${ticks}`, 'Set it to microseconds of at least 1, or leave it out');
  return ticks === 0n ? Infinity : horizonFromInt64('horizon', ticks);
}
