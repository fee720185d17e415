/**
 * Words of a command line of `tierkv simulate` that are no settings of a deployment: what a run writes, and options of
 * upstream's that have no part here.
 */

/** An option, what it is for, and its default. */
type BesideRow = readonly [flags: string, about: string, otherwise?: string];

/** Accepted among them, and without a file. */
export const unwritten: readonly string[] = ['--log'];

/** Options for what a run writes. */
export const outputRows: readonly BesideRow[] = [
  ['--json [file]', 'write the result as JSON (to standard output without a file)'],
  ['--metrics-path <file>', "write metrics in BLIS's JSON, with a row per request"],
  ['--requests <file>', 'write a row per request, .jsonl or .csv'],
  ['--trace-output <prefix>', 'write the requests as a TraceV2 trace, <prefix>.yaml and <prefix>.csv'],
  ['--results-path <file>', 'write latencies of completed requests as JSON, for calibration'],
  ['--trace-level <name>', 'none, or decisions with --decisions or --summarize-trace', 'none'],
  ['--summarize-trace', 'print decision counts and regret'],
  ['--decisions <file.jsonl>', 'write every control-plane decision, and each KV block that moved'],
  ['--chrome-trace <file>', 'write steps and requests as a trace for Perfetto or about:tracing'],
  ['--chrome-trace-events <n>', 'maximum events in that trace', '200000'],
  ['--plot <file.svg>', 'plot latencies and tier occupancy over time'],
  ['--report <file.html>', 'write an HTML report'],
  ['--log <level>', 'accepted as in BLIS; nothing is logged'],
];

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
export const accepted: readonly (readonly [flags: string, why: string])[] = [
  ['--lazy-generation', 'requests are always generated as they come'],
];

export const refused: readonly UpstreamOption[] = [
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
