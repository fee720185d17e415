/** The sections that summaries are made of. */

import type { Regret, RoutingRecord } from '../trace/index.ts';
import { ms, percent, type RequestFact, type RunFacts } from './facts.ts';
import type { Issue } from './issues.ts';

function against(
  name: string,
  value: number,
  base: number | undefined,
  show: (value: number) => string,
): string {
  if (base === undefined) return `${name} ${show(value)}`;
  const change = base === 0 ? 0 : value / base - 1;
  return (
    `${name} ${show(value)} (baseline ${show(base)}, ` +
    `${change >= 0 ? '+' : ''}${(100 * change).toFixed(1)}%)`
  );
}

export function outcomeLines({ metrics, baseline, targets, requests, caseId, policyId }: RunFacts): string[] {
  const of = (name: string, label: string, show: (value: number) => string): string =>
    against(label, metrics[name] ?? 0, baseline?.[name], show);
  const lines = [
    `policy ${policyId} on ${caseId}: ${requests.length} requests, ${metrics.completed} completed`,
    of('latency_ms', 'latency (E2E mean / 2 + P95 / 2)', ms),
    `${of('ttft_mean_ms', 'TTFT mean', ms)}; ${of('ttft_p99_ms', 'TTFT P99', ms)}`,
    `${of('tpot_mean_ms', 'TPOT mean', ms)}; ${of('e2e_p99_ms', 'E2E P99', ms)}`,
    `${of('slo_attainment', 'SLO attainment', percent)}; ${of('cache_hit_rate', 'cache hit rate', percent)}`,
  ];
  for (const [name, { ttftUs, itlUs, e2eUs }] of Object.entries(targets)) {
    const met = metrics[`slo_attainment.${name}`];
    if (met === undefined) continue;
    const bounds = [
      ttftUs === undefined ? '' : `TTFT ${ms(ttftUs / 1000)}`,
      itlUs === undefined ? '' : `TPOT ${ms(itlUs / 1000)}`,
      e2eUs === undefined ? '' : `E2E ${ms(e2eUs / 1000)}`,
    ].filter((bound) => bound !== '');
    lines.push(
      `class ${name}: ${percent(met)} within ${bounds.join(', ')}; its TTFT P99 is ` +
        `${ms(metrics[`ttft_p99_ms.${name}`] ?? -1)}`,
    );
  }
  lines.push(
    `fairness (Jain, by tenant) ${(metrics.jain_index ?? 1).toFixed(3)}; load varies by ` +
      `${percent(metrics.load_cv ?? 0)}; ` +
      `rejected ${percent(metrics.reject_rate ?? 0)}; preempted ${percent(metrics.preemption_rate ?? 0)}; ` +
      `scale events ${metrics.scale_events ?? 0}`,
  );
  return lines;
}

export function issueLines(issues: readonly Issue[]): string[] {
  return issues.flatMap(({ title, lines }, i) => [
    `${i + 1}. ${title}`,
    ...lines.map((line) => `   ${line}`),
  ]);
}

function state(record: RoutingRecord, instance: number): string {
  const seen = record.instances.find((each) => each.instance === instance);
  if (seen === undefined) return `instance ${instance}`;
  const score = seen.score === null ? '' : `, score ${seen.score.toFixed(3)}`;
  return (
    `instance ${instance} (in flight ${seen.inFlight}, queue ${seen.queueDepth}, KV ` +
    `${percent(seen.kvUtilization)}${score})`
  );
}

export function counterfactualLines(regrets: readonly Regret[]): string[] {
  if (regrets.length === 0) return ['no decision was tried otherwise'];
  const sum = regrets.reduce((total, { regretMs }) => total + regretMs, 0);
  const better = regrets.filter(({ regretMs }) => regretMs > 0);
  const cluster = regrets.filter(({ clusterRegretMs }) => clusterRegretMs > 0);
  const worst = [...regrets].sort((a, b) => b.regretMs - a.regretMs || a.decision - b.decision);
  return [
    `${regrets.length} decisions were taken again otherwise and run to the end: regret on ` +
      `average ${ms(sum / regrets.length)}, ` +
      `${better.length} of them with a better instance for the request, ${cluster.length} for ` +
      `all requests together`,
    ...worst.slice(0, 6).map(({ decision, requestId, chosen, others, regretMs, clusterRegretMs }) => {
      const rest = others.map(({ instance, e2eMs }) => `${instance}: ${ms(e2eMs)}`).join(', ');
      const whole = `${clusterRegretMs >= 0 ? '+' : ''}${clusterRegretMs.toFixed(2)} ms a request`;
      return (
        `decision ${decision} (${requestId}): instance ${chosen.instance} took ` +
        `${ms(chosen.e2eMs)}, others ${rest}; regret ${ms(regretMs)}, over all ${whole}`
      );
    }),
  ];
}

/** The decisions that cost their requests most: by regret where it is known, else by the first token. */
export function worstLines(
  requests: readonly RequestFact[],
  regrets: readonly Regret[],
  most: number,
): string[] {
  const known = new Map(regrets.map((regret) => [regret.decision, regret]));
  const routed = requests.filter(({ routing }) => (routing?.chosenInstance ?? -1) >= 0);
  const cost = ({ routing, ttftMs }: RequestFact): number =>
    1e6 * (known.get(routing?.decision ?? -1)?.regretMs ?? 0) + ttftMs;
  const worst = [...routed].sort((a, b) => cost(b) - cost(a) || (a.id < b.id ? -1 : 1)).slice(0, most);
  return worst.flatMap((request) => decisionLines(request, known.get(request.routing?.decision ?? -1)));
}

/** One decision with its context and what came of it. */
export function decisionLines(request: RequestFact, regret: Regret | undefined): string[] {
  const { id, tenant, sloClass, arrivalMs, promptTokens, ttftMs, e2eMs, routing } = request;
  if (routing === undefined) return [`${id}: never routed (${request.status})`];
  const chosen = state(routing, routing.chosenInstance);
  const byScore = routing.instances
    .filter(({ instance, score }) => instance !== routing.chosenInstance && score !== null)
    .sort((a, b) => (b.score ?? 0) - (a.score ?? 0) || a.instance - b.instance);
  const found = routing.cachedBlocks < 0 ? 'never ran' : `${routing.cachedBlocks} blocks cached`;
  const lines = [
    `${id} at ${(arrivalMs / 1000).toFixed(2)} s, ${sloClass || 'no class'}, tenant ` +
      `${tenant || 'none'}, ${promptTokens} prompt tok -> ${chosen}`,
    `   result: ${found}, first token after ${ms(ttftMs)}, end after ${ms(e2eMs)}, targets ` +
      `${request.good ? 'met' : 'missed'}`,
  ];
  if (byScore.length > 0) lines.push(`   next best by score: ${state(routing, byScore[0].instance)}`);
  if (regret !== undefined) {
    const best = regret.others.reduce((a, b) => (b.e2eMs < a.e2eMs ? b : a));
    lines.push(
      `   instance ${best.instance} would have given ${ms(best.e2eMs)} end to end, first token ` +
        `${ms(best.ttftMs)}`,
    );
  }
  return lines;
}

export function focusLines(issues: readonly Issue[]): string[] {
  const seen = new Set<string>();
  const lines: string[] = [];
  for (const { focus } of issues) {
    if (seen.has(focus)) continue;
    seen.add(focus);
    lines.push(`- ${focus}`);
  }
  return lines.length === 0
    ? ['- nothing stands out: compare with other policies on other suites']
    : lines.slice(0, 4);
}
