/**
 * A deployment with its workload as one typed object, and its translation to options of `tierkv simulate` and back. Fields
 * that are left out have the defaults of `tierkv simulate`. An error names the field of the object.
 */

import { configError, TierKVError, unknownName } from '../runtime/errors.ts';
import { described } from '../runtime/options.ts';
import type { LatencyBackend } from '../sim/latency/latencyNames.ts';
import { type SizedTierName, sizedTierNames } from '../sim/links/machineTiers.ts';
import {
  type AskedSimulation,
  checkAsked,
  flagOf,
  hiddenRows,
  optionNameOf,
  REPEATED,
  simulateRows,
  withDefaults,
} from './optionTable.ts';

/** A length in tokens: its mean, or its distribution. */
export type LengthChoice =
  | number
  | {
      readonly mean?: number;
      readonly stdDev?: number;
      readonly min?: number;
      readonly max?: number;
    };

/** Host memory and disk of an instance: blocks, or bytes as `256GiB`; requests wait for their loads. */
type SizedTiers = { readonly [Name in SizedTierName]?: number | string };

/** A policy of the control plane by name, with its parameters. */
export interface ChosenPolicy {
  readonly policy: string;
  readonly parameters?: Readonly<Record<string, number | boolean | string>>;
}

export interface DeploymentSpec {
  /** Name with or without organisation, or the path of a config.json. Required unless `file` is given. */
  readonly model?: string;
  /** Deployment file in YAML. It replaces all fields but workload, targets, seed and end. */
  readonly file?: string;
  /** Changes to fields of that file, as `pools[0].replicas=4`. */
  readonly set?: readonly string[];
  /** A GPU by name, or the path of its file. Default: the model's, else H100. */
  readonly hardware?: string;
  /** Tensor parallel GPUs. */
  readonly tp?: number;
  /** Data parallel ranks of a mixture of experts. */
  readonly dp?: number;
  readonly latency?: {
    readonly model?: LatencyBackend;
    /** File of coefficients. */
    readonly coefficients?: string;
    /** Whether no step is shorter than the hardware needs; true unless set. */
    readonly floor?: boolean;
    /** Tokens that go to the busiest GPU of a mixture of experts, over the mean; 1 unless set. */
    readonly expertImbalance?: number;
  };
  /** Speculative decoding. */
  readonly speculation?: {
    /** Tokens that a draft proposes before each step. */
    readonly draftTokens?: number;
    /** Chance that a proposed token is accepted where those before it were. */
    readonly acceptance?: number;
    /** Model that proposes them, or the time of one proposed token in µs. */
    readonly draftModel?: string;
    readonly draftUs?: number;
  };
  readonly engine?: {
    readonly blockTokens?: number;
    /** KV in GPU memory of an instance: blocks, or bytes as `64GiB`. Default: what fits. */
    readonly kvBlocks?: number | string;
    /** LoRA adapters in GPU memory at once, their rank, and the time of loading one in µs. */
    readonly maxLoras?: number;
    readonly maxLoraRank?: number;
    readonly loraLoadUs?: number;
    /** Whether layers of a sliding window keep the whole context. */
    readonly disableHybridKvCacheManager?: boolean;
    /** Whether keys of a config.json about layers that are not known change nothing. */
    readonly assumePlainAttention?: boolean;
    /** Share of GPU memory that may be used. */
    readonly memoryUtilization?: number;
    readonly maxModelTokens?: number;
    readonly maxSequences?: number;
    readonly maxBatchedTokens?: number;
    readonly longPrefillTokens?: number;
    readonly scheduler?: string;
    readonly preemptionPolicy?: string;
    readonly preemptionMode?: string;
    readonly eviction?: string;
  };
  /** Tiers below GPU memory. */
  readonly tiers?: SizedTiers & {
    /** Blocks in host memory; their loads are billed to the step. */
    readonly hostBlocks?: number;
    /** File with host and disk tiers, whose loads requests wait for. */
    readonly offloadConfig?: string;
    /** File with the server whose blocks all instances share. */
    readonly sharedTier?: string;
    /** Share of GPU memory above which cached blocks move down. */
    readonly offloadThreshold?: number;
    /** Tokens a microsecond of billed loads, and microseconds of each block. */
    readonly loadTokensPerUs?: number;
    readonly loadBaseUs?: number;
    readonly load?: 'when-faster' | 'always';
  };
  /** Instances by role; all have the same engine. */
  readonly pools?: {
    /** Instances that do all. Default 1 where no role is named. */
    readonly instances?: number;
    readonly prefill?: number;
    readonly decode?: number;
    /** Decider: which prompts are computed on a prefill instance. */
    readonly decider?: string;
  };
  readonly control?: {
    /** YAML file of policies; the other fields override it. */
    readonly policyFile?: string;
    readonly admission?: ChosenPolicy;
    readonly admissionLatencyUs?: number;
    readonly routing?: ChosenPolicy & { readonly scorers?: Readonly<Record<string, number>> };
    readonly routingLatencyUs?: number;
    /** Age in µs of what routers know of instances and of caches; 0: live. */
    readonly snapshotUs?: number;
    readonly cacheSignalUs?: number;
  };
  readonly workload?: {
    /** A preset such as `chatbot`. */
    readonly preset?: string;
    /** A specification or a recorded trace, in place of a preset. */
    readonly file?: string;
    /** Requests a second. */
    readonly rate?: number;
    /** Users in closed loop, instead of a rate, and their pause. */
    readonly concurrency?: number;
    readonly thinkTimeMs?: number;
    readonly prefixTokens?: number;
    readonly prompt?: LengthChoice;
    readonly output?: LengthChoice;
    /** Most requests. */
    readonly requests?: number;
    /** Deadline of every request in seconds. */
    readonly timeoutS?: number;
    /** Load over time, as `ramp:from=2,to=20,duration=600`. */
    readonly profile?: string;
  };
  /** Targets of goodput by class, in milliseconds. */
  readonly targets?: {
    readonly ttftMs?: Readonly<Record<string, number>>;
    readonly itlMs?: Readonly<Record<string, number>>;
    readonly e2eMs?: Readonly<Record<string, number>>;
  };
  readonly seed?: number | bigint;
  /** End of the simulation on its own clock. */
  readonly horizonUs?: number;
  /** Options of `tierkv simulate` that no field above has, by their names in camel case. */
  readonly options?: Readonly<Record<string, string | number | boolean>>;
}

