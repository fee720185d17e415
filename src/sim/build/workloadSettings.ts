/** The workload of a simulation: a preset, a specification, or any recorded trace. */

import { readText } from '../../io/files/inputs.ts';
import { configError } from '../../runtime/errors.ts';
import type { SimulatedWorkload } from '../cluster/parts.ts';
import { atSpeed } from '../description/knobs/workload.ts';
import { knobs, type Path, paths } from '../description/knobs.ts';
import { type Deployment, fault, get, isGiven, nameOf, saidOfSettings } from '../description/settings.ts';
import type { WorkloadSpec } from '../description/workloadSpec.ts';
import { type RequestStream, requestsOf, type WorkloadRequest } from '../workload/request.ts';
import { type ClosedLoopTrace, closedLoopTrace, readTraceHeader } from '../workload/traceV2.ts';
import {
  type Format,
  formatOf,
  type OpenedWorkload,
  type OpenOptions,
  openSpec,
  openWorkload,
  readSpec,
  servegenSpec,
} from './openWorkload.ts';
import {
  adjustmentOf,
  openOptions,
  presetSpec,
  refusePresetSettings,
  refuseTraceSettings,
  usedByFormat,
  workloadField,
} from './presetSettings.ts';

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
 * A workload as plain data: a specification is read, a recorded trace is named. What settings say of a preset, and of
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
export function planWorkload(deployment: Deployment, spec?: WorkloadSpec): PlannedWorkload {
  const file = workloadFile(deployment);
  if (file === undefined) {
    return spec === undefined ? { kind: 'preset' } : { kind: 'spec', spec, format: 'spec', file };
  }
  const format = isGiven(deployment, 'workload.columns') ? 'columns' : formatOf(file);
  if (format === 'spec') return { kind: 'spec', spec: readSpec(file), format, file };
  if (format !== 'servegen') {
    // finds the files beside it
    said(deployment, () => openWorkload(file, { ...openOptions(deployment), format }));
    return { kind: 'trace', file, format };
  }
  return { kind: 'spec', spec: servegenSpec(file, get(deployment, 'seed') ?? SEED), format, file };
}

function said<T>(deployment: Deployment, act: () => T): T {
  return saidOfSettings(deployment, workloadField, act);
}

/** Plans a workload and opens it. @param adjust changes a specification further, after the settings did */
export function openSimulation(
  deployment: Deployment,
  adjust: (spec: WorkloadSpec) => WorkloadSpec = (spec) => spec,
): OpenedSimulation {
  return openPlanned(planWorkload(deployment), deployment, adjust);
}

/** @param adjust changes a specification further, after the settings did */
export function openPlanned(
  planned: PlannedWorkload,
  deployment: Deployment,
  adjust: (spec: WorkloadSpec) => WorkloadSpec = (spec) => spec,
): OpenedSimulation {
  const { load = 1 } = planned;
  const faster: Adjust = (spec) => (load === 1 ? spec : atLoad(spec, load));
  const opened = shaped(
    deployment,
    said(deployment, () => openSource(planned, deployment, (spec) => adjust(faster(spec)))),
  );
  const file = planned.kind === 'preset' ? undefined : planned.file;
  if (opened.taken === undefined) refuseTraceSettings(deployment, file ?? 'the workload');
  const limit = get(deployment, 'workload.requests') ?? opened.spec?.numRequests ?? 0;
  const source = file ?? (planned.kind === 'preset' ? undefined : 'the workload of the deployment');
  const mode = get(deployment, 'workload.sessionMode');
  if (source !== undefined) {
    const pauses: Path[] = mode === 'fixed' ? [] : ['workload.thinkTimeMs'];
    refusePresetSettings(deployment, source, [...usedByFormat(opened.format), ...pauses]);
  }
  const loop = mode === 'fixed' ? undefined : recordedLoop(file, opened, limit, deployment);
  const sessions = opened.workload?.sessions ?? loop?.sessions;
  return {
    workload: {
      stream: sooner(
        loop?.stream ?? limited(opened, limit, deployment),
        opened.workload === undefined ? load : 1,
      ),
      sessions,
      sharesNothing: sharesNothing(opened),
    },
    spec: opened.spec,
    expected: limit > 0 ? limit : Infinity,
    seed: get(deployment, 'seed') ?? SEED,
    horizonUs: horizonOf(deployment, opened),
    endsAsUpstream: isGiven(deployment, 'workload.traceData') && !isGiven(deployment, 'horizonUs'),
    file,
    source: opened,
  };
}

