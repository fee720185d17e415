/** The workload of a simulation: a preset, a specification, or any recorded trace. */

import { readText } from '../files/inputs.ts';
import {
  type Format,
  formatOf,
  type OpenedWorkload,
  type OpenOptions,
  openSpec,
  openWorkload,
  readSpec,
  servegenSpec,
} from '../files/openWorkload.ts';
import { configError } from '../runtime/errors.ts';
import type { SimulatedWorkload } from '../sim/cluster/parts.ts';
import type { WorkloadSpec } from '../sim/description/workloadSpec.ts';
import { type RequestStream, requestsOf, type WorkloadRequest } from '../sim/workload/request.ts';
import { type ClosedLoopTrace, closedLoopTrace, readTraceHeader } from '../sim/workload/traceV2.ts';
import { oneOf } from './engineOptions.ts';
import { seedOption } from './numberOptions.ts';
import { textOption, wholeOption } from './options.ts';
import type { OptionValues } from './optionTable.ts';
import {
  adjustmentOf,
  openOptions,
  presetSpec,
  refusePresetOptions,
  refuseTraceOptions,
  usedByFormat,
} from './presetOptions.ts';

export interface OpenedSimulation {
  readonly workload: SimulatedWorkload;
  readonly spec: WorkloadSpec | undefined;
  /** Number of requests for a progress bar; Infinity where it is unknown. */
  readonly expected: number;
  readonly seed: bigint;
  readonly horizonUs: number;
  /** Whether the horizon is upstream's end of a replay, and not given by an option. */
  readonly endsAsUpstream: boolean;
  /** The workload file, and the workload that was opened. */
  readonly file: string | undefined;
  readonly source: OpenedWorkload;
}

/** Most requests of a generated workload: each takes about a KiB until the end of the run. */
const mostExpected = 4_000_000;

/** Seed where none is given; upstream's. */
const SEED = 42n;

/**
 * A workload as plain data: a specification is read, a recorded trace is named. What options say of a preset, and of
 * how a trace is served, is read when it is opened.
 */
export type PlannedWorkload = WorkloadSource & {
  /** Factor of the rate of requests; default 1. Sessions keep their pauses. */
  readonly load?: number;
};

type WorkloadSource =
  | { readonly kind: 'preset' }
  | {
      readonly kind: 'spec';
      readonly spec: WorkloadSpec;
      readonly format: Format;
      /** Undefined for a specification that stands in a deployment file. */
      readonly file: string | undefined;
    }
  | { readonly kind: 'trace'; readonly file: string; readonly format: Format };

/** @param spec workload where neither a file nor a preset is named */
export function planWorkload(
  trace: string | undefined,
  options: OptionValues,
  spec?: WorkloadSpec,
): PlannedWorkload {
  const file = workloadFile(trace, options);
  if (file === undefined) {
    return spec === undefined ? { kind: 'preset' } : { kind: 'spec', spec, format: 'spec', file };
  }
  const format = options.columns === undefined ? formatOf(file) : 'columns';
  if (format === 'spec') return { kind: 'spec', spec: readSpec(file), format, file };
  if (format !== 'servegen') {
    openWorkload(file, { ...openOptions(options), format }); // finds the files beside it
    return { kind: 'trace', file, format };
  }
  return { kind: 'spec', spec: servegenSpec(file, seedOption(options) ?? SEED), format, file };
}

/** Plans a workload and opens it. @param adjust changes a specification further, after the options did */
export function openSimulation(
  trace: string | undefined,
  options: OptionValues,
  adjust: (spec: WorkloadSpec) => WorkloadSpec = (spec) => spec,
): OpenedSimulation {
  return openPlanned(planWorkload(trace, options), options, adjust);
}

/** @param adjust changes a specification further, after the options did */
export function openPlanned(
  planned: PlannedWorkload,
  options: OptionValues,
  adjust: (spec: WorkloadSpec) => WorkloadSpec = (spec) => spec,
): OpenedSimulation {
  const { load = 1 } = planned;
  const faster: Adjust = (spec) => (load === 1 ? spec : atLoad(spec, load));
  const opened = openSource(planned, options, (spec) => adjust(faster(spec)));
  const file = planned.kind === 'preset' ? undefined : planned.file;
  if (opened.taken === undefined) refuseTraceOptions(options, file ?? 'the workload');
  const limit = wholeOption(options, 'numRequests', 0) ?? opened.spec?.numRequests ?? 0;
  const source = file ?? (planned.kind === 'preset' ? undefined : 'the workload of the deployment');
  const mode = oneOf('--session-mode', String(options.sessionMode ?? 'fixed'), ['fixed', 'closed-loop']);
  if (source !== undefined) {
    const pauses = mode === 'fixed' ? [] : ['thinkTimeMs'];
    refusePresetOptions(options, source, [...usedByFormat(opened.format), ...pauses]);
  }
  const loop = mode === 'fixed' ? undefined : recordedLoop(file, opened, limit, options);
  const sessions = opened.workload?.sessions ?? loop?.sessions;
  return {
    workload: {
      stream: sooner(loop?.stream ?? limited(opened, limit), opened.workload === undefined ? load : 1),
      sessions,
      sharesNothing: sharesNothing(opened),
    },
    spec: opened.spec,
    expected: limit > 0 ? limit : Infinity,
    seed: seedOption(options) ?? SEED,
    horizonUs: horizonOf(options, opened),
    endsAsUpstream: options.traceData !== undefined && options.horizon === undefined,
    file,
    source: opened,
  };
}

