/**
 * Settings of what is served: the workload, its seeds and its end, the targets of goodput, and the file that describes a deployment.
 */

/** The workload, its seeds and its end. */
export const workloadKnobs = {
  'workload.preset': {
    flags: '--workload <name>',
    about:
      'chat (conversations), chatbot, contentgen, summarization, multidoc or distribution, instead of a file',
    kind: 'text',
    shapesPreset: true,
  },
  'workload.rate': {
    flags: '--rate <n>',
    about: 'requests a second; of conversations all rounds count',
    kind: 'number',
    in: 'workload',
    shapesPreset: true,
  },
  'workload.concurrency': {
    flags: '--concurrency <n>',
    about: 'users in closed loop, instead of --rate',
    kind: 'number',
    in: 'workload',
    shapesPreset: true,
  },
  'workload.thinkTimeMs': {
    flags: '--think-time-ms <time>',
    about: 'pause of such a user, as 2s, or in milliseconds',
    kind: 'time',
    counts: 'ms',
    in: 'workload',
    shapesPreset: true,
    needs: ['pauses'],
  },
  'workload.prefixTokens': {
    flags: '--prefix-tokens <n>',
    about: 'length of a shared prefix',
    kind: 'number',
    in: 'workload',
    shapesPreset: true,
  },
  'workload.prompt.mean': {
    flags: '--prompt-tokens <n>',
    about: 'mean prompt length',
    kind: 'number',
    in: 'workload',
    shapesPreset: true,
    isLone: true,
  },
  'workload.prompt.stdDev': {
    flags: '--prompt-tokens-stdev <n>',
    about: 'its deviation',
    kind: 'number',
    in: 'workload',
    shapesPreset: true,
  },
  'workload.prompt.min': {
    flags: '--prompt-tokens-min <n>',
    about: 'its least',
    kind: 'number',
    in: 'workload',
    shapesPreset: true,
  },
  'workload.prompt.max': {
    flags: '--prompt-tokens-max <n>',
    about: 'its most',
    kind: 'number',
    in: 'workload',
    shapesPreset: true,
  },
  'workload.output.mean': {
    flags: '--output-tokens <n>',
    about: 'mean output length',
    kind: 'number',
    in: 'workload',
    shapesPreset: true,
    isLone: true,
  },
  'workload.output.stdDev': {
    flags: '--output-tokens-stdev <n>',
    about: 'its deviation',
    kind: 'number',
    in: 'workload',
    shapesPreset: true,
  },
  'workload.output.min': {
    flags: '--output-tokens-min <n>',
    about: 'its least',
    kind: 'number',
    in: 'workload',
    shapesPreset: true,
  },
  'workload.output.max': {
    flags: '--output-tokens-max <n>',
    about: 'its most',
    kind: 'number',
    in: 'workload',
    shapesPreset: true,
  },
  'workload.columns': {
    flags: '--columns <mapping>',
    about: 'which columns of a CSV are what: arrival=ts:s,input=prompt_len,output=gen_len',
    kind: 'text',
  },
  'workload.dropEmpty': {
    flags: '--drop-empty',
    about: 'leave out rows without prompt or output tokens, and count them',
    kind: 'flag',
  },
  'workload.sort': { flags: '--sort', about: 'sort the rows of a trace by time', kind: 'flag' },
  'workload.file': {
    flags: '--workload-spec <file>',
    about: 'workload specification or recorded trace',
    kind: 'file',
  },
  'workload.traceHeader': {
    flags: '--trace-header <file>',
    about: 'header of a recorded TraceV2, with --trace-data',
    kind: 'file',
  },
  'workload.traceData': {
    flags: '--trace-data <file>',
    about: 'rows of a recorded TraceV2; ends at twice its last arrival, as upstream (an argument serves all)',
    kind: 'file',
  },
  seed: {
    flags: '--seed <n>',
    about: "random key, a 64-bit integer (default: 42; of requests the specification's, where it has one)",
    kind: 'seed',
  },
  simulationSeed: {
    flags: '--simulation-seed <n>',
    about: 'what routing and admission draw from (default: as --seed, else 42)',
    kind: 'seed',
  },
  jitterSeed: {
    flags: '--jitter-seed <n>',
    about: 'what delays of machines that come are drawn from (default: as --seed, else 42)',
    kind: 'seed',
    needs: ['scales'],
  },
  'workload.requests': {
    flags: '--num-requests <n>',
    about: 'most requests; of conversations in closed loop, planned ones, and all that begin are served',
    kind: 'integer',
    min: 0,
    in: 'workload',
  },
  horizonUs: {
    flags: '--horizon <time>',
    about: 'end of the simulation, as 10m, or in microseconds',
    kind: 'time',
    counts: 'us',
    min: 1,
    max: 9_223_372_036_854_776_000,
    whole: true,
  },
  'workload.timeoutS': {
    flags: '--timeout <time>',
    about: 'deadline of every request, as 30s, or in seconds; negative: none',
    kind: 'time',
    counts: 's',
    needs: ['specification'],
  },
  'workload.profile': {
    flags: '--profile <profile>',
    about: 'load over time, as ramp:from=2,to=20,duration=600',
    kind: 'text',
    needs: ['specification'],
  },
  'workload.sessionMode': {
    flags: '--session-mode <name>',
    about:
      'recorded sessions: fixed, at their recorded times, or closed-loop, after the round before has ended',
    kind: 'name',
    names: ['fixed', 'closed-loop'],
    or: 'fixed',
    needs: ['recorded'],
  },
  asUpstream: {
    flags: '--as-upstream',
    about:
      "upstream's defaults and text: its model of time without a floor, its preemption, its memory of a GPU; the last token of an answer is left out of its conversation, ratios of a cluster are means over instances, and --flow-control replaces the admission policy",
    kind: 'flag',
  },
} as const;

/** A deployment in a file. */
export const fileKnobs = {
  file: {
    flags: '--deployment <file>',
    about: 'whole deployment in YAML, in place of all options that describe one',
    kind: 'file',
  },
  set: {
    flags: '--set <field=value>',
    about: 'a field of the deployment, as pools[0].replicas=4; repeatable',
    kind: 'texts',
  },
} as const;

/** Targets of goodput by class. */
export const targetKnobs = {
  'targets.ttftMs': {
    flags: '--slo-ttft <list>',
    about: 'targets of goodput by class, as critical=100ms,standard=500ms',
    kind: 'targets',
  },
  'targets.itlMs': {
    flags: '--slo-itl <list>',
    about: 'the same for the mean time between tokens',
    kind: 'targets',
  },
  'targets.e2eMs': { flags: '--slo-e2e <list>', about: 'the same for the whole request', kind: 'targets' },
} as const;