/** A recorded trace as settings want its requests that say so in their rows. */
function shaped(deployment: Deployment, opened: OpenedWorkload): OpenedWorkload {
  const given = paths.filter((path) => knobs[path].shapes !== undefined && isGiven(deployment, path));
  if (given.length === 0 || opened.workload !== undefined) return opened;
  const shape = (request: WorkloadRequest): WorkloadRequest =>
    given.reduce((each, path) => knobs[path].shapes?.(each, get(deployment, path) as never) ?? each, request);
  return {
    ...opened,
    *requests() {
      for (const request of opened.requests()) yield shape(request);
    },
  };
}

function openSource(planned: PlannedWorkload, deployment: Deployment, adjust: Adjust): OpenedWorkload {
  switch (planned.kind) {
    case 'preset':
      return openPreset(deployment, adjust);
    case 'spec':
      return openSpec(planned.spec, adjusted(deployment, adjust), planned.format);
    case 'trace':
      return openWorkload(planned.file, { ...adjusted(deployment, adjust), format: planned.format });
  }
}

/** The workload file, whichever setting names it. */
function workloadFile(deployment: Deployment): string | undefined {
  const named = get(deployment, 'workload.file');
  const rows = get(deployment, 'workload.traceData');
  if (named !== undefined && rows !== undefined) {
    const problem = `excludes ${nameOf(deployment, 'workload.file')}`;
    throw fault(deployment, 'workload.traceData', problem, 'Keep one of them.');
  }
  const header = get(deployment, 'workload.traceHeader');
  if (header !== undefined) {
    if (rows === undefined) {
      const problem = `has no ${nameOf(deployment, 'workload.traceData')}`;
      throw fault(deployment, 'workload.traceHeader', problem, 'Name the rows that it heads.');
    }
    readTraceHeader(readText(header), header);
  }
  return named ?? rows;
}

/** Sessions of a recorded trace in closed loop: each round waits for the one before. */
function recordedLoop(
  file: string | undefined,
  opened: OpenedWorkload,
  limit: number,
  deployment: Deployment,
): ClosedLoopTrace {
  if (opened.workload !== undefined) {
    const problem = 'is closed-loop, which is for recorded traces, and this workload is generated';
    throw fault(deployment, 'workload.sessionMode', problem, 'Leave it out.');
  }
  const pauseMs = get(deployment, 'workload.thinkTimeMs');
  if (pauseMs !== undefined && !(Number.isInteger(pauseMs) && pauseMs >= 0 && pauseMs <= 1e9)) {
    const remedy = 'Set it to an integer from 0 to 1000000000.';
    throw fault(deployment, 'workload.thinkTimeMs', `is ${pauseMs}`, remedy);
  }
  const pauseUs = pauseMs === undefined ? undefined : 1000 * pauseMs;
  const loop = closedLoopTrace(requestsOf(limited(opened, limit, deployment)), pauseUs);
  if (loop.sessions.seeds.length > 0) return loop;
  const problem = `is closed-loop, and ${file} has no sessions`;
  throw fault(deployment, 'workload.sessionMode', problem, 'Leave it out.');
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

function horizonOf(deployment: Deployment, opened: OpenedWorkload): number {
  const asked = get(deployment, 'horizonUs');
  if (asked !== undefined) return Number.isSafeInteger(asked) ? asked : Infinity;
  const isReplay = isGiven(deployment, 'workload.traceData');
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

function adjusted(deployment: Deployment, adjust: Adjust): OpenOptions {
  const given = openOptions(deployment);
  return {
    ...given,
    limits: { ...given.limits, mostExpected },
    adjust: (spec) => adjust(given.adjust?.(spec) ?? spec),
  };
}

function openPreset(deployment: Deployment, adjust: Adjust): OpenedWorkload {
  const limits = { ...openOptions(deployment).limits, mostExpected };
  const byOptions = adjustmentOf(deployment, true);
  return openSpec(presetSpec(deployment), {
    limits,
    adjust: (spec) => adjust(byOptions(spec)),
  });
}

/** The stream with at most `limit` requests of a recorded trace; a generated one has its own limit. */
function limited(opened: OpenedWorkload, limit: number, deployment: Deployment): RequestStream {
  if (opened.workload !== undefined) return opened.workload.stream();
  const requests = opened.requests()[Symbol.iterator]();
  let taken = 0;
  return {
    next(): WorkloadRequest | undefined {
      if (limit > 0 && taken === limit) return undefined;
      taken++;
      const { done, value } = said(deployment, () => requests.next());
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
      return request === undefined ? undefined : atSpeed(request, load);
    },
  };
}
