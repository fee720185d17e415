/**
 * Settings of what is served: the workload, its seeds and its end, the targets of goodput, and the file that describes a deployment.
 */

import type { WorkloadRequest } from '../../workload/request.ts';

/** A request as it comes `factor` times as soon; how long its user waits stays as it was. */
export function atSpeed(request: WorkloadRequest, factor: number): WorkloadRequest {
  const arrivalUs = Math.round(request.arrivalUs / factor);
  const later = arrivalUs - request.arrivalUs;
  const { deadlineUs, cancelUs = 0 } = request;
  return {
    ...request,
    arrivalUs,
    deadlineUs: deadlineUs === 0 ? 0 : deadlineUs + later,
    ...(cancelUs === 0 ? {} : { cancelUs: cancelUs + later }),
  };
}

/** The workload, its seeds and its end. */
export const workloadKnobs = {
  'workload.preset': {
    flags: '--workload <name>',
    about:
      'preset workload instead of a file: chat (multi-turn), chatbot, contentgen, summarization, multidoc or distribution',
    kind: 'text',
    shapesPreset: true,
  },
  'workload.rate': {
    flags: '--rate <n>',
    about: 'arrival rate in requests per second; of conversations all rounds count',
    kind: 'number',
    in: 'workload',
    shapesPreset: true,
  },
  'workload.concurrency': {
    flags: '--concurrency <n>',
    about: 'closed-loop users, instead of --rate',
    kind: 'number',
    in: 'workload',
    shapesPreset: true,
  },
  'workload.thinkTimeMs': {
    flags: '--think-time-ms <time>',
    about: 'think time of a closed-loop user, as 2s, or in milliseconds',
    kind: 'time',
    counts: 'ms',
    in: 'workload',
    shapesPreset: true,
    needs: ['pauses'],
  },
  'workload.prefixTokens': {
    flags: '--prefix-tokens <n>',
    about: 'length of a shared prompt prefix',
    kind: 'number',
    in: 'workload',
    shapesPreset: true,
  },
  'workload.lengthRange': {
    flags: '--length-range <share>',
    about: 'draw lengths evenly from this share of --prompt-tokens and --output-tokens up to them, as 0.8',
    kind: 'number',
    min: 0.001,
    max: 1,
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
    about: 'standard deviation of prompt length',
    kind: 'number',
    in: 'workload',
    shapesPreset: true,
  },
  'workload.prompt.min': {
    flags: '--prompt-tokens-min <n>',
    about: 'minimum prompt length',
    kind: 'number',
    in: 'workload',
    shapesPreset: true,
  },
  'workload.prompt.max': {
    flags: '--prompt-tokens-max <n>',
    about: 'maximum prompt length',
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
    about: 'standard deviation of output length',
    kind: 'number',
    in: 'workload',
    shapesPreset: true,
  },
  'workload.output.min': {
    flags: '--output-tokens-min <n>',
    about: 'minimum output length',
    kind: 'number',
    in: 'workload',
    shapesPreset: true,
  },
  'workload.output.max': {
    flags: '--output-tokens-max <n>',
    about: 'maximum output length',
    kind: 'number',
    in: 'workload',
    shapesPreset: true,
  },
  'workload.columns': {
    flags: '--columns <mapping>',
    about: 'columns of a CSV trace, as arrival=ts:s,input=prompt_len,output=gen_len',
    kind: 'text',
  },
  'workload.dropEmpty': {
    flags: '--drop-empty',
    about: 'drop and count rows without prompt or output tokens',
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
    about: 'header of a TraceV2 trace, with --trace-data',
    kind: 'file',
  },
  'workload.traceData': {
    flags: '--trace-data <file>',
    about:
      'rows of a TraceV2 trace; the run ends at twice its last arrival, as in BLIS (an argument serves all)',
    kind: 'file',
  },
  seed: {
    flags: '--seed <n>',
    about: "random seed, a 64-bit integer (default: 42; for requests the specification's, where it has one)",
    kind: 'seed',
  },
  simulationSeed: {
    flags: '--simulation-seed <n>',
    about: 'seed of routing and admission (default: --seed, else 42)',
    kind: 'seed',
  },
  jitterSeed: {
    flags: '--jitter-seed <n>',
    about: 'seed of provisioning delays (default: --seed, else 42)',
    kind: 'seed',
    needs: ['scales'],
  },
  'workload.requests': {
    flags: '--num-requests <n>',
    about: 'maximum number of requests; of closed-loop conversations, those planned',
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
    about: 'load profile over time, as ramp:from=2,to=20,duration=600',
    kind: 'text',
    needs: ['specification'],
  },
  'workload.speedup': {
    flags: '--speedup <x>',
    about: 'factor by which the requests of a recorded trace arrive sooner, as in tierkv observe',
    kind: 'number',
    min: 1e-6,
    max: 1e6,
    or: 1,
    needs: ['recorded'],
    shapes: (request: WorkloadRequest, factor: number): WorkloadRequest => atSpeed(request, factor),
  },
  'workload.sessionMode': {
    flags: '--session-mode <name>',
    about:
      'replay of recorded sessions: fixed (at their recorded times) or closed-loop (after the previous round)',
    kind: 'name',
    names: ['fixed', 'closed-loop'],
    or: 'fixed',
    needs: ['recorded'],
  },
  asUpstream: {
    flags: '--as-upstream',
    about:
      'defaults and output of BLIS: no latency floor, its preemption and GPU memory; conversations leave the last token of an answer out, cluster ratios are means over instances, and --flow-control replaces the admission policy',
    kind: 'flag',
  },
} as const;

/** A deployment in a file. */
export const fileKnobs = {
  file: {
    flags: '--deployment <file>',
    about: 'deployment file in YAML, in place of all options that describe a deployment',
    kind: 'file',
  },
  set: {
    flags: '--set <field=value>',
    about: 'override a field of the deployment file, as pools[0].replicas=4; repeatable',
    kind: 'texts',
  },
} as const;

/** Targets of goodput by class. */
export const targetKnobs = {
  'targets.ttftMs': {
    flags: '--slo-ttft <list>',
    about: 'TTFT targets of goodput by SLO class, as critical=100ms,standard=500ms',
    kind: 'targets',
  },
  'targets.itlMs': {
    flags: '--slo-itl <list>',
    about: 'inter-token latency targets by SLO class',
    kind: 'targets',
  },
  'targets.e2eMs': {
    flags: '--slo-e2e <list>',
    about: 'end-to-end latency targets by SLO class',
    kind: 'targets',
  },
} as const;
