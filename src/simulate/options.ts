/**
 * The options of `tierkv simulate`. Names and defaults are upstream's, so that a BLIS command line works as
 * it is; what upstream does not have stands apart. Numbers are read and checked where they are used.
 */

import { Command, Option } from 'commander';
import { configError, nearestName } from '../runtime/errors.ts';
import { SLO_CLASSES, type WorkloadSpec } from '../sim/description/workloadSpec.ts';
import type { Targets, TargetsByClass } from '../sim/metrics/statistics.ts';
import { addPresetOptions, addTraceOptions, numberWithin } from './presetOptions.ts';

/** Options as they were given; absent ones are undefined. */
export type OptionValues = Readonly<Record<string, string | boolean | undefined>>;

function engineOptions(command: Command): Command {
  return command
    .option('--model <name>', 'model, with or without organisation, or the path of a config.json')
    .option('--hardware <name>', "GPU or the path of its file (default: the model's, else H100)")
    .option('--tp <n>', "tensor parallel GPUs (default: the model's, else 1)")
    .option('--dp <n>', 'data parallel ranks of a mixture of experts')
    .option(
      '--latency-model <name>',
      'trained-physics, roofline, linear, blackbox or calibrated',
      'trained-physics',
    )
    .option('--coefficients <file>', 'coefficients of the latency model (default: as shipped)')
    .option(
      '--alpha-coeffs <list>',
      'three queueing and overhead times of trained-physics, with --beta-coeffs',
    )
    .option('--beta-coeffs <list>', 'seven or more coefficients of trained-physics')
    .option('--moe-comm-backend <name>', 'how experts exchange tokens, trained-physics only')
    .option('--floor', 'no step is shorter than the hardware needs')
    .option('--max-model-len <n>', "most tokens of a request (default: the model's)")
    .option('--model-config-folder <dir>', 'folder with the config.json of the model')
    .option('--hardware-config <file>', "upstream's hardware_config.json");
}

function kvOptions(command: Command): Command {
  return command
    .option('--total-kv-blocks <n>', 'blocks in GPU memory (default: what fits)')
    .option('--block-size-in-tokens <n>', 'tokens of a block', '16')
    .option('--gpu-memory-utilization <share>', 'share of GPU memory that may be used', '0.9')
    .option('--max-num-seqs <n>', 'most requests in a batch', '256')
    .option('--max-num-batched-tokens <n>', 'most tokens of a step', '2048')
    .option(
      '--long-prefill-token-threshold <n>',
      'most prompt tokens of a request in a step, 0: no limit',
      '0',
    )
    .option('--kv-cpu-blocks <n>', 'blocks in host memory; loads are billed to the step', '0')
    .option('--kv-offload-threshold <share>', 'share of GPU memory above which cached blocks move down', '1')
    .option('--kv-transfer-bandwidth <n>', 'of the billed loads, in tokens a microsecond', '100')
    .option('--kv-transfer-base-latency <us>', 'of the billed loads, for each block', '0')
    .option('--kv-offload-config <file>', 'host and disk tiers; requests wait for their loads')
    .option(
      '--kv-load <when>',
      'blocks below GPU memory are loaded when-faster than computed, or always',
      'when-faster',
    )
    .option('--eviction <policy>', 'who leaves a tier first', 'lru')
    .option('--scheduler <name>', 'fcfs, priority-fcfs, sjf or reverse-priority (default: fcfs)')
    .option('--preemption-policy <name>', 'who gives way: fcfs or priority (default: fcfs)')
    .option(
      '--preemption-mode <name>',
      'what a request keeps that gives way: restart (nothing, as upstream), recompute (its tokens), offload',
      'restart',
    );
}

