/**
 * From a spec to the flat list of clients that generate: inference_perf and cohorts become clients, in
 * upstream's order. Members of one cohort share their windows by reference, which keeps later sums over
 * clients linear.
 */

import { TierKVError } from '../../../runtime/errors.ts';
import { elementary } from '../../random/index.ts';
import type { ActiveWindow, ClientSpec, CohortSpec, InferencePerfSpec, WorkloadSpec } from '../spec/types.ts';

const HOUR_US = 3_600_000_000;
const DRAIN_SEGMENTS = 10;
const MAX_CLIENTS = 500_000;

export interface ExpandedSpec {
  readonly clients: readonly ClientSpec[];
  readonly aggregateRate: number;
}

/** All clients of a spec; servegen_data must have been turned into cohorts before. */
export function expandClients(spec: WorkloadSpec): ExpandedSpec {
  const perf = spec.inferencePerf === undefined ? undefined : expandInferencePerf(spec.inferencePerf);
  const members = spec.cohorts.reduce((sum, cohort) => sum + cohort.population, 0);
  requireCount('cohorts', (perf?.clients ?? spec.clients).length + members, 'Lower the populations');
  const clients = [...(perf?.clients ?? spec.clients)];
  for (const cohort of spec.cohorts) for (const member of expandCohort(cohort)) clients.push(member);
  return { clients, aggregateRate: perf?.aggregateRate ?? spec.aggregateRate };
}

function requireCount(field: string, clients: number, remedy: string): void {
  if (clients <= MAX_CLIENTS) return;
  const problem = `${field} asks for ${clients} clients, more than ${MAX_CLIENTS}`;
  throw new TierKVError('TKV_INPUT', `${problem}. ${remedy}`, { field });
}

function expandCohort(cohort: CohortSpec): ClientSpec[] {
  const windows = cohortWindows(cohort);
  const { population, prefixSharing, diurnal: _d, spike: _s, drain: _r, ...traffic } = cohort;
  return Array.from({ length: population }, (_, member) => ({
    ...traffic,
    id: `${cohort.id}-${member}`,
    rateFraction: cohort.rateFraction / population,
    prefixGroup:
      prefixSharing === 'per_member' && cohort.prefixGroup !== ''
        ? `${cohort.prefixGroup}-${member}`
        : cohort.prefixGroup,
    concurrency: 0,
    thinkTimeUs: 0,
    windows,
  }));
}

function cohortWindows(cohort: CohortSpec): ActiveWindow[] {
  const windows: ActiveWindow[] = [];
  if (cohort.diurnal !== undefined)
    windows.push(...diurnalWindows(cohort.diurnal.peakHour, cohort.diurnal.peakToTroughRatio));
  if (cohort.spike !== undefined) {
    const { startUs, durationUs, traceRate } = cohort.spike;
    windows.push({
      startUs,
      endUs: startUs + durationUs,
      ...(traceRate === undefined ? {} : { traceRate: traceRate / cohort.population }),
    });
  }
  if (cohort.drain !== undefined)
    windows.push(...drainWindows(cohort.drain.startUs, cohort.drain.rampDurationUs));
  return windows;
}

/** 24 windows, one an hour, the active share of which follows a cosine with its peak at `peakHour`. */
export function diurnalWindows(peakHour: number, peakToTroughRatio: number): ActiveWindow[] {
  return Array.from({ length: 24 }, (_, hour) => {
    const angle = (2 * Math.PI * (hour - peakHour)) / 24;
    const share = ((1 + elementary.cos(angle)) / 2) * (1 - 1 / peakToTroughRatio) + 1 / peakToTroughRatio;
    const activeUs = Math.min(HOUR_US, Math.max(1, Math.trunc(HOUR_US * share)));
    return { startUs: hour * HOUR_US, endUs: hour * HOUR_US + activeUs };
  });
}