/** Turns the value of a field into the value of an option. */
type Write = (value: unknown) => string | boolean;

const plain: Write = (value) => (typeof value === 'boolean' ? value : String(value));
const pairs =
  (between: string, unit = ''): Write =>
  (value) =>
    Object.entries(value as object)
      .map(([name, each]) => `${name}${between}${each}${unit}`)
      .join(',');
const parameters = pairs('=');
const targets = pairs('=', 'ms');
const scorers = pairs(':');
const lines: Write = (value) => (value as readonly string[]).join('\n');

/** Each field by its path, with the option that it sets. */
const fields: Readonly<Record<string, readonly [option: string, write?: Write]>> = {
  model: ['model'],
  file: ['deployment'],
  set: ['set', lines],
  hardware: ['hardware'],
  tp: ['tp'],
  dp: ['dp'],
  'latency.model': ['latencyModel'],
  'latency.coefficients': ['coefficients'],
  'latency.floor': ['floor'],
  'engine.blockTokens': ['blockSizeInTokens'],
  'engine.kvBlocks': ['totalKvBlocks'],
  'engine.disableHybridKvCacheManager': ['disableHybridKvCacheManager'],
  'engine.assumePlainAttention': ['assumePlainAttention'],
  'latency.expertImbalance': ['expertImbalance'],
  'speculation.draftTokens': ['numSpeculativeTokens'],
  'speculation.acceptance': ['speculativeAcceptance'],
  'speculation.draftModel': ['speculativeDraftModel'],
  'speculation.draftUs': ['speculativeDraftUs'],
  'engine.maxLoras': ['maxLoras'],
  'engine.maxLoraRank': ['maxLoraRank'],
  'engine.loraLoadUs': ['loraLoadUs'],
  'engine.memoryUtilization': ['gpuMemoryUtilization'],
  'engine.maxModelTokens': ['maxModelLen'],
  'engine.maxSequences': ['maxNumSeqs'],
  'engine.maxBatchedTokens': ['maxNumBatchedTokens'],
  'engine.longPrefillTokens': ['longPrefillTokenThreshold'],
  'engine.scheduler': ['scheduler'],
  'engine.preemptionPolicy': ['preemptionPolicy'],
  'engine.preemptionMode': ['preemptionMode'],
  'engine.eviction': ['eviction'],
  ...Object.fromEntries(sizedTierNames.map((name) => [`tiers.${name}`, [name] as const])),
  'tiers.hostBlocks': ['kvCpuBlocks'],
  'tiers.offloadConfig': ['kvOffloadConfig'],
  'tiers.sharedTier': ['sharedTier'],
  'tiers.offloadThreshold': ['kvOffloadThreshold'],
  'tiers.loadTokensPerUs': ['kvTransferBandwidth'],
  'tiers.loadBaseUs': ['kvTransferBaseLatency'],
  'tiers.load': ['kvLoad'],
  'pools.instances': ['prefillDecodeInstances'],
  'pools.prefill': ['prefillInstances'],
  'pools.decode': ['decodeInstances'],
  'pools.decider': ['pdDecider'],
  'control.policyFile': ['policyConfig'],
  'control.admission.policy': ['admissionPolicy'],
  'control.admission.parameters': ['admissionParameters', parameters],
  'control.admissionLatencyUs': ['admissionLatency'],
  'control.routing.policy': ['routingPolicy'],
  'control.routing.parameters': ['routingParameters', parameters],
  'control.routing.scorers': ['routingScorers', scorers],
  'control.routingLatencyUs': ['routingLatency'],
  'control.snapshotUs': ['snapshotRefreshInterval'],
  'control.cacheSignalUs': ['cacheSignalDelay'],
  'workload.preset': ['workload'],
  'workload.file': ['workloadSpec'],
  'workload.rate': ['rate'],
  'workload.concurrency': ['concurrency'],
  'workload.thinkTimeMs': ['thinkTimeMs'],
  'workload.prefixTokens': ['prefixTokens'],
  'workload.prompt': ['promptTokens'],
  'workload.prompt.mean': ['promptTokens'],
  'workload.prompt.stdDev': ['promptTokensStdev'],
  'workload.prompt.min': ['promptTokensMin'],
  'workload.prompt.max': ['promptTokensMax'],
  'workload.output': ['outputTokens'],
  'workload.output.mean': ['outputTokens'],
  'workload.output.stdDev': ['outputTokensStdev'],
  'workload.output.min': ['outputTokensMin'],
  'workload.output.max': ['outputTokensMax'],
  'workload.requests': ['numRequests'],
  'workload.timeoutS': ['timeout'],
  'workload.profile': ['profile'],
  'targets.ttftMs': ['sloTtft', targets],
  'targets.itlMs': ['sloItl', targets],
  'targets.e2eMs': ['sloE2e', targets],
  seed: ['seed'],
  horizonUs: ['horizon'],
};

