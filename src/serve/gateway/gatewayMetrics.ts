/** The metrics of a gateway: what became of requests, how long they took, what each server behind it did, where shadows differ. */

import { requestBounds, ValueHistogram } from '../../observe/metrics/histogram.ts';
import { type Metric, type MetricSample, metric, single } from '../../observe/metrics/metric.ts';
import type { CacheMiss } from './diagnosis.ts';
import type { ShadowTally } from './shadowCounts.ts';
import type { StatusSource } from './status.ts';
import type { TracedRequest } from './trace.ts';

/** Prompts that were not found in a cache for one reason. */
interface MissTally {
  readonly why: CacheMiss['why'];
  misses: number;
  tokens: number;
}

/** Sizes and times of requests, counted when each has ended. */
export class GatewayMeasures {
  promptTokens = 0;
  cachedTokens = 0;
  outputTokens = 0;
  readonly timeToFirstToken: ValueHistogram = new ValueHistogram(requestBounds);
  readonly endToEnd: ValueHistogram = new ValueHistogram(requestBounds);
  readonly misses: Map<string, MissTally> = new Map();

  missed({ why, tokens }: CacheMiss): void {
    const tally = this.misses.get(why) ?? { why, misses: 0, tokens: 0 };
    tally.misses++;
    tally.tokens += tokens;
    this.misses.set(why, tally);
  }

  see({
    promptTokens,
    countedPromptTokens,
    cachedTokens,
    outputTokens,
    ttftUs,
    e2eUs,
    outcome,
  }: TracedRequest): void {
    this.promptTokens += countedPromptTokens < 0 ? promptTokens : countedPromptTokens;
    this.cachedTokens += Math.max(0, cachedTokens);
    this.outputTokens += outputTokens;
    if (ttftUs >= 0) this.timeToFirstToken.observe(ttftUs / 1e6);
    if (outcome === 'completed') this.endToEnd.observe(e2eUs / 1e6);
  }
}

interface MeasuredGateway extends Pick<StatusSource, 'pool' | 'counts' | 'shadows' | 'openRequests'> {
  readonly measures: GatewayMeasures;
}

type MeasuredBackend = MeasuredGateway['pool']['backends'][number];

const name = (bare: string): string => `tierkv_gateway_${bare}`;

/** A count of the gateway since its start. */
function count(
  bare: string,
  help: string,
  read: (of: MeasuredGateway) => number,
  unit = '{request}',
): Metric<MeasuredGateway> {
  return single('counter', name(bare), unit, help, read);
}

function byBackend(
  kind: 'counter' | 'gauge',
  bare: string,
  unit: string,
  help: string,
  read: (backend: MeasuredBackend) => number,
): Metric<MeasuredGateway> {
  return metric<MeasuredGateway>(kind, name(bare), unit, ['backend'], help, ({ pool }) =>
    pool.backends.map((backend): MetricSample => ({ labels: { backend: backend.id }, value: read(backend) })),
  );
}

function byMiss(
  bare: string,
  unit: string,
  help: string,
  read: (tally: MissTally) => number,
): Metric<MeasuredGateway> {
  return metric<MeasuredGateway>('counter', name(bare), unit, ['why'], help, ({ measures: { misses } }) =>
    [...misses.values()].map((tally): MetricSample => ({ labels: { why: tally.why }, value: read(tally) })),
  );
}

function byShadow(bare: string, help: string, read: (tally: ShadowTally) => number): Metric<MeasuredGateway> {
  return metric<MeasuredGateway>(
    'counter',
    name(bare),
    '{decision}',
    ['shadow'],
    help,
    ({ shadows: { tallies } }) =>
      tallies.map((tally): MetricSample => ({ labels: { shadow: tally.name }, value: read(tally) })),
  );
}

