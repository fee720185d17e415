/**
 * The options of `tierkv simulate` as rows. Upstream's names are known, so that a BLIS command line works as it is; where
 * upstream's default is another one, it stands beside ours and holds under `--as-upstream`. The command makes its options
 * of these rows, and the arguments of a plan or a grid are read by them.
 */

import { configError, nearestName } from '../runtime/errors.ts';
import { TOP, tierNames } from '../runtime/tier/tier.ts';
import { sizedTierNames, sizedTierRows } from '../sim/links/machineTiers.ts';

/**
 * An option: how it is written, with `<what>` where it takes a value, what it is for, its default, and upstream's default
 * where that is another one (null for none).
 */
export type OptionRow = readonly [
  flags: string,
  about: string,
  otherwise?: string | undefined,
  upstreams?: string | null,
];

/** Options by camel-case name as they were written; absent ones are undefined. */
export type OptionValues = Readonly<Record<string, string | boolean | undefined>>;

// An option has one name in all commands. Inside, some keep the names that upstream and deployment files have.

const ownNames: Readonly<Record<string, string>> = {
  '--gpu': 'hardware',
  '--hbm': 'totalKvBlocks',
  '--block-tokens': 'blockSizeInTokens',
};
const ownFlags: ReadonlyMap<string, string> = new Map(
  Object.entries(ownNames).map(([flag, name]) => [name, flag]),
);

/** Other names of options, by the name that help shows: upstream's and those of earlier versions. */
export const simulateAliases: Readonly<Record<string, string>> = {
  '--hardware': '--gpu',
  '--total-kv-blocks': '--hbm',
  '--block-size-in-tokens': '--block-tokens',
};