const paths = Object.keys(fields);

type Filled = Record<string, string | boolean | undefined>;

/** Adds the options that the fields of an object set. @param path of the object in the description */
function fill(values: Filled, object: object, path: string): void {
  for (const [key, value] of Object.entries(object)) {
    if (value === undefined) continue;
    const at = path === '' ? key : `${path}.${key}`;
    const isSection = paths.some((each) => each.startsWith(`${at}.`));
    const isObject = typeof value === 'object' && value !== null && !Array.isArray(value);
    const field = Object.hasOwn(fields, at) ? fields[at] : undefined;
    if (at === 'options') fillMore(values, value);
    else if (isObject && isSection) fill(values, value, at);
    else if (field === undefined) {
      if (isSection)
        throw configError(at, `must be an object, and is ${described(value)}`, 'Give its fields.');
      throw unknownName(at, key, keysBelow(path));
    } else {
      const [option, write] = field;
      const isLines =
        write === lines && Array.isArray(value) && value.every((each) => typeof each === 'string');
      const isOne = ['string', 'number', 'boolean', 'bigint'].includes(typeof value);
      const isPairs =
        isObject &&
        Object.values(value as object).every((each) => ['string', 'number'].includes(typeof each));
      if (!(write === undefined ? isOne : write === lines ? isLines : isPairs)) {
        const wanted =
          write === undefined
            ? 'one value'
            : write === lines
              ? 'a list of texts'
              : 'an object of names and values';
        throw configError(at, `must be ${wanted}`, 'Change it.');
      }
      values[option] = (write ?? plain)(value);
    }
  }
}

