/**
 * How each file of upstream's goldens is accounted for: by which test, and with what result. A file belongs to
 * the first account whose pattern matches its path.
 */

export type Result =
  /** tierkv gives the same bits. */
  | 'equal'
  /** A model of upstream's engine and stores does; tierkv differs from that by named defects. */
  | 'explained'
  /** What runs read. */
  | 'input'
  /** Measured on hardware, or predicted for what was measured: nothing that a run of the simulator gives. */
  | 'measured';

export interface Account {
  readonly files: RegExp;
  readonly result: Result;
  /** Tests from `test`, each of which names the file or the case; none for inputs that a case reads. */
  readonly tests: readonly string[];
  readonly how: string;
}

const cases = (numbers: string, file: string): RegExp => new RegExp(`^cases/(${numbers})-[^/]+/${file}$`);
const metrics = String.raw`metrics\.json(\.gz)?`;
const plain = '01|02|03|04|05|09|11|24|25|26|28|30|32|33';
const repaired = '06|08|14|17|36|37|39';
const tiered = '18|19|20|21|23';
const whole = 'goldens/upstream/upstream-whole-cases.test.ts';

export const accounts: readonly Account[] = [
  {
    files: /(^|\/)(README\.md|LICENSE)$/,
    result: 'input',
    tests: [],
    how: 'text',
  },
  {
    files: /^cases\/[^/]+\/cmd\.txt$/,
    result: 'input',
    tests: [],
    how: 'the command line of its case',
  },
  {
    files: cases(plain, metrics),
    result: 'equal',
    tests: [whole],
    how: 'metrics and every request',
  },
  {
    files: cases(repaired, metrics),
    result: 'explained',
    tests: [whole],
    how: 'D1, U1, U3, U6, U7, as named there',
  },
  {
    files: cases(tiered, metrics),
    result: 'explained',
    tests: ['goldens/tiers/upstream-tiered-cases.test.ts', whole],
    how: 'D3, D4, D12, D13: the models of the stores are equal, and here first tokens come sooner',
  },
  {
    files: cases('12', metrics),
    result: 'explained',
    tests: [whole],
    how: 'with D10 equal but for the hit rate (U1)',
  },
  {
    files: cases('15', metrics),
    result: 'explained',
    tests: [whole],
    how: 'D5, D6: 1,000 of 1,000 complete; no model of upstream drops as it does',
  },
  {
    files: cases('35', metrics),
    result: 'explained',
    tests: [whole],
    how: 'equal but for the hit rate (U1)',
  },
  {
    files: cases('38', '.*'),
    result: 'equal',
    tests: ['cli/latency/upstream-calibrate.test.ts'],
    how: 'the report',
  },
  {
    files: cases(String.raw`\d+`, String.raw`stdout\.txt`),
    result: 'explained',
    tests: ['goldens/experiments/upstream-printed.test.ts'],
    how: 'line by line; what differs in 08, 12, 15 and 35 is named',
  },
  {
    files: cases('36', String.raw`trace\.(csv\.gz|csv|yaml)`),
    result: 'equal',
    tests: [whole, 'cli/latency/upstream-calibrate.test.ts'],
    how: 'TraceV2, the same text',
  },
  {
    files: cases('37', String.raw`results\.json`),
    result: 'equal',
    tests: ['cli/latency/upstream-calibrate.test.ts'],
    how: 'the same bytes',
  },
  {
    files: /^micro\/rng\.json$/,
    result: 'equal',
    tests: ['sim/random/go-rand.test.ts'],
    how: 'streams, seeds and draws',
  },
  {
    files: /^micro\/samplers\.json$/,
    result: 'equal',
    tests: ['sim/random/samplers.test.ts'],
    how: 'gaps and lengths',
  },
  {
    files: /^micro\/hash\.json$/,
    result: 'equal',
    tests: ['sim/workload/block-hash.test.ts'],
    how: 'block hashes',
  },
  {
    files: /^micro\/steptime\.json$/,
    result: 'equal',
    tests: ['sim/latency/upstream-step-times.test.ts'],
    how: 'step times, overheads, KV bytes',
  },
  {
    files: /^micro\/station\.json$/,
    result: 'explained',
    tests: ['goldens/tiers/upstream-station.test.ts'],
    how: 'a model of the station is equal; links here carry one transfer after the other',
  },
  {
    files: /^micro\/defects\.json$/,
    result: 'explained',
    tests: ['goldens/tiers/upstream-defects.test.ts'],
    how: 'D1, D1b, D2, D3, each beside the repaired model',
  },
  {
    files: /^micro\/kvops-single-/,
    result: 'explained',
    tests: ['goldens/upstream/upstream-kv-operations.test.ts'],
    how: 'D1, D2, U1 to U5: the model is equal, the manager equals the repaired model',
  },
  {
    files: /^micro\/kvops-/,
    result: 'explained',
    tests: [
      'goldens/tiers/upstream-tiered-operations.test.ts',
      'goldens/upstream/upstream-kv-operations.test.ts',
    ],
    how: 'D3, D4, D11 to D13: the models of the stores are equal in all that is recorded',
  },
  {
    files: /^micro\/steps-(chunked|maxlen|preempt-priority|prefix-single|simple|sjf)\.json/,
    result: 'equal',
    tests: ['goldens/upstream/upstream-steps.test.ts'],
    how: 'every step',
  },
  {
    files: /^micro\/steps-(fullhit|preempt-fcfs|prefix6-single)\.json/,
    result: 'explained',
    tests: ['goldens/upstream/upstream-steps.test.ts'],
    how: 'D1, U1, U3',
  },
  {
    files: /^micro\/steps-/,
    result: 'explained',
    tests: ['goldens/tiers/upstream-tiered-models.test.ts', 'goldens/upstream/upstream-tiered-steps.test.ts'],
    how: 'D3, D4, D12, D13: the models are equal in every step',
  },
  {
    files: /^upstream-testdata\/goldendataset\.json$/,
    result: 'explained',
    tests: ['goldens/experiments/upstream-dataset.test.ts'],
    how: 'U6, U8: the model is equal',
  },
  {
    files: /^upstream-testdata\/trained_physics_iter29\.json$/,
    result: 'explained',
    tests: ['goldens/experiments/upstream-experiments.test.ts'],
    how: '13 of 15 equal, 62 and 64 under the model (U6); six run in the suite, all by experiments/run.ts',
  },
  {
    files: /^upstream-testdata\/roofline_goldendataset\.json$/,
    result: 'explained',
    tests: ['goldens/experiments/upstream-experiments.test.ts'],
    how: 'U8: 15 of 15 under the model; one runs in the suite, all by experiments/run.ts',
  },
  {
    files: /^workload-traces\/.*\.csv\.gz$/,
    result: 'equal',
    tests: ['sim/workload/trace/golden-traces.test.ts'],
    how: 'the input columns; arrivals of follow-ups are those of the golden',
  },
  {
    files: /^workload-traces\/.*\.yaml$/,
    result: 'equal',
    tests: ['sim/workload/trace/trace-v2.test.ts', 'sim/workload/trace/golden-traces.test.ts'],
    how: 'headers',
  },
  {
    files: /^inputs\/offload-cpu-nvme\.yaml$/,
    result: 'input',
    tests: [],
    how: 'no case reads it; offload-cpu-nvme-decode.yaml is read by 23',
  },
  {
    files: /^(inputs|data)\//,
    result: 'input',
    tests: [],
    how: 'what cases read',
  },
  {
    files: /^real-h100\/vllm_h100_steps\.csv\.gz$/,
    result: 'measured',
    tests: ['sim/latency/accuracy.test.ts'],
    how: 'steps that step times are judged by',
  },
  {
    files: /^real-h100\//,
    result: 'measured',
    tests: [],
    how: 'kernel tables, means of runs, and upstream predictions for means of steps',
  },
];

export function accountOf(file: string): Account | undefined {
  return accounts.find(({ files }) => files.test(file));
}