/** The option behind a camel-case name: `maxNumSeqs` is `--max-num-seqs`. */
export function flagOf(name: string): string {
  return ownFlags.get(name) ?? `--${name.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`)}`;
}

/** The name of an option: of `--max-num-seqs <n>` it is `maxNumSeqs`, of `--no-floor` it is `floor`. */
export function optionNameOf(flags: string): string {
  const [flag] = flags.split(' ');
  const own = ownNames[simulateAliases[flag] ?? flag];
  return (
    own ?? flag.replace(/^--(no-)?/, '').replace(/-([a-z0-9])/g, (_, letter: string) => letter.toUpperCase())
  );
}

/** Options that shape a preset. */
export const presetRows: readonly OptionRow[] = [
  [
    '--workload <name>',
    'chat (conversations), chatbot, contentgen, summarization, multidoc or distribution, instead of a file',
  ],
  ['--rate <n>', 'requests a second; of conversations all rounds count'],
  ['--concurrency <n>', 'users in closed loop, instead of --rate'],
  ['--think-time-ms <time>', 'pause of such a user, as 2s, or in milliseconds'],
  ['--prefix-tokens <n>', 'length of a shared prefix'],
  ...['prompt', 'output'].flatMap((side): OptionRow[] => [
    [`--${side}-tokens <n>`, `mean ${side} length`],
    [`--${side}-tokens-stdev <n>`, 'its deviation'],
    [`--${side}-tokens-min <n>`, 'its least'],
    [`--${side}-tokens-max <n>`, 'its most'],
  ]),
];

/** Options about reading a recorded trace. */
export const traceRows: readonly OptionRow[] = [
  ['--columns <mapping>', 'which columns of a CSV are what: arrival=ts:s,input=prompt_len,output=gen_len'],
  ['--drop-empty', 'leave out rows without prompt or output tokens, and count them'],
  ['--sort', 'sort the rows of a trace by time'],
];

/** Flags of the options that most runs need; help shows them first. */
const firstFlags: readonly string[] = [
  ...['--model', '--gpu', '--tp', '--num-instances', '--workload', '--rate', '--num-requests'],
  ...sizedTierNames.map((name) => `--${name}`),
  '--json',
];

const engineRows: readonly OptionRow[] = [
  ['--model <name>', 'model, with or without organisation, or the path of a config.json'],
  ['--gpu <name>', "GPU or the path of its file (default: the model's, else H100)"],
  ['--tp <n>', "tensor parallel GPUs (default: the model's, else 1)"],
  ['--dp <n>', 'data parallel ranks of a mixture of experts'],
  [
    '--latency-model <name>',
    'calibrated, trained-physics, roofline, linear or blackbox (default: calibrated where the GPU was, else trained-physics)',
    undefined,
    'trained-physics',
  ],
  ['--coefficients <file>', 'coefficients of the latency model (default: as shipped)'],
  ['--alpha-coeffs <list>', 'three queueing and overhead times of trained-physics, with --beta-coeffs'],
  ['--beta-coeffs <list>', 'seven or more coefficients of trained-physics'],
  ['--moe-comm-backend <name>', 'how experts exchange tokens, trained-physics only'],
  ['--num-speculative-tokens <n>', 'tokens that a draft proposes before each step, 0: no speculation', '0'],
  ['--speculative-acceptance <share>', 'chance that a proposed token is accepted where those before it were'],
  ['--speculative-draft-model <name>', 'model that proposes them; its time, weights and KV count'],
  [
    '--speculative-draft-us <time>',
    'time of one proposed token, in place of a model, in microseconds (default: 0)',
  ],
  [
    '--expert-imbalance <n>',
    'tokens that go to the busiest GPU of a mixture of experts, over the mean: 1 over the balancedness that vLLM logs (default: 1)',
  ],
  ['--floor', 'no step is shorter than the hardware needs: so it is, but under --as-upstream'],
  ['--no-floor', 'also take times that the hardware cannot reach'],
  ['--max-model-len <n>', "most tokens of a request (default: the model's)"],
  ['--model-config-folder <dir>', 'folder with the config.json of the model'],
  [
    '--assume-plain-attention',
    'take keys of a config.json about layers that are not known to change nothing',
  ],
  ['--hardware-config <file>', "upstream's hardware_config.json"],
];

const kvRows: readonly OptionRow[] = [
  ['--hbm <size>', 'GPU memory of an instance for KV, as 64GiB or in blocks (default: what fits)'],
  ...sizedTierRows.map(({ tier, about }): OptionRow => [`--${tier} <size>`, about]),
  ['--block-tokens <n>', 'tokens of a block', '16'],
  ['--kv-cache-dtype <name>', "precision of KV: auto (the model's) or fp8 (a byte an element)", 'auto'],
  ['--max-loras <n>', 'LoRA adapters in GPU memory at once; 0: adapters are names that cost nothing', '0'],
  ['--max-lora-rank <n>', 'their rank, which says their bytes (default: 16)'],
  ['--lora-load-us <time>', 'time of loading one, in microseconds (default: its bytes over PCIe)'],
  [
    '--disable-hybrid-kv-cache-manager',
    'keep the whole context for layers of a sliding window too, as vLLM with the option of the name',
  ],
  ['--gpu-memory-utilization <share>', 'share of GPU memory that may be used', '0.9'],
  ['--max-num-seqs <n>', 'most requests in a batch', '256'],
  ['--max-num-batched-tokens <n>', 'most tokens of a step', '2048'],
  ['--long-prefill-token-threshold <n>', 'most prompt tokens of a request in a step, 0: no limit', '0'],
  ['--kv-cpu-blocks <n>', "blocks in host memory as upstream's, loads of which are billed to the step", '0'],
  ['--kv-offload-threshold <share>', 'share of GPU memory above which cached blocks move down', '1'],
  ['--kv-transfer-bandwidth <n>', 'of the billed loads, in tokens a microsecond', '100'],
  ['--kv-transfer-base-latency <time>', 'of the billed loads, for each block', '0'],
  ['--kv-offload-config <file>', 'host and disk tiers; requests wait for their loads'],
  ['--shared-tier <file>', 'a server whose blocks all instances share'],
  [
    '--kv-load <when>',
    'blocks below GPU memory are loaded when-faster than computed, or always',
    'when-faster',
  ],
  ['--eviction <policy>', 'who leaves a tier first', 'lru'],
  ['--scheduler <name>', 'fcfs, priority-fcfs, sjf or reverse-priority (default: fcfs)'],
  ['--preemption-policy <name>', 'who gives way: fcfs or priority (default: fcfs)'],
  [
    '--preemption-mode <name>',
    'what a request keeps that gives way: recompute (its tokens, as vLLM), offload (its blocks), restart (nothing)',
    'recompute',
    'restart',
  ],
];

const clusterRows: readonly OptionRow[] = [
  ['--num-instances <n>', 'instances', '1'],
  ['--policy-config <file>', 'policies in YAML; options go before it'],
  ['--admission-policy <name>', 'which requests come in (default: always-admit)'],
  ['--admission-parameters <list>', 'of the admission policy, as kind=tokens,tokensPerInstance=50000'],
  ['--admission-latency <time>', 'from arrival to admission', '0'],
  ['--token-bucket-capacity <n>', 'tokens (default: 10000)'],
  ['--token-bucket-refill-rate <n>', 'tokens a second (default: 1000)'],
  ['--routing-latency <time>', 'from admission to routing', '0'],
  ['--routing-policy <name>', 'which instance takes a request (default: round-robin)'],
  ['--routing-scorers <list>', 'of the weighted policy, as precise-prefix-cache:1,active-requests:2'],
  ['--routing-parameters <list>', 'of the routing policy, as prefixCacheAffinity=true,maxInFlight=64'],
  ['--snapshot-refresh-interval <time>', 'age of what routers know of instances, 0: live', '50000'],
  ['--cache-signal-delay <time>', 'age of what routers know of caches, 0: live', '50000'],
  ['--shadow-kv <model>', "the router's own prediction of caches: none, approximate, events, speculative"],
  ['--model-autoscaler-interval-us <time>', "how often the autoscaler looks (default: the bundle's; 0: off)"],
  ['--counterfactual-k <n>', 'candidates kept in the record of a decision', '0'],
];

const gatewayRows: readonly OptionRow[] = [
  ['--flow-control', 'hold requests in a gateway queue while instances are saturated'],
  ['--saturation-detector <name>', 'never, utilization or concurrency'],
  ['--queue-depth-threshold <n>', 'of the utilization detector (default: 5)'],
  ['--kv-cache-util-threshold <share>', 'of the utilization detector (default: 0.8)'],
  ['--max-concurrency <n>', 'of the concurrency detector, for each instance (default: 100)'],
  ['--concurrency-kind <name>', 'what that detector counts: requests, tokens or hybrid'],
  ['--max-token-concurrency <n>', 'of that detector, for each instance (default: 1000000)'],
  ['--dispatch-order <name>', 'fifo, priority or slo-deadline'],
  ['--slo-targets <list>', 'for slo-deadline, as critical=100000 in µs'],
  ['--fairness-policy <name>', 'global-strict, round-robin or program-aware'],
  ['--gateway-parameters <list>', 'of the queue, as serviceWeight=0.5,halfLifeUs=30000000'],
  ['--max-gateway-queue-depth <n>', 'most requests in the queue, 0 for no limit', '0'],
  ['--per-band-capacity <n>', 'most requests of one priority, 0 for no limit', '0'],
  ['--usage-limit-threshold <share>', 'saturation up to which the last band is served (default: 1)'],
  ['--request-ttl <time>', 'longest wait in the queue, 0 for no limit', '0'],
  ['--dispatch-tick-interval <time>', 'how often the queue is looked at', '1000'],
  ['--queue-shedding', 'a full queue puts out a less urgent sheddable request'],
];

const handoffRows: readonly OptionRow[] = [
  ['--prefill-instances <n>', 'instances that compute prompts only', '0'],
  ['--decode-instances <n>', 'instances that generate', '0'],
  ['--prefill-decode-instances <n>', 'instances that do both, beside the others', '0'],
  ['--pd-decider <name>', 'which prompts are computed elsewhere: never, always, prefix-threshold, token-cap'],
  ['--pd-prefix-threshold <n>', 'uncached tokens above which prefix-threshold hands off'],
  ['--prefill-routing-scorers <list>', 'weighted routing of the prefill instances'],
  ['--decode-routing-scorers <list>', 'weighted routing of the decode instances'],
  ['--pd-transfer-bandwidth <GB/s>', 'of the link of a prefill instance', '25'],
  ['--pd-transfer-base-latency <time>', 'of each transfer of a hand-off', '0.05'],
  [
    '--pd-transfer-granularity <name>',
    'what one transfer of a hand-off is: request, chunk (of a prefill step), block, stream',
    'request',
  ],
  ['--pd-transfer-pipelined', 'send what is computed while the rest of the prompt is computed'],
  ['--pd-transfer-missing', 'send no blocks that the decode instance has already'],
];

const workloadRows: readonly OptionRow[] = [
  ...presetRows,
  ...traceRows,
  ['--workload-spec <file>', 'workload specification or recorded trace'],
  ['--trace-header <file>', 'header of a recorded TraceV2, with --trace-data'],
  [
    '--trace-data <file>',
    'rows of a recorded TraceV2; ends at twice its last arrival, as upstream (an argument serves all)',
  ],
  [
    '--seed <n>',
    "random key, a 64-bit integer (default: 42; of requests the specification's, where it has one)",
  ],
  ['--simulation-seed <n>', 'what routing and admission draw from (default: as --seed, else 42)'],
  ['--jitter-seed <n>', 'what delays of machines that come are drawn from (default: as --seed, else 42)'],
  [
    '--num-requests <n>',
    'most requests; of conversations in closed loop, planned ones, and all that begin are served',
  ],
  ['--horizon <time>', 'end of the simulation, as 10m, or in microseconds'],
  ['--timeout <time>', 'deadline of every request, as 30s, or in seconds; negative: none'],
  ['--profile <profile>', 'load over time, as ramp:from=2,to=20,duration=600'],
  [
    '--session-mode <name>',
    'recorded sessions: fixed, at their recorded times, or closed-loop, after the round before has ended',
    'fixed',
  ],
  [
    '--as-upstream',
    "upstream's defaults and text: its model of time without a floor, its preemption, its memory of a GPU; the last token " +
      'of an answer is left out of its conversation, ratios of a cluster are means over instances, and --flow-control ' +
      'replaces the admission policy',
  ],
];

const outputRows: readonly OptionRow[] = [
  ['--json [file]', 'write the result as JSON, to standard output unless a file is named'],
  ['--slo-ttft <list>', 'targets of goodput by class, as critical=100ms,standard=500ms'],
  ['--slo-itl <list>', 'the same for the mean time between tokens'],
  ['--slo-e2e <list>', 'the same for the whole request'],
  ['--metrics-path <file>', 'write metrics as JSON, with a row a request'],
  ['--requests <file>', 'write a row a request, .jsonl or .csv'],
  ['--trace-output <prefix>', 'write the requests as TraceV2, <prefix>.yaml and <prefix>.csv'],
  ['--results-path <file>', 'write times of the completed requests as JSON, for calibration'],
  ['--trace-level <name>', 'none, or decisions with --decisions or --summarize-trace', 'none'],
  ['--summarize-trace', 'print counts and regret of the decisions'],
  ['--decisions <file.jsonl>', 'write each decision of the control plane'],
  ['--chrome-trace <file>', 'write steps and requests for about:tracing or Perfetto'],
  ['--chrome-trace-events <n>', 'most events of that file', '200000'],
  ['--plot <file.svg>', 'draw latencies, and how full the tiers are over time'],
  ['--report <file.html>', 'write a page for people who decide'],
  ['--log <level>', 'accepted for upstream; nothing is logged'],
];

/** Names of the options that say what a run writes, and by which targets of goodput. */
export const outputNames: readonly string[] = outputRows.map(([flags]) => optionNameOf(flags));

/** Options that say what is deployed. */
const deployedRows: readonly OptionRow[] = [
  ...engineRows,
  ...kvRows,
  ...clusterRows,
  ...gatewayRows,
  ...handoffRows,
];

interface OptionGroup {
  readonly title: string;
  readonly rows: readonly OptionRow[];
}

const byTopic: readonly OptionGroup[] = [
  { title: 'Model and time', rows: engineRows },
  { title: 'Memory and batches', rows: kvRows },
  { title: 'Instances and routing', rows: clusterRows },
  { title: 'Gateway queue', rows: gatewayRows },
  { title: 'Prefill and decode instances', rows: handoffRows },
  { title: 'Workload', rows: workloadRows },
  {
    title: 'A whole deployment',
    rows: [
      ['--deployment <file>', 'whole deployment in YAML, in place of all options that describe one'],
      ['--set <field=value>', 'a field of the deployment, as pools[0].replicas=4; repeatable'],
    ],
  },
  { title: 'Output', rows: outputRows },
];

const isFirst = ([flags]: OptionRow): boolean => firstFlags.includes(flags.split(' ')[0]);

/** Options of the help text by group; the options that most runs need are the first group. */
export const simulateGroups: readonly OptionGroup[] = [
  {
    title: 'First of all',
    rows: firstFlags.flatMap((flag) =>
      byTopic.flatMap(({ rows }) => rows.filter(([flags]) => flags.split(' ')[0] === flag)),
    ),
  },
  ...byTopic.map(({ title, rows }) => ({ title, rows: rows.filter((row) => !isFirst(row)) })),
];

/** Options of the help text in its order. */
export const simulateRows: readonly OptionRow[] = simulateGroups.flatMap(({ rows }) => rows);

/** The option that may be given several times; its values are lines. */
export const REPEATED = 'set';

/** Names of the options that a deployment file replaces. */
export const deployedNames: readonly string[] = deployedRows.map(([flags]) => optionNameOf(flags));

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
      "is upstream's name for what --max-loras, --max-lora-rank and --lora-load-us say here",
      'Use those, and the scorer lora-affinity in --routing-scorers.',
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

/** Upstream's options that help does not show. */
export const hiddenRows: readonly OptionRow[] = [...accepted, ...refused].map(([flags]) => [flags, '']);

//  The options of one simulation, from a command line or from the arguments of a plan.

export interface AskedSimulation {
  /** Workload file that is given as an argument. */
  readonly workload: string | undefined;
  /** Every option with its given value or its default. */
  readonly options: OptionValues;
  /** Names of the options that were given. */
  readonly given: ReadonlySet<string>;
}

/** The defaults of all options that have one. */
export const defaultOptions: OptionValues = {
  ...Object.fromEntries(
    simulateRows.flatMap(([flags, , otherwise]) =>
      otherwise === undefined ? [] : [[optionNameOf(flags), otherwise]],
    ),
  ),
  floor: true,
};

const upstreamsDefaults: OptionValues = {
  ...defaultOptions,
  ...Object.fromEntries(
    simulateRows.flatMap(([flags, , , upstreams]) =>
      upstreams === undefined ? [] : [[optionNameOf(flags), upstreams ?? undefined]],
    ),
  ),
  floor: undefined,
};

/** Given options, with defaults for the rest: upstream's defaults if `asUpstream` is among them. */
export function withDefaults(given: OptionValues): OptionValues {
  return { ...(given.asUpstream === true ? upstreamsDefaults : defaultOptions), ...given };
}

/** @throws TKV_CONFIG where the deployment is missing or said twice, or an option has no part here */
export function checkAsked(asked: AskedSimulation): AskedSimulation {
  const { options, given } = asked;
  for (const [flags, problem, remedy] of refused) {
    const name = optionNameOf(flags);
    if (options[name] !== undefined) throw configError(flagOf(name), `is upstream's and ${problem}`, remedy);
  }
  if (options.deployment === undefined) {
    if (options.set !== undefined) {
      throw configError('--set', 'has no --deployment', 'Name the file whose field it is.');
    }
    if (options.model !== undefined) return asked;
    throw configError('--model', 'is missing', 'Name a model, or a file with --deployment.');
  }
  const twice = deployedNames.find((name) => given.has(name));
  if (twice === undefined) return asked;
  const remedy = 'Write it into the file, or change the file with --set.';
  throw configError(flagOf(twice), 'is given beside --deployment', remedy);
}

