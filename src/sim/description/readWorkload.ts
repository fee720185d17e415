/**
 * Reads a v2 workload spec from YAML text (a v1 text is upgraded). What comes out is complete and consistent:
 * a spec that parses can be generated from. File access, for distributions that name a file, is the caller's.
 */

import { TierKVError } from '../../runtime/errors.ts';
import * as is from '../../runtime/kinds.ts';
import { checkInputs, type Kinds, optionTable } from '../../runtime/options.ts';
import { horizonFromInt64 } from '../kernel/clock.ts';
import type { LengthSpec } from '../random/samplers.ts';
import { maxRequestTokens } from '../workload/request.ts';
import { readAdditions, readCancellation } from './additions.ts';
import { readArrival, readLength } from './distribution.ts';
import { readYaml, type SpecNode } from './fields.ts';
import {
  type ActiveWindow,
  type AdditionsSpec,
  CATEGORIES,
  type ClientSpec,
  type CohortSpec,
  type InferencePerfSpec,
  type ModalitySpec,
  type MultimodalSpec,
  type ReasoningSpec,
  type ServeGenSpec,
  SLO_CLASSES,
  type SloClass,
  type SloTargets,
  type TrafficSpec,
  type WorkloadSpec,
} from './workloadSpec.ts';

interface ParseOptions {
  /** Text of a file that the spec names, relative to the spec. */
  readonly readFile?: (path: string) => string;
}

const parseOptionsTable = optionTable({ readFile: is.optional(is.func()) } satisfies Kinds<ParseOptions>);

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
  const targets = new Map<string, SloTargets>();
  for (const name of section?.keys() ?? []) {
    const one = section!.section(name);
    const ttftMs = one?.optionalNumber('ttft_ms', { min: 0 });
    const itlMs = one?.optionalNumber('itl_ms', { min: 0 });
    const e2eMs = one?.optionalNumber('e2e_ms', { min: 0 });
    one?.close();
    targets.set(name, {
      ...(ttftMs === undefined ? {} : { ttftMs }),
      ...(itlMs === undefined ? {} : { itlMs }),
      ...(e2eMs === undefined ? {} : { e2eMs }),
    });
  }
  return Object.fromEntries(targets);
}

/**
 * Reads and checks a workload spec.
 * @param file the name that errors show.
 * @throws {TierKVError} TKV_INPUT with file, line, path of the key and a remedy.
 */
export function parseWorkloadSpec(text: string, file: string, options: ParseOptions = {}): WorkloadSpec {
  checkInputs(
    { text, file, options },
    { text: is.text(), file: is.name(), options: is.optional(is.object()) },
  );
  parseOptionsTable.read(options);
  return readWorkloadSpec(readYaml(text, file), file, options);
}