function openSource(planned: PlannedWorkload, options: OptionValues, adjust: Adjust): OpenedWorkload {
  switch (planned.kind) {
    case 'preset':
      return openPreset(options, adjust);
    case 'spec':
      return openSpec(planned.spec, adjusted(options, adjust), planned.format);
    case 'trace':
      return openWorkload(planned.file, { ...adjusted(options, adjust), format: planned.format });
  }
}

/** The workload file, given as an argument or by an option. */
function workloadFile(trace: string | undefined, options: OptionValues): string | undefined {
  const rows = textOption(options, 'traceData');
  const named: [string, string | undefined][] = [
    [trace ?? '', trace],
    ['--workload-spec', textOption(options, 'workloadSpec')],
    ['--trace-data', rows],
  ];
  const [first, second] = named.filter(([, file]) => file !== undefined);
  if (second !== undefined) throw configError(second[0], `excludes ${first[0]}`, 'Keep one of them.');
  const header = textOption(options, 'traceHeader');
  if (header !== undefined) {
    if (rows === undefined) {
      throw configError('--trace-header', 'has no --trace-data', 'Name the rows that it heads.');
    }
    readTraceHeader(readText(header), header);
  }
  return first?.[1];
}

/** Sessions of a recorded trace in closed loop: each round waits for the one before. */
function recordedLoop(
  file: string | undefined,
  opened: OpenedWorkload,
  limit: number,
  options: OptionValues,
): ClosedLoopTrace {
  if (opened.workload !== undefined) {
    const problem = 'is closed-loop, which is for recorded traces, and this workload is generated';
    throw configError('--session-mode', problem, 'Leave it out.');
  }
  const pauseMs = wholeOption(options, 'thinkTimeMs', 0, 1e9);
  const pauseUs = pauseMs === undefined ? undefined : 1000 * pauseMs;
  const loop = closedLoopTrace(requestsOf(limited(opened, limit)), pauseUs);
  if (loop.sessions.seeds.length > 0) return loop;
  throw configError('--session-mode', `is closed-loop, and ${file} has no sessions`, 'Leave it out.');
}

/** Whether no two prompts share a prefix: no client has prefixes or sessions. */
function sharesNothing({ workload }: OpenedWorkload): boolean {
  if (workload === undefined || workload.sessions !== undefined) return false;
  return workload.clients.every(
    ({ prefixGroup, prefixLength, reasoning, prefixes }) =>
      prefixGroup === '' &&
      prefixLength === 0 &&
      reasoning?.multiTurn === undefined &&
      prefixes === undefined,
  );
}

function horizonOf(options: OptionValues, opened: OpenedWorkload): number {
  const asked = wholeOption(options, 'horizon', 1, 2 ** 63);
  if (asked !== undefined) return Number.isSafeInteger(asked) ? asked : Infinity;
  const isReplay = textOption(options, 'traceData') !== undefined;
  return isReplay ? replayHorizonUs(opened) : (opened.spec?.horizonUs ?? Infinity);
}

/**
 * Upstream's end of a replay: twice the last arrival, or ten minutes where all arrive at once. It is known
 * only at the end of the trace, and needed at the beginning: the trace is read once for it alone.
 */
function replayHorizonUs(opened: OpenedWorkload): number {
  let lastUs = 0;
  for (const { arrivalUs } of opened.requests()) lastUs = Math.max(lastUs, arrivalUs);
  return lastUs > 0 ? 2 * lastUs : 600e6;
}

type Adjust = (spec: WorkloadSpec) => WorkloadSpec;

function adjusted(options: OptionValues, adjust: Adjust): OpenOptions {
  const given = openOptions(options);
  return {
    ...given,
    limits: { ...given.limits, mostExpected },
    adjust: (spec) => adjust(given.adjust?.(spec) ?? spec),
  };
}

function openPreset(options: OptionValues, adjust: Adjust): OpenedWorkload {
  const limits = { ...openOptions(options).limits, mostExpected };
  const byOptions = adjustmentOf(options, true);
  return openSpec(presetSpec(options), {
    limits,
    adjust: (spec) => adjust(byOptions(spec)),
  });
}

/** The stream with at most `limit` requests of a recorded trace; a generated one has its own limit. */
function limited(opened: OpenedWorkload, limit: number): RequestStream {
  if (opened.workload !== undefined) return opened.workload.stream();
  const requests = opened.requests()[Symbol.iterator]();
  let taken = 0;
  return {
    next(): WorkloadRequest | undefined {
      if (limit > 0 && taken === limit) return undefined;
      taken++;
      const { done, value } = requests.next();
      return done === true ? undefined : value;
    },
  };
}

/** The specification with `load` times the requests a second. */
function atLoad(spec: WorkloadSpec, load: number): WorkloadSpec {
  if (!(spec.aggregateRate > 0)) {
    const problem = 'has no aggregate_rate, so that its load cannot be raised';
    throw configError('workload', problem, 'Give it a rate.');
  }
  return { ...spec, aggregateRate: spec.aggregateRate * load };
}

/** Recorded requests at `load` times their rate. */
function sooner(stream: RequestStream, load: number): RequestStream {
  if (load === 1) return stream;
  return {
    next(): WorkloadRequest | undefined {
      const request = stream.next();
      if (request === undefined) return undefined;
      const arrivalUs = Math.round(request.arrivalUs / load);
      const { deadlineUs } = request;
      const untilUs = deadlineUs === 0 ? 0 : deadlineUs - request.arrivalUs + arrivalUs;
      const { cancelUs = 0 } = request;
      const given = cancelUs === 0 ? {} : { cancelUs: cancelUs - request.arrivalUs + arrivalUs };
      return { ...request, arrivalUs, deadlineUs: untilUs, ...given };
    },
  };
}