const takesValue: ReadonlyMap<string, boolean> = new Map(
  [...simulateRows, ...hiddenRows].map(([flags]) => [flags.split(' ')[0], /[<[]/.test(flags)]),
);

/** Words of a command line by their kind. */
export interface ReadWords {
  readonly options: Readonly<Record<string, string | boolean>>;
  /** The others. */
  readonly words: readonly string[];
}

/**
 * Reads arguments as `tierkv simulate` does.
 * @throws TKV_CONFIG with the argument that is not known, lacks its value, or is empty
 */
export function readWords(args: readonly string[]): ReadWords {
  const options: Record<string, string | boolean> = {};
  const words: string[] = [];
  for (let i = 0; i < args.length; i++) {
    const word = args[i];
    if (word === '--') {
      words.push(...args.slice(i + 1));
      break;
    }
    if (!word.startsWith('-') || word === '-') {
      words.push(word);
      continue;
    }
    const [, flag, inside] = /^([^=]*)(?:=(.*))?$/s.exec(word) as RegExpExecArray;
    const takes = takesValue.get(simulateAliases[flag] ?? flag);
    if (takes === undefined) throw unknownOption(flag);
    const name = optionNameOf(flag);
    if (!takes) {
      if (inside !== undefined) throw configError(flag, 'takes no value', `Write ${flag} alone.`);
      options[name] = !flag.startsWith('--no-');
      continue;
    }
    const value = inside ?? args[++i];
    if (value === undefined) throw configError(flag, 'has no value', 'Give it one.');
    if (value.trim() === '') throw configError(flag, 'is empty', 'Give it a value, or leave it out.');
    options[name] = lines(name, options[name], value);
  }
  return { options, words };
}

function unknownOption(flag: string): Error {
  const near = nearestName(flag, [...takesValue.keys()]);
  const remedy = near === undefined ? 'See tierkv simulate --help.' : `Did you mean ${near}?`;
  return configError(flag, 'is an unknown option', remedy);
}

/** The value of an option that may have been given before: the last one, or all of them as lines. */
function lines(
  name: string,
  before: string | boolean | undefined,
  value: string | boolean,
): string | boolean {
  return name === REPEATED && before !== undefined ? `${before}\n${value}` : value;
}

/**
 * What the arguments ask for; later ones go before earlier ones.
 * @throws TKV_CONFIG as `checkAsked` does, and for more than one workload
 */
export function askedBy(...parts: readonly ReadWords[]): AskedSimulation {
  const options: Record<string, string | boolean> = {};
  for (const part of parts) {
    for (const [name, value] of Object.entries(part.options))
      options[name] = lines(name, options[name], value);
  }
  const words = parts.flatMap((part) => part.words);
  if (words[0]?.trim() === '') throw configError('workload', 'is empty', 'Name one, or leave it out.');
  if (words.length > 1) {
    throw configError('workload', `is named ${words.length} times`, `Keep one of ${words.join(', ')}.`);
  }
  return checkAsked({
    workload: words[0],
    options: withDefaults(options),
    given: new Set(Object.keys(options)),
  });
}

// Keys of a model and of an engine in a deployment file: options under their names with underscores.

export const modelKeys = [
  'gpu',
  'hardware',
  'tp',
  'dp',
  'latency_model',
  'coefficients',
  'moe_comm_backend',
  'floor',
  'kv_cache_dtype',
  'disable_hybrid_kv_cache_manager',
  'num_speculative_tokens',
  'speculative_acceptance',
  'speculative_draft_model',
  'speculative_draft_us',
  'expert_imbalance',
] as const;
export const engineKeys: readonly string[] = [
  'block_tokens',
  'block_size_in_tokens',
  tierNames[TOP],
  'total_kv_blocks',
  ...sizedTierNames,
  'gpu_memory_utilization',
  'max_model_len',
  'max_num_seqs',
  'max_num_batched_tokens',
  'long_prefill_token_threshold',
  'scheduler',
  'preemption_policy',
  'preemption_mode',
  'eviction',
  'kv_offload_threshold',
  'kv_load',
  'kv_cpu_blocks',
  'kv_transfer_bandwidth',
  'kv_transfer_base_latency',
  'max_loras',
  'max_lora_rank',
  'lora_load_us',
];
/** Keys that are true or false. */
export const flagKeys: readonly string[] = ['floor', 'disable_hybrid_kv_cache_manager'];