function clusterOptions(command: Command): Command {
  return command
    .option('--num-instances <n>', 'instances', '1')
    .option('--policy-config <file>', 'policies in YAML; options go before it')
    .option('--admission-policy <name>', 'which requests come in (default: always-admit)')
    .option(
      '--admission-parameters <list>',
      'of the admission policy, as kind=tokens,tokensPerInstance=50000',
    )
    .option('--admission-latency <us>', 'from arrival to admission', '0')
    .option('--token-bucket-capacity <n>', 'tokens (default: 10000)')
    .option('--token-bucket-refill-rate <n>', 'tokens a second (default: 1000)')
    .option('--routing-latency <us>', 'from admission to routing', '0')
    .option('--routing-policy <name>', 'which instance takes a request (default: round-robin)')
    .option('--routing-scorers <list>', 'of the weighted policy, as precise-prefix-cache:1,active-requests:2')
    .option(
      '--routing-parameters <list>',
      'of the routing policy, as prefixCacheAffinity=true,maxInFlight=64',
    )
    .option('--snapshot-refresh-interval <us>', 'age of what routers know of instances, 0: live', '50000')
    .option('--cache-signal-delay <us>', 'age of what routers know of caches, 0: live', '50000')
    .option(
      '--shadow-kv <model>',
      "the router's own prediction of caches: none, approximate, events, speculative",
    )
    .option(
      '--model-autoscaler-interval-us <us>',
      "how often the autoscaler looks (default: the bundle's; 0: off)",
    )
    .option('--counterfactual-k <n>', 'candidates kept in the record of a decision', '0');
}

function gatewayOptions(command: Command): Command {
  return command
    .option('--flow-control', 'hold requests in a gateway queue while instances are saturated')
    .option('--saturation-detector <name>', 'never, utilization or concurrency')
    .option('--queue-depth-threshold <n>', 'of the utilization detector (default: 5)')
    .option('--kv-cache-util-threshold <share>', 'of the utilization detector (default: 0.8)')
    .option('--max-concurrency <n>', 'of the concurrency detector, for each instance (default: 100)')
    .option('--concurrency-kind <name>', 'what that detector counts: requests, tokens or hybrid')
    .option('--max-token-concurrency <n>', 'of that detector, for each instance (default: 1000000)')
    .option('--dispatch-order <name>', 'fifo, priority or slo-deadline')
    .option('--slo-targets <list>', 'for slo-deadline, as critical=100000 in µs')
    .option('--fairness-policy <name>', 'global-strict, round-robin or program-aware')
    .option('--gateway-parameters <list>', 'of the queue, as serviceWeight=0.5,halfLifeUs=30000000')
    .option('--max-gateway-queue-depth <n>', 'most requests in the queue, 0 for no limit', '0')
    .option('--per-band-capacity <n>', 'most requests of one priority, 0 for no limit', '0')
    .option('--usage-limit-threshold <share>', 'saturation up to which the last band is served (default: 1)')
    .option('--request-ttl <us>', 'longest wait in the queue, 0 for no limit', '0')
    .option('--dispatch-tick-interval <us>', 'how often the queue is looked at', '1000')
    .option('--queue-shedding', 'a full queue puts out a less urgent sheddable request');
}

function handoffOptions(command: Command): Command {
  return command
    .option('--prefill-instances <n>', 'instances that compute prompts only', '0')
    .option('--decode-instances <n>', 'instances that generate', '0')
    .option('--prefill-decode-instances <n>', 'instances that do both, beside the others', '0')
    .option(
      '--pd-decider <name>',
      'which prompts are computed elsewhere: never, always, prefix-threshold, token-cap',
    )
    .option('--pd-prefix-threshold <n>', 'uncached tokens above which prefix-threshold hands off')
    .option('--prefill-routing-scorers <list>', 'weighted routing of the prefill instances')
    .option('--decode-routing-scorers <list>', 'weighted routing of the decode instances')
    .option('--pd-transfer-bandwidth <GB/s>', 'of the link of a prefill instance', '25')
    .option('--pd-transfer-base-latency <ms>', 'of each transfer of a hand-off', '0.05')
    .option(
      '--pd-transfer-granularity <name>',
      'what one transfer of a hand-off is: request, chunk (of a prefill step), block, stream',
      'request',
    )
    .option('--pd-transfer-pipelined', 'send what is computed while the rest of the prompt is computed');
}