/** Always on until `startUs`, then ten segments that are active for 100 %, 90 % … 10 % of their length. */
export function drainWindows(startUs: number, rampDurationUs: number): ActiveWindow[] {
  const segmentUs = Math.max(1, Math.trunc(rampDurationUs / DRAIN_SEGMENTS));
  const windows: ActiveWindow[] = startUs > 0 ? [{ startUs: 0, endUs: startUs }] : [];
  for (let i = 0; i < DRAIN_SEGMENTS; i++) {
    const share = (DRAIN_SEGMENTS - i) / DRAIN_SEGMENTS;
    const from = startUs + i * segmentUs;
    windows.push({ startUs: from, endUs: from + Math.max(1, Math.trunc(segmentUs * share)) });
  }
  return windows;
}

/** `total` in `parts` shares that differ by at most one, the larger ones first. */
function evenShares(total: number, parts: number): number[] {
  const base = Math.floor(total / parts);
  return Array.from({ length: parts }, (_, i) => base + (i < total % parts ? 1 : 0));
}

function expandInferencePerf(perf: InferencePerfSpec): ExpandedSpec {
  const perStage = perf.systemPrompts * perf.usersPerPrompt;
  requireCount('inference_perf', perStage * perf.stages.length, 'Lower the prompts or the users');
  const staged = perf.stages.length > 1;
  const clients: ClientSpec[] = [];
  let aggregateRate = 0;
  let startS = 0;
  perf.stages.forEach((stage, s) => {
    aggregateRate += stage.rate;
    const windows = staged ? [{ startUs: startS * 1e6, endUs: (startS + stage.durationS) * 1e6 }] : [];
    startS += stage.durationS;
    const shares = requestShares(perf, stage, s, perStage);
    for (let i = 0; i < perStage; i++) {
      const group = `prompt-${Math.floor(i / perf.usersPerPrompt)}`;
      const id = `${group}-user-${i % perf.usersPerPrompt}`;
      clients.push({
        id: staged ? `stage-${s}-${id}` : id,
        tenantId: group,
        sloClass: 'standard',
        model: '',
        adapter: '',
        rateFraction: staged ? 1 : 1 / perStage,
        arrival: { process: 'poisson' },
        inputLength: { type: 'constant', value: perf.questionTokens },
        outputLength: { type: 'constant', value: perf.outputTokens },
        prefixGroup: group,
        prefixLength: perf.systemPromptTokens,
        streaming: false,
        sloTargetUs: 0,
        concurrency: 0,
        thinkTimeUs: 0,
        windows,
        ...(staged ? { ownArrivals: { kind: 'poisson', ratePerUs: stage.rate / perStage / 1e6 } } : {}),
        ...(!staged && !perf.multiTurn
          ? { ownArrivals: { kind: 'exactly', requests: shares[i], durationUs: stage.durationS * 1e6 } }
          : {}),
        ...(perf.multiTurn
          ? {
              reasoning: {
                reasonRatio: { type: 'constant', value: 0 },
                multiTurn: {
                  maxRounds: shares[i],
                  thinkTimeUs: Math.trunc((perStage / stage.rate) * 1e6),
                  accumulate: false,
                  singleSession: true,
                },
              },
            }
          : {}),
      });
    }
  });
  return { clients, aggregateRate };
}

/** Requests of every client of a stage, where the stage counts them; a client without any is an error. */
function requestShares(
  perf: InferencePerfSpec,
  stage: InferencePerfSpec['stages'][number],
  index: number,
  clients: number,
): number[] {
  if (perf.stages.length > 1 && !perf.multiTurn) return [];
  const requests = Math.trunc(stage.rate * stage.durationS);
  if (requests >= clients && requests <= stage.durationS * 1e6) return evenShares(requests, clients);
  const field = `inference_perf.stages[${index}]`;
  const problem =
    requests < clients
      ? `${requests} requests are fewer than its ${clients} clients`
      : `${requests} requests are more than its microseconds`;
  throw new TierKVError('TKV_INPUT', `${field}: ${problem}. Change rate, duration or the number of users`, {
    field,
  });
}