/** All metrics of a gateway, in the order of the reference page. */
export const gatewayMetrics: readonly Metric<MeasuredGateway>[] = [
  count('requests_total', 'Requests that came in.', (of) => of.counts.requests),
  count('completed_total', 'Requests whose answer was passed on whole.', (of) => of.counts.completed),
  count(
    'backend_errors_total',
    'Errors of servers that were passed on as they were.',
    (of) => of.counts.backendErrors,
  ),
  count(
    'invalid_total',
    'Requests whose body is not a JSON object, answered with 400.',
    (of) => of.counts.invalid,
  ),
  metric<MeasuredGateway>(
    'counter',
    name('refused_total'),
    '{request}',
    ['why'],
    'Requests that were refused before any decision on them, by the code of their error. They are in no other count.',
    ({ counts: { refused } }) =>
      [...refused].map(([why, value]): MetricSample => ({ labels: { why }, value })),
  ),
  count(
    'rejected_total',
    'Requests that the policy or a full queue turned away.',
    (of) => of.counts.rejected,
  ),
  count('unroutable_total', 'Requests that no server could take.', (of) => of.counts.unroutable),
  count(
    'failed_total',
    'Requests that no server answered in time, after all tries.',
    (of) => of.counts.failed,
  ),
  count('retries_total', 'Tries beyond the first one of a request.', (of) => of.counts.retries, '{try}'),
  count('clients_left_total', 'Requests whose client left before the end.', (of) => of.counts.clientsLeft),
  count('broken_answers_total', 'Answers that broke off or were too long.', (of) => of.counts.brokenAnswers),
  metric<MeasuredGateway>(
    'counter',
    name('unknown_ends_total'),
    '{answer}',
    ['reason'],
    'Answers that ended for a reason that is not known, by that reason. They count as completed too.',
    ({ counts: { unknownEnds } }) =>
      [...unknownEnds].map(([reason, value]): MetricSample => ({ labels: { reason }, value })),
  ),
  count(
    'chats_by_text_total',
    "Chats that the model's template did not render, keyed by their text.",
    (of) => of.counts.chatsByText,
  ),
  count(
    'prompts_miscounted_total',
    "Prompts of which a server counted other tokens than the gateway's tokenizer.",
    (of) => of.counts.promptsMiscounted,
  ),
  count('prefills_total', 'Prompts that one server computed for another.', (of) => of.counts.prefills),
  count(
    'prefills_failed_total',
    'Prompts that one server was to compute for another, which did it itself.',
    (of) => of.counts.prefillsFailed,
  ),
  single(
    'gauge',
    name('open_requests'),
    '{request}',
    'Requests that have come in and not ended.',
    (of) => of.openRequests,
  ),
  count(
    'prompt_tokens_total',
    "Tokens of the prompts of requests that ended: by the server's count, or else by the gateway's.",
    (of) => of.measures.promptTokens,
    '{token}',
  ),
  count(
    'cached_tokens_total',
    'Of these, tokens that servers said they found in their caches.',
    (of) => of.measures.cachedTokens,
    '{token}',
  ),
  byMiss(
    'cache_misses_total',
    '{request}',
    'Prompts that were not found in a cache, by the reason, where diagnostics are on.',
    ({ misses }) => misses,
  ),
  byMiss(
    'cache_lost_tokens_total',
    '{token}',
    'Tokens of these prompts that would have been found, by the reason.',
    ({ tokens }) => tokens,
  ),
  count('generation_tokens_total', 'Tokens of good answers.', (of) => of.measures.outputTokens, '{token}'),
  single(
    'histogram',
    name('time_to_first_token_seconds'),
    's',
    'From when a request came in until the first token of its streamed answer, in seconds.',
    (of) => of.measures.timeToFirstToken,
  ),
  single(
    'histogram',
    name('request_latency_seconds'),
    's',
    'From when a request came in until its answer was passed on whole, in seconds.',
    (of) => of.measures.endToEnd,
  ),
  metric<MeasuredGateway>(
    'counter',
    name('policy_fallbacks_total'),
    '{decision}',
    ['what'],
    'Decisions that a rule took in the place of a policy that failed, by slot and kind of failure.',
    ({ counts: { fallbacks } }) =>
      [...fallbacks].map(([what, value]): MetricSample => ({ labels: { what }, value })),
  ),
  byBackend('gauge', 'backend_up', '1', '1 while the server answers, otherwise 0.', ({ isUp }) =>
    Number(isUp),
  ),
  byBackend(
    'gauge',
    'backend_draining',
    '1',
    '1 while the server gets no new requests because it is drained, otherwise 0.',
    ({ isDraining }) => Number(isDraining),
  ),
  byBackend(
    'gauge',
    'backend_in_flight',
    '{request}',
    'Requests that are with the server.',
    ({ inFlight }) => inFlight,
  ),
  byBackend(
    'counter',
    'backend_requests_total',
    '{request}',
    'Requests that were sent to the server, each try counted.',
    ({ counts: { requests } }) => requests,
  ),
  byBackend(
    'counter',
    'backend_failures_total',
    '{request}',
    'Connections, times and answers of the server that failed.',
    ({ counts: { failures } }) => failures,
  ),
  byBackend(
    'counter',
    'backend_refused_reports_total',
    '{report}',
    'Reports of the server that could not be true and were not used.',
    ({ counts: { lies } }) => lies,
  ),
  byBackend(
    'counter',
    'backend_restarts_total',
    '{restart}',
    'How often the server began anew, and so with an empty cache.',
    ({ counts: { restarts } }) => restarts,
  ),
  byBackend(
    'counter',
    'backend_ejections_total',
    '{ejection}',
    'How often the server got nothing for a while, because it failed or was silent as no other was.',
    ({ standing: { ejections } }) => ejections,
  ),
  byBackend(
    'gauge',
    'backend_report_age_seconds',
    's',
    'Seconds since the last good report of the server; -1 before the first.',
    ({ reportedMs }) => (reportedMs === 0 ? -1 : (performance.now() - reportedMs) / 1000),
  ),
  byShadow('shadow_routes_total', 'Routes that a shadow policy chose too.', ({ routes }) => routes),
  byShadow(
    'shadow_other_targets_total',
    'Of these, routes to another server than the policy chose.',
    ({ otherTargets }) => otherTargets,
  ),
  byShadow(
    'shadow_admissions_total',
    'Admissions that a shadow policy decided too.',
    ({ admissions }) => admissions,
  ),
  byShadow(
    'shadow_other_verdicts_total',
    'Of these, admissions with another verdict than the policy gave.',
    ({ otherVerdicts }) => otherVerdicts,
  ),
];