function workloadOptions(command: Command): Command {
  return addTraceOptions(addPresetOptions(command))
    .option('--workload-spec <file>', 'workload specification or recorded trace')
    .option('--trace-header <file>', 'header of a recorded TraceV2, with --trace-data')
    .option(
      '--trace-data <file>',
      'rows of a recorded TraceV2; ends at twice its last arrival, as upstream (an argument serves all)',
    )
    .option('--seed <n>', "random key, a 64-bit integer (default: 42, or the spec's)")
    .option('--simulation-seed <n>', 'what routing and admission draw from (default: that of --seed)')
    .option('--jitter-seed <n>', 'what delays of machines that come are drawn from (default: the same)')
    .option('--num-requests <n>', 'at most so many requests')
    .option('--horizon <us>', 'end of the simulation')
    .option('--timeout <s>', 'deadline of every request in seconds; negative: none')
    .option('--profile <profile>', 'load over time, as ramp:from=2,to=20,duration=600')
    .option(
      '--session-mode <name>',
      'recorded sessions: fixed, at their recorded times, or closed-loop, after the round before has ended',
      'fixed',
    )
    .option(
      '--as-upstream',
      'what upstream forms otherwise: the last token of an answer is left out of its conversation, ratios of ' +
        'a cluster are means over instances, and --flow-control replaces the admission policy',
    );
}

function outputOptions(command: Command): Command {
  return command
    .option('--slo-ttft <list>', 'targets of goodput by class, as critical=100ms,standard=500ms')
    .option('--slo-itl <list>', 'the same for the mean time between tokens')
    .option('--slo-e2e <list>', 'the same for the whole request')
    .option('--metrics-path <file>', 'write metrics as JSON, with a row a request')
    .option('--requests <file>', 'write a row a request, .jsonl or .csv')
    .option('--trace-output <prefix>', 'write the requests as TraceV2, <prefix>.yaml and <prefix>.csv')
    .option('--results-path <file>', 'write times of the completed requests as JSON, for calibration')
    .option('--trace-level <name>', 'none, or decisions with --decisions or --summarize-trace', 'none')
    .option('--summarize-trace', 'print counts and regret of the decisions')
    .option('--decisions <file.jsonl>', 'write each decision of the control plane')
    .option('--chrome-trace <file>', 'write steps and requests for about:tracing or Perfetto')
    .option('--chrome-trace-events <n>', 'most events of that file', '200000')
    .option('--plot <file.svg>', 'draw latencies, and how full the tiers are over time')
    .option('--log <level>', 'accepted for upstream; nothing is logged');
}

/** Options that say what is deployed. */
function deployedOptions(command: Command): Command {
  return handoffOptions(gatewayOptions(clusterOptions(kvOptions(engineOptions(command)))));
}

export function addSimulateOptions(command: Command): Command {
  const collect = (setting: string, before: string | undefined): string =>
    before === undefined ? setting : `${before}\n${setting}`;
  command
    .option('--deployment <file>', 'whole deployment in YAML, in place of all options that describe one')
    .option('--set <field=value>', 'a field of the deployment, as pools[0].replicas=4; repeatable', collect);
  return addUpstreamOnly(outputOptions(workloadOptions(deployedOptions(command))));
}

/** Names of the options that describe a deployment, which a deployment file says in their place. */
export function deployedNames(): string[] {
  return deployedOptions(new Command()).options.map((option) => option.attributeName());
}

/**
 * The options of a parsed command line.
 * @throws TKV_CONFIG where the deployment is missing, or said twice
 */
export function simulateOptionsOf(command: Command): OptionValues {
  const options: OptionValues = command.opts();
  refuseUpstreamOnly(options);
  if (options.deployment === undefined) {
    if (options.set !== undefined) {
      throw configError('--set', 'has no --deployment', 'Name the file whose field it is.');
    }
    if (options.model !== undefined) return options;
    throw configError('--model', 'is missing', 'Name a model, or a file with --deployment.');
  }
  for (const option of deployedOptions(new Command()).options) {
    if (command.getOptionValueSource(option.attributeName()) !== 'cli') continue;
    const remedy = 'Write it into the file, or change the file with --set.';
    throw configError(option.long ?? option.flags, 'is given beside --deployment', remedy);
  }
  return options;
}

//  Numbers out of options, checked with a message that names the option and says what to write instead.

const MOST = Number.MAX_SAFE_INTEGER;