const optionsByName: ReadonlyMap<string, boolean> = new Map(
  [...simulateRows, ...hiddenRows].map(([flags]) => [optionNameOf(flags), /[<[]/.test(flags)]),
);

function fillMore(values: Filled, more: unknown): void {
  if (typeof more !== 'object' || more === null || Array.isArray(more)) {
    throw configError('options', 'must be an object of names and values', 'Change it.');
  }
  for (const [name, value] of Object.entries(more)) {
    const takes = optionsByName.get(name);
    if (takes === undefined) throw unknownName(`options.${name}`, name, [...optionsByName.keys()]);
    const fits = takes ? typeof value === 'string' || typeof value === 'number' : typeof value === 'boolean';
    if (!fits) {
      throw configError(
        `options.${name}`,
        `must be ${takes ? 'a text or a number' : 'true or false'}`,
        'Change it.',
      );
    }
    if (value !== false || name === 'floor') values[name] = plain(value);
  }
}

function keysBelow(path: string): string[] {
  const start = path === '' ? '' : `${path}.`;
  const below = paths.filter((each) => each.startsWith(start));
  return [...new Set(below.map((each) => each.slice(start.length).split('.')[0]))];
}

/**
 * The options that a description sets, and their names.
 * @throws TKV_CONFIG with the field that is not known or must have another form
 */
export function writtenOf(spec: DeploymentSpec): Readonly<Record<string, string | boolean | undefined>> {
  const values: Filled = {};
  fill(values, spec, '');
  if (spec.pools === undefined) return values;
  const counts = ['prefillInstances', 'decodeInstances', 'prefillDecodeInstances'];
  const [prefill, decode, shared] = counts.map((name) => Number(values[name] ?? 0));
  if (prefill + decode > 0) values.numInstances = String(prefill + decode + shared);
  else {
    values.numInstances = spec.pools.instances === undefined ? '1' : String(values.prefillDecodeInstances);
    delete values.prefillDecodeInstances;
  }
  return values;
}

/**
 * What a description asks for.
 * @throws TKV_CONFIG with the field that is not known, must have another form, or is missing
 */
export function askedFor(spec: DeploymentSpec): AskedSimulation {
  const written = writtenOf(spec);
  if (spec.file === undefined && typeof written.model !== 'string')
    throw configError('model', 'is missing', 'Name a model.');
  return checkAsked({
    workload: undefined,
    options: withDefaults(written),
    given: new Set(Object.keys(written)),
  });
}

/** Fields of one value by the option that they set. Counts by role depend on each other, and stay options. */
const plainFields: ReadonlyMap<string, string> = new Map(
  Object.entries(fields)
    .filter(([at, [, write]]) => write === undefined && !at.startsWith('pools.'))
    .map(([at, [option]]) => [option, at]),
);

/** The value as a number where its text is a plain number. */
function typed(value: string | boolean): string | number | boolean {
  return typeof value === 'string' && String(Number(value)) === value ? Number(value) : value;
}

/**
 * The description that arguments come to: `askedFor` of it asks for the same.
 * @throws TKV_CONFIG where a workload is named twice
 */
export function descriptionOf({ workload, options, given }: AskedSimulation): DeploymentSpec {
  const spec: Record<string, unknown> = {};
  const more: Record<string, unknown> = {};
  const put = (at: string, value: unknown): void => {
    const steps = at.split('.');
    let into = spec;
    for (const step of steps.slice(0, -1)) into = (into[step] ??= {}) as Record<string, unknown>;
    into[steps[steps.length - 1]] = value;
  };
  for (const name of given) {
    const value = options[name];
    if (value === undefined) continue;
    if (name === REPEATED) {
      spec.set = String(value).split('\n');
      continue;
    }
    const at = plainFields.get(name);
    if (at === undefined) more[name] = typed(value);
    else put(at, name === 'seed' || name === 'model' ? value : typed(value));
  }
  if (workload !== undefined) {
    for (const name of ['workloadSpec', 'traceData']) {
      if (given.has(name)) throw configError(flagOf(name), `excludes ${workload}`, 'Keep one of them.');
    }
    put('workload.file', workload);
  }
  if (Object.keys(more).length > 0) spec.options = more;
  return spec as DeploymentSpec;
}

/** Fields by the flags that set the same, to translate messages. */
const fieldsByFlag: ReadonlyMap<string, string> = new Map([
  ...Object.entries(fields)
    .map(([at, [option]]): [string, string] => [flagOf(option), at])
    // where two fields set one option, the shorter path names it
    .reverse(),
  ['--num-instances', 'pools.instances'],
]);

/** Runs `act`. Its errors about an option name the field of the description instead. */
export function inFieldNames<T>(act: () => T): T {
  try {
    return act();
  } catch (error) {
    if (!(error instanceof TierKVError) || error.field === undefined) throw error;
    const { code, field, message } = error;
    const named = fieldsByFlag.get(field);
    if (named === undefined) throw error;
    const said = message.replace(/--[a-z][a-z0-9-]*/g, (flag) => fieldsByFlag.get(flag) ?? flag);
    throw new TierKVError(code, said, {
      field: named,
      cause: error,
      ...(error.path === undefined ? {} : { path: error.path }),
      ...(error.line === undefined ? {} : { line: error.line }),
    });
  }
}