/** A spec that is a part of another file. @throws {TierKVError} as `parseWorkloadSpec` */
export function readWorkloadSpec(root: SpecNode, file: string, options: ParseOptions = {}): WorkloadSpec {
  checkInputs(
    { root, file, options },
    { root: is.fields({ error: is.func() }), file: is.name(), options: is.optional(is.object()) },
  );
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

// Rules between the parts of a spec: one source of traffic, a rate wherever one is needed, service classes for all or
// for none. Checks of single values are the reader's.

type Fail = (field: string, problem: string, remedy: string) => TierKVError;

function checkSpec(spec: WorkloadSpec, fail: Fail): void {
  checkSources(spec, fail);
  checkRates(spec, fail);
  checkClasses(spec, fail);
  checkLoops(spec, fail);
  checkAdditions(spec, fail);
}

/** Windows with parameters of their own are drawn as a whole, where behaviour and prefixes have no place. */
function checkAdditions(spec: WorkloadSpec, fail: Fail): void {
  const drawnWhole =
    spec.clients.some(({ windows }) =>
      windows.some(
        ({ traceRate, arrival, inputLength, outputLength }) =>
          traceRate !== undefined ||
          arrival !== undefined ||
          inputLength !== undefined ||
          outputLength !== undefined,
      ),
    ) || spec.cohorts.some(({ spike }) => spike?.traceRate !== undefined);
  const added = [...spec.clients, ...spec.cohorts].find(
    ({ walk, behavior, prefixes, correlation }) => walk ?? behavior ?? prefixes ?? correlation,
  );
  if (!drawnWhole || added === undefined) return;
  throw fail(
    'clients',
    'have windows with parameters of their own beside session, behavior, prefixes or correlation ' +
      `("${added.id}")`,
    'Put them into two specs',
  );
}

function checkSources(spec: WorkloadSpec, fail: Fail): void {
  const sources = [
    spec.clients.length > 0 || spec.cohorts.length > 0 ? 'clients' : '',
    spec.servegen === undefined ? '' : 'servegen_data',
    spec.inferencePerf === undefined ? '' : 'inference_perf',
  ].filter((name) => name !== '');
  if (sources.length === 0)
    throw fail('clients', 'is empty', 'Give a client, a cohort, inference_perf or servegen_data');
  if (
    sources.length > 1 &&
    !(sources.length === 2 && spec.clients.length === 0 && spec.inferencePerf !== undefined)
  ) {
    throw fail(sources[1], `excludes ${sources[0]}`, 'Keep one of them');
  }
}

function checkRates(spec: WorkloadSpec, fail: Fail): void {
  if (spec.aggregateRate > 0 || spec.inferencePerf !== undefined || spec.servegen !== undefined) return;
  spec.clients.forEach((client, i) => {
    if (client.concurrency > 0) return;
    const silent = client.windows.findIndex((window) => window.traceRate === undefined);
    if (client.windows.length > 0 && silent < 0) return;
    const where =
      client.windows.length === 0 ? `clients[${i}]` : `clients[${i}].lifecycle.windows[${silent}]`;
    throw fail(
      'aggregate_rate',
      `is 0 and ${where} has no trace_rate`,
      'Set aggregate_rate above 0, or a trace_rate in every window',
    );
  });
  spec.cohorts.forEach((cohort, i) => {
    if (cohort.spike?.traceRate !== undefined && cohort.diurnal === undefined && cohort.drain === undefined)
      return;
    throw fail(
      'aggregate_rate',
      `is 0 and cohorts[${i}] is more than a spike with trace_rate`,
      'Set aggregate_rate above 0, or give the cohort one spike with trace_rate',
    );
  });
}

function checkClasses(spec: WorkloadSpec, fail: Fail): void {
  const named = [
    ...spec.clients.map((client, i) => [`clients[${i}]`, client.sloClass] as const),
    ...spec.cohorts.map((cohort, i) => [`cohorts[${i}]`, cohort.sloClass] as const),
  ];
  const without = named.find(([, sloClass]) => sloClass === '');
  const withClass = named.find(([, sloClass]) => sloClass !== '');
  if (without === undefined || withClass === undefined) return;
  throw fail(
    `${without[0].split('[')[0]}`,
    `mixes: ${without[0]} has no slo_class but ${withClass[0]} has one`,
    'Set slo_class everywhere or nowhere',
  );
}

function checkLoops(spec: WorkloadSpec, fail: Fail): void {
  const concurrent = spec.clients.findIndex((client) => client.concurrency > 0);
  const turns = [...spec.clients, ...spec.cohorts].find((one) => one.reasoning?.multiTurn !== undefined);
  if (concurrent < 0 || turns === undefined) return;
  throw fail(
    'clients',
    `mixes concurrency (clients[${concurrent}]) with multi-turn ("${turns.id}")`,
    'Put them into two specs',
  );
}

// Reading what clients and cohorts have in common: lengths, arrivals, prefixes, conversations, modalities,
// deadlines.

const V1_CLASSES: Readonly<Record<string, SloClass>> = { realtime: 'critical', interactive: 'standard' };

/** Facts of the whole spec that reading a part needs. */
interface Reading {
  readonly version1: boolean;
  readonly readFile: (path: string) => string;
}

function requiredLength(node: SpecNode, key: string, reading: Reading): TrafficSpec['inputLength'] {
  const length = readLength(node, key, reading.readFile);
  if (length === undefined) throw node.error(key, 'is missing', 'Give it a type and params');
  return length;
}

/** A session says the lengths of its first request; elsewhere the client does, or its archetype. */
function lengthOf(
  node: SpecNode,
  key: string,
  reading: Reading,
  known: LengthSpec | undefined,
  { walk }: AdditionsSpec,
): LengthSpec {
  if (known === undefined) return requiredLength(node, key, reading);
  const own = readLength(node, key, reading.readFile);
  return walk === undefined ? (own ?? known) : known;
}

function readSloClass(node: SpecNode, upgrade: boolean): SloClass {
  const given = node.text('slo_class');
  const renamed = upgrade && Object.hasOwn(V1_CLASSES, given) ? V1_CLASSES[given] : undefined;
  return renamed ?? node.choice('slo_class', SLO_CLASSES, '');
}

function readReasoning(node: SpecNode, reading: Reading): ReasoningSpec | undefined {
  const section = node.section('reasoning');
  if (section === undefined) return undefined;
  const ratioSection = section.section('reason_ratio_distribution');
  const blank = ratioSection === undefined || ratioSection.text('type') === '';
  const reasonRatio = blank ? undefined : readLength(section, 'reason_ratio_distribution', reading.readFile);
  const turns = section.section('multi_turn');
  const multiTurn =
    turns === undefined
      ? undefined
      : {
          maxRounds: turns.integer('max_rounds', { min: 1, max: 1_000_000 }, 0),
          thinkTimeUs: turns.integer('think_time_us', { min: 0 }, 0),
          accumulate: turns.choice('context_growth', ['', 'accumulate'], '') === 'accumulate',
          singleSession: turns.flag('single_session') ?? false,
        };
  if (multiTurn?.maxRounds === 0) throw turns!.error('max_rounds', 'is missing', 'Set it to at least 1');
  turns?.close();
  section.close();
  return {
    ...(reasonRatio === undefined ? {} : { reasonRatio }),
    ...(multiTurn === undefined ? {} : { multiTurn }),
  };
}

function readMultimodal(node: SpecNode, reading: Reading): MultimodalSpec | undefined {
  const section = node.section('multimodal');
  if (section === undefined) return undefined;
  const modality = (name: string): ModalitySpec | undefined => {
    const length = readLength(section, `${name}_distribution`, reading.readFile);
    const count = readLength(section, `${name}_count_distribution`, reading.readFile);
    return length === undefined || count === undefined ? undefined : { length, count };
  };
  const text = readLength(section, 'text_distribution', reading.readFile);
  const image = modality('image');
  const audio = modality('audio');
  const video = modality('video');
  section.close();
  return {
    ...(text === undefined ? {} : { text }),
    ...(image === undefined ? {} : { image }),
    ...(audio === undefined ? {} : { audio }),
    ...(video === undefined ? {} : { video }),
  };
}

function readTraffic(
  node: SpecNode,
  reading: Reading,
  kind: 'client' | 'cohort',
  concurrency: number,
): TrafficSpec {
  const prefixGroup = node.text('prefix_group');
  const prefixLength = node.integer('prefix_length', { min: 0, max: maxRequestTokens }, 0);
  if (prefixGroup === '' && prefixLength > 0) {
    throw node.error(
      'prefix_length',
      'has no prefix_group',
      'Name the group whose members share these tokens',
    );
  }
  const network = node.section('network');
  const more = readAdditions(node, reading.readFile, concurrency);
  const reasoning = readReasoning(node, reading) ?? more.reasoning;
  const multimodal = readMultimodal(node, reading);
  const timeoutUs = node.optionalInteger('timeout', { min: 0 });
  const closedLoop = node.flag('closed_loop');
  const rateFraction = node.number('rate_fraction', { min: 0 }, concurrency > 0 ? 0 : Number.NaN);
  if (concurrency > 0 && rateFraction > 0) {
    throw node.error('rate_fraction', 'excludes concurrency', 'Keep one of them');
  }
  if (concurrency === 0 && rateFraction === 0) {
    throw node.error('rate_fraction', 'is 0', `Give this ${kind} a share above 0`);
  }
  if (Number.isNaN(rateFraction)) {
    throw node.error(
      'rate_fraction',
      'is missing',
      `Give this ${kind} a share of the aggregate rate above 0`,
    );
  }
  const traffic: TrafficSpec = {
    id: node.text('id'),
    tenantId: node.text('tenant_id'),
    sloClass: readSloClass(node, reading.version1 && kind === 'client'),
    model: node.text('model'),
    adapter: node.text('adapter'),
    rateFraction,
    arrival: readArrival(node, 'arrival', concurrency === 0),
    inputLength: lengthOf(node, 'input_distribution', reading, more.inputLength, more.additions),
    outputLength: lengthOf(node, 'output_distribution', reading, more.outputLength, more.additions),
    prefixGroup,
    prefixLength,
    streaming: node.flag('streaming') ?? false,
    sloTargetUs: node.integer('slo_target_us', { min: 0 }, 0),
    ...(network === undefined
      ? {}
      : {
          network: {
            rttMs: network.number('rtt_ms', { min: 0 }, 0),
            bandwidthMbps: network.number('bandwidth_mbps', { min: 0 }, 0),
          },
        }),
    ...(reasoning === undefined ? {} : { reasoning }),
    ...(multimodal === undefined ? {} : { multimodal }),
    ...(timeoutUs === undefined ? {} : { timeoutUs }),
    ...(closedLoop === undefined ? {} : { closedLoop }),
    ...more.additions,
  };
  network?.close();
  const cancellation = readCancellation(node, reading.readFile);
  return cancellation === undefined ? traffic : { ...traffic, cancellation };
}