/** The option behind a camel-case name: `maxNumSeqs` is `--max-num-seqs`. */
export function flagOf(name: string): string {
  return `--${name.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`)}`;
}

/** A whole number from `min` to `max`, or undefined when the option was not given. */
export function wholeOption(
  options: OptionValues,
  name: string,
  min: number,
  max: number = MOST,
): number | undefined {
  return numberWithin(options, name, flagOf(name), { min, max, whole: true });
}

export function realOption(
  options: OptionValues,
  name: string,
  min: number,
  max: number,
): number | undefined {
  return numberWithin(options, name, flagOf(name), { min, max });
}

/** The option's value, which has a default. */
export function whole(options: OptionValues, name: string, min: number, max: number = MOST): number {
  return wholeOption(options, name, min, max) ?? min;
}

export function real(options: OptionValues, name: string, min: number, max: number): number {
  return realOption(options, name, min, max) ?? min;
}

export function textOption(options: OptionValues, name: string): string | undefined {
  const value = options[name];
  return typeof value === 'string' ? value : undefined;
}

/** A list of numbers separated by commas. */
export function numbersOption(options: OptionValues, name: string): number[] | undefined {
  const text = textOption(options, name);
  if (text === undefined) return undefined;
  return text.split(',').map((part) => {
    const value = part.trim() === '' ? Number.NaN : Number(part);
    if (Number.isFinite(value)) return value;
    throw configError(flagOf(name), `holds "${part}", not a number`, 'Separate numbers by commas.');
  });
}

// Targets of goodput: `--slo-ttft critical=100ms,standard=500ms` and its kin, and those of a specification.

const unitsUs: Readonly<Record<string, number>> = { us: 1, µs: 1, ms: 1e3, s: 1e6, m: 60e6, h: 3600e6 };

/** A duration such as `1.5s` or `1m30s`, in microseconds. */
function durationUs(flag: string, text: string): number {
  const parts = [...text.matchAll(/(\d+(?:\.\d+)?)(us|µs|ms|s|m|h)/g)];
  const sum = parts.reduce((total, [, digits, unit]) => total + Number(digits) * unitsUs[unit], 0);
  if (parts.map(([part]) => part).join('') === text && sum > 0) return sum;
  throw configError(flag, `holds "${text}", not a duration`, 'Write class=100ms, with us, ms, s, m or h.');
}

function classTargets(options: OptionValues, name: string): Record<string, number> {
  const text = textOption(options, name);
  if (text === undefined) return {};
  const flag = flagOf(name);
  return Object.fromEntries(
    text.split(',').map((entry) => {
      const [sloClass, duration, ...rest] = entry.split('=');
      if (duration === undefined || rest.length > 0) {
        throw configError(flag, `holds "${entry}"`, 'Write class=duration, separated by commas.');
      }
      return [sloClass, durationUs(flag, duration)];
    }),
  );
}

/** Classes that a generated request can have; one without a class is `default`. */
const knownClasses: readonly string[] = [...SLO_CLASSES.filter((name) => name !== ''), 'default'];

/**
 * Refuses classes that no request has by their names. @param field option or key that names them
 * @param recorded classes of a recorded trace, which may be any
 */
export function requireKnownClasses(
  field: string,
  names: readonly string[],
  recorded: Iterable<string> = [],
): void {
  const known = [...new Set([...knownClasses, ...recorded])];
  const unknown = names.find((name) => !known.includes(name));
  if (unknown === undefined) return;
  const near = nearestName(unknown, known);
  const meant = near === undefined ? '' : `Did you mean "${near}"? `;
  const problem = `names the class "${unknown}", which no request has`;
  throw configError(field, problem, `${meant}Classes: ${known.join(', ')}.`);
}

/** Refuses targets of classes that do not occur. */
export function requireKnownTargets(options: OptionValues, recorded: Iterable<string> = []): void {
  for (const name of ['sloTtft', 'sloItl', 'sloE2e']) {
    requireKnownClasses(flagOf(name), Object.keys(classTargets(options, name)), recorded);
  }
}

/** Options go before the specification, dimension by dimension. */
export function goodputTargets(options: OptionValues, spec: WorkloadSpec | undefined): TargetsByClass {
  const targets: Record<string, Targets> = {};
  for (const [name, { ttftMs, itlMs, e2eMs }] of Object.entries(spec?.goodputSloTargets ?? {})) {
    targets[name] = {
      ...(ttftMs === undefined ? {} : { ttftUs: 1000 * ttftMs }),
      ...(itlMs === undefined ? {} : { itlUs: 1000 * itlMs }),
      ...(e2eMs === undefined ? {} : { e2eUs: 1000 * e2eMs }),
    };
  }
  for (const [name, field] of [
    ['sloTtft', 'ttftUs'],
    ['sloItl', 'itlUs'],
    ['sloE2e', 'e2eUs'],
  ] as const) {
    for (const [sloClass, us] of Object.entries(classTargets(options, name))) {
      targets[sloClass] = { ...targets[sloClass], [field]: us };
    }
  }
  return targets;
}

// Options of BLIS that have no part here, each with the reason and with what to use instead. They are known,
// so that a command line of upstream's ends in that sentence and not in "unknown option".

type UpstreamOption = readonly [flags: string, problem: string, remedy: string];

const perPool = (what: string, key: string): readonly UpstreamOption[] =>
  ['prefill', 'decode'].map(
    (role): UpstreamOption => [
      `--${role}-${what} <value>`,
      `sets one thing for the ${role} instances alone`,
      `Write a pool with role: ${role} and ${key}, and pass the file with --deployment.`,
    ],
  );

const lora = ['config', 'adapter-capacity', 'load-base-latency-us', 'load-bandwidth-bytes-us'];
const loraMore = ['footprint-bytes-per-rank', 'scorer-weight'];

/** Accepted, since the result is the same with and without them. */
const accepted: readonly (readonly [flags: string, why: string])[] = [
  ['--lazy-generation', 'requests are always generated as they come'],
];

const refused: readonly UpstreamOption[] = [
  [
    '--defaults-filepath <file>',
    "names upstream's file of defaults, which is not read here",
    'Use --coefficients, --hardware-config and --model-config-folder.',
  ],
  [
    '--enable-expert-parallel',
    'is not modelled: experts lie on tp x dp GPUs here, whether they are asked for or not',
    'Leave it out, and set --tp and --dp.',
  ],
  [
    '--pd-transfer-contention',
    "is not modelled: a prefill instance's link carries one transfer after the other, always",
    'Leave it out; --pd-transfer-bandwidth is the bandwidth of one link.',
  ],
  ...perPool('tp', 'tp'),
  ...perPool('hardware', 'hardware'),
  ...perPool('latency-model', 'latency_model'),
  ...perPool('max-model-len', 'max_model_len'),
  ['--encode-instances <n>', 'asks for encode pools, which are not modelled', 'Leave it out.'],
  ['--encode-decider <name>', 'asks for encode pools, which are not modelled', 'Leave it out.'],
  ['--in-flight-eviction', 'is not modelled: a request that was dispatched stays', 'Use --queue-shedding.'],
  ...[...lora, ...loraMore].map(
    (name): UpstreamOption => [
      `--lora-${name} <value>`,
      'is of LoRA adapters, which the simulator does not load',
      'Leave it out.',
    ],
  ),
  [
    '--fitness-weights <list>',
    'weighs metrics into one number, which simulate does not',
    'Use tierkv evaluate with a plan.',
  ],
  ...['detectors <list>', 'saturation-config <file>', 'saturation-report <file>'].map(
    (name): UpstreamOption => [
      `--${name}`,
      'judges saturation after the run, which is not done here',
      'Look at still_queued and the latencies.',
    ],
  ),
  [
    '--saturation-final-window <duration>',
    'judges saturation after the run, which is not done here',
    'Look at still_queued and the latencies.',
  ],
  ['--think-time-dist <spec>', 'draws pauses of a replay', 'Use --session-mode closed-loop --think-time-ms.'],
  ['--max-num-running-reqs <n>', 'is an old name', 'Use --max-num-seqs.'],
  ['--max-num-scheduled-tokens <n>', 'is an old name', 'Use --max-num-batched-tokens.'],
];

export function addUpstreamOnly(command: Command): Command {
  for (const [flags] of [...accepted, ...refused]) command.addOption(new Option(flags).hideHelp());
  return command;
}

/** @throws TKV_CONFIG for an option of upstream's that has no part here */
export function refuseUpstreamOnly(options: OptionValues): void {
  for (const [flags, problem, remedy] of refused) {
    const name = new Option(flags).attributeName();
    if (options[name] !== undefined) throw configError(flagOf(name), `is upstream's and ${problem}`, remedy);
  }
}

/** Names of all options of upstream's that are handled here, for the page of differences. */
export const upstreamOnlyFlags: readonly string[] = [...accepted, ...refused].map(
  ([flags]) => flags.split(' ')[0],
);
