/**
 * A deployment with its workload as one typed object, and from there to the options that the builder reads. What a
 * field leaves out has the default of `tierkv simulate`. An error names the field of the object.
 */

import { configError, TierKVError, unknownName } from '../runtime/errors.ts';
import type { LatencyBackend } from '../sim/latency/makeModel.ts';
import { defaultOptions, flagOf, type OptionValues } from './optionTable.ts';

/** A mean length in tokens, or how lengths are spread. */
export type LengthChoice =
  | number
  | {
      readonly mean?: number;
      readonly stdDev?: number;
      readonly min?: number;
      readonly max?: number;
    };

/** A policy of the control plane by name, with its parameters. */
export interface ChosenPolicy {
  readonly policy: string;
  readonly parameters?: Readonly<Record<string, number | boolean | string>>;
}

export interface DeploymentSpec {
  /** With or without organisation, or the path of a config.json. */
  readonly model: string;
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
    /** Whether no step is shorter than the hardware needs. */
    readonly floor?: boolean;
  };
  readonly engine?: {
    readonly blockTokens?: number;
    /** Blocks in GPU memory. Default: what fits. */
    readonly kvBlocks?: number;
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
  readonly tiers?: {
    /** Blocks in host memory; their loads are billed to the step. */
    readonly hostBlocks?: number;
    /** File with host and disk tiers, whose loads requests wait for. */
    readonly offloadConfig?: string;
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
    /** Which prompts are computed elsewhere. */
    readonly decider?: string;
  };
  readonly control?: {
    /** YAML file of policies; the fields beside it go before it. */
    readonly policyFile?: string;
    readonly admission?: ChosenPolicy;
    readonly admissionLatencyUs?: number;
    readonly routing?: ChosenPolicy & { readonly scorers?: Readonly<Record<string, number>> };
    readonly routingLatencyUs?: number;
    /** Age of what routers know of instances and of caches, 0: live. */
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

/** Each field by its path, with the option that it sets. */
const fields: Readonly<Record<string, readonly [option: string, write?: Write]>> = {
  model: ['model'],
  hardware: ['hardware'],
  tp: ['tp'],
  dp: ['dp'],
  'latency.model': ['latencyModel'],
  'latency.coefficients': ['coefficients'],
  'latency.floor': ['floor'],
  'engine.blockTokens': ['blockSizeInTokens'],
  'engine.kvBlocks': ['totalKvBlocks'],
  'engine.memoryUtilization': ['gpuMemoryUtilization'],
  'engine.maxModelTokens': ['maxModelLen'],
  'engine.maxSequences': ['maxNumSeqs'],
  'engine.maxBatchedTokens': ['maxNumBatchedTokens'],
  'engine.longPrefillTokens': ['longPrefillTokenThreshold'],
  'engine.scheduler': ['scheduler'],
  'engine.preemptionPolicy': ['preemptionPolicy'],
  'engine.preemptionMode': ['preemptionMode'],
  'engine.eviction': ['eviction'],
  'tiers.hostBlocks': ['kvCpuBlocks'],
  'tiers.offloadConfig': ['kvOffloadConfig'],
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

/** Options out of the fields of an object, by its path in the description. */
function fill(values: Record<string, string | boolean | undefined>, object: object, path: string): void {
  for (const [key, value] of Object.entries(object)) {
    if (value === undefined) continue;
    const at = path === '' ? key : `${path}.${key}`;
    const isSection = paths.some((each) => each.startsWith(`${at}.`));
    const isObject = typeof value === 'object' && value !== null && !Array.isArray(value);
    const field = Object.hasOwn(fields, at) ? fields[at] : undefined;
    if (isObject && isSection) fill(values, value, at);
    else if (field === undefined) {
      if (isSection)
        throw configError(at, `must be an object, and is ${JSON.stringify(value)}`, 'Give its fields.');
      throw unknownName(at, key, keysBelow(path));
    } else {
      const [option, write] = field;
      if (isObject !== (write !== undefined) || value === null || Array.isArray(value)) {
        const wanted = write === undefined ? 'one value' : 'an object of names and values';
        throw configError(at, `must be ${wanted}`, 'Change it.');
      }
      values[option] = (write ?? plain)(value);
    }
  }
}

function keysBelow(path: string): string[] {
  const start = path === '' ? '' : `${path}.`;
  const below = paths.filter((each) => each.startsWith(start));
  return [...new Set(below.map((each) => each.slice(start.length).split('.')[0]))];
}

/**
 * Every option of a simulation as the description sets it, or with its default.
 * @throws TKV_CONFIG with the field that is not known or must have another form
 */
export function optionsOf(spec: DeploymentSpec): OptionValues {
  const values: Record<string, string | boolean | undefined> = { ...defaultOptions };
  fill(values, spec, '');
  if (typeof values.model !== 'string') throw configError('model', 'is missing', 'Name a model.');
  const counts = ['prefillInstances', 'decodeInstances', 'prefillDecodeInstances'];
  const [prefill, decode, shared] = counts.map((name) => Number(values[name] ?? 0));
  if (prefill + decode > 0) values.numInstances = String(prefill + decode + shared);
  else {
    values.numInstances = spec.pools?.instances === undefined ? '1' : String(values.prefillDecodeInstances);
    values.prefillDecodeInstances = '0';
  }
  return values;
}

/** Runs `act`; its errors about an option are about the field of the description that sets it. */
export function inFieldNames<T>(act: () => T): T {
  try {
    return act();
  } catch (error) {
    if (!(error instanceof TierKVError) || error.field === undefined) throw error;
    const { code, field, message } = error;
    const found = Object.entries(fields).find(([, [option]]) => flagOf(option) === field)?.[0];
    const named = field === '--num-instances' ? 'pools.instances' : found;
    if (named === undefined) throw error;
    const said = message.startsWith(`${field} `) ? named + message.slice(field.length) : message;
    throw new TierKVError(code, said.replaceAll(`Set ${field} `, `Set ${named} `), {
      field: named,
      cause: error,
      ...(error.path === undefined ? {} : { path: error.path }),
      ...(error.line === undefined ? {} : { line: error.line }),
    });
  }
}
