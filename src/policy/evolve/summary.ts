/**
 * A run as a page of 500 to 1,500 tokens, for a person or a prompt: its metrics, issues, patterns that go
 * with bad outcomes, and decisions. The same run gives the same text.
 */

import * as is from '../../runtime/kinds.ts';
import { type Kinds, optionTable } from '../../runtime/options.ts';
import type { TargetsByClass } from '../../sim/metrics/statistics.ts';
import type { RawMetrics } from './fitness/rawMetrics.ts';
import { type Anomaly, severities } from './trace/anomalies.ts';
import type { RoutingRecord } from './trace/records.ts';
import type { Regret } from './trace/regret.ts';

// Facts of one run, after its end.

/** Facts of one request. Times are in milliseconds; -1 stands for an event that never came. */
export interface RequestFact {
  readonly id: string;
  readonly tenant: string;
  readonly sloClass: string;
  readonly arrivalMs: number;
  readonly promptTokens: number;
  readonly status: string;
  readonly ttftMs: number;
  readonly e2eMs: number;
  readonly tpotMs: number;
  readonly preemptions: number;
  /** Whether it met the targets of its class; true where it has none. */
  readonly good: boolean;
  /** Undefined for a request that was never routed. */
  readonly routing: RoutingRecord | undefined;
}

export interface RunFacts {
  readonly caseId: string;
  readonly policyId: string;
  readonly metrics: RawMetrics;
  /** Metrics of the baseline on the same case, where it ran. */
  readonly baseline: RawMetrics | undefined;
  readonly targets: TargetsByClass;
  /** Whether the routing policy reads reports of instances. */
  readonly routesByReports: boolean;
  /** In order of arrival. */
  readonly requests: readonly RequestFact[];
  readonly anomalies: readonly Anomaly[];
  readonly regrets: readonly Regret[];
}

function ms(value: number): string {
  return value < 0 ? 'never' : `${value >= 100 ? value.toFixed(0) : value.toFixed(1)} ms`;
}

function percent(share: number): string {
  return `${(100 * share).toFixed(1)}%`;
}

function groupBy<T>(items: readonly T[], key: (item: T) => string): Map<string, T[]> {
  const groups = new Map<string, T[]>();
  for (const item of items) {
    const name = key(item);
    const group = groups.get(name);
    if (group === undefined) groups.set(name, [item]);
    else group.push(item);
  }
  return groups;
}

// Issues of a run, the worst first, each with a count, a pattern and a cause.

interface Issue {
  /** Number of requests that it harmed. Issues are sorted by it. */
  readonly weight: number;
  readonly title: string;
  readonly lines: readonly string[];
  /** Advice: what to change. */
  readonly focus: string;
  /** Slot of the policy at fault. */
  readonly slot: string;
}

function examples(requests: readonly RequestFact[], most = 3): string {
  const worst = [...requests].sort((a, b) => b.ttftMs - a.ttftMs || (a.id < b.id ? -1 : 1)).slice(0, most);
  return worst.map(({ id, ttftMs }) => `${id} (first token after ${ms(ttftMs)})`).join(', ');
}

/** The tenth of the run in which most of the requests arrived. */
function window(requests: readonly RequestFact[], all: readonly RequestFact[]): string {
  const end = all.at(-1)?.arrivalMs ?? 0;
  const width = Math.max(1, end / 10);
  const counts = new Array<number>(10).fill(0);
  for (const { arrivalMs } of requests) counts[Math.min(9, Math.floor(arrivalMs / width))]++;
  const most = counts.indexOf(Math.max(...counts));
  const share = percent(counts[most] / Math.max(1, requests.length));
  return (
    `${share} of them arrived from ${((most * width) / 1000).toFixed(1)} to ` +
    `${(((most + 1) * width) / 1000).toFixed(1)} s`
  );
}

function sloIssues({ requests, targets }: RunFacts): Issue[] {
  const bad = requests.filter(({ good }) => !good);
  if (bad.length === 0) return [];
  const byTenant = [...groupBy(bad, ({ tenant }) => tenant || 'no tenant')].sort(
    ([a, x], [b, y]) => y.length - x.length || (a < b ? -1 : 1),
  );
  const [[tenant, most]] = byTenant;
  const ofTenant = requests.filter((request) => (request.tenant || 'no tenant') === tenant).length;
  const rejected = bad.filter(({ status }) => status === 'rejected').length;
  const lost = [...groupBy(bad, ({ status }) => status)].filter(
    ([status]) => status !== 'completed' && status !== 'rejected',
  );
  lost.sort(([a], [b]) => (a < b ? -1 : 1));
  const ends = lost.map(([status, of]) => `${of.length} ended ${status}, `);
  const what = Object.keys(targets).length === 0 ? 'did not complete' : 'missed the targets of their class';
  const late = bad.filter(({ status }) => status === 'completed');
  const queued = late.filter(({ routing }) => crowding(routing) > 0).length;
  return [
    {
      weight: bad.length,
      title: `${bad.length} of ${requests.length} requests ${what}`,
      lines: [
        `pattern: tenant ${tenant} has ${percent(most.length / bad.length)} of the misses and ` +
          `${percent(ofTenant / requests.length)} of the traffic; ${window(bad, requests)}`,
        `cause: ${rejected} were rejected, ${ends.join('')}${late.length} were late, of which ${queued} went to ` +
          'an instance with more in flight than the least loaded one',
        ...(late.length === 0 ? [] : [`examples: ${examples(late)}`]),
      ],
      focus:
        rejected * 2 > bad.length
          ? 'admission: reject fewer requests of classes whose targets could be met'
          : 'routing: keep bursts from going to one instance; weigh requests in flight, which ' +
            'are fresh, more',
      slot: rejected * 2 > bad.length ? 'admission' : 'routing',
    },
  ];
}

/** Requests in flight on the chosen instance, less those on the least loaded instance that could have taken it. */
function crowding(routing: RequestFact['routing']): number {
  if (routing === undefined || routing.chosenInstance < 0) return 0;
  const able = routing.instances.filter(({ instance }) => routing.couldTake.includes(instance));
  const chosen = able.find(({ instance }) => instance === routing.chosenInstance);
  return (chosen?.inFlight ?? 0) - Math.min(...able.map(({ inFlight }) => inFlight));
}

/** Prefixes that were computed again because a request went to another instance than the request before it. */
function cacheIssues({ requests, metrics }: RunFacts): Issue[] {
  const last = new Map<string, number>();
  const moved: RequestFact[] = [];
  let repeats = 0;
  for (const request of requests) {
    const { routing } = request;
    if (routing === undefined || routing.prefixHash === '' || routing.chosenInstance < 0) continue;
    const before = last.get(routing.prefixHash);
    last.set(routing.prefixHash, routing.chosenInstance);
    if (before === undefined) continue;
    repeats++;
    if (before !== routing.chosenInstance && routing.cachedBlocks === 0) moved.push(request);
  }
  if (moved.length === 0) return [];
  const prefixes = [...groupBy(moved, ({ routing }) => routing?.prefixHash ?? '')].sort(
    ([a, x], [b, y]) => y.length - x.length || (a < b ? -1 : 1),
  );
  const [[hash, hit]] = prefixes;
  const blocks = hit.reduce((sum, { promptTokens }) => sum + promptTokens, 0);
  return [
    {
      weight: moved.length,
      title: `${moved.length} of ${repeats} prompts with a known prefix were computed from nothing`,
      lines: [
        `pattern: prefix ${hash} did so ${hit.length} times (${blocks} prompt tok); hit rate ` +
          percent(metrics.cache_hit_rate ?? 0),
        'cause: the request went to another instance than the one that had computed its prefix last',
        `examples: ${examples(moved)}`,
      ],
      focus:
        'routing: weigh where the prefix is (prefixAffinity, cachedBlocks) until that instance is crowded',
      slot: 'routing',
    },
  ];
}

function imbalance({ metrics, requests, routesByReports }: RunFacts): Issue[] {
  const variation = metrics.load_cv ?? 0;
  const crowded = requests.filter(({ routing }) => crowding(routing) >= 4);
  if (variation < 0.25 && crowded.length * 20 < requests.length) return [];
  const spread = requests.reduce((sum, { routing }) => sum + crowding(routing), 0);
  return [
    {
      weight: crowded.length,
      title:
        crowded.length === 0
          ? 'requests are spread unevenly over the instances'
          : `${crowded.length} requests went where 4 or more requests more were in flight than elsewhere`,
      lines: [
        `pattern: requests by instance vary by ${percent(variation)} of their mean; the chosen instance had ` +
          `${(spread / Math.max(1, requests.length)).toFixed(1)} in flight above the least on average`,
        routesByReports
          ? 'cause: what the policy goes by differs from the load now: snapshots were up to ' +
            `${oldest(requests)} old`
          : 'cause: stale reports are not to blame, since the policy reads none: it weighed something else more ' +
            'than requests in flight',
        ...(crowded.length === 0 ? [] : [`examples: ${examples(crowded)}`]),
      ],
      focus: 'routing: take off from the score of an instance for requests in flight above the least',
      slot: 'routing',
    },
  ];
}

function oldest(requests: readonly RequestFact[]): string {
  let age = 0;
  for (const { routing } of requests) {
    for (const { reportAgeUs } of routing?.instances ?? []) age = Math.max(age, reportAgeUs);
  }
  return `${(age / 1e6).toFixed(1)} s`;
}

const focusOf: Readonly<Record<string, readonly [slot: string, focus: string]>> = {
  priority_inversion: [
    'instanceScheduler',
    'instanceScheduler: order by rank (priority-fcfs), or rank by class',
  ],
  cache_thrashing: ['eviction', 'eviction: keep blocks that are asked for again soon; offload later'],
  shadow_divergence: ['routing', "routing: trust the router's prediction less, or cachedBlocks more"],
  scale_oscillation: ['autoScale', 'autoScale: wait longer before taking replicas away'],
  pd_backpressure: ['routing', 'routing: hand fewer prompts off while decode instances are full'],
  preemption_storm: ['admission', 'admission: hold requests back while KV utilisation is high'],
};

/** Anomalies that the issues above do not cover. */
function ofAnomalies({ anomalies }: RunFacts): Issue[] {
  return [...groupBy(anomalies, ({ type }) => type)].flatMap(([type, all]): Issue[] => {
    const known = focusOf[type];
    if (known === undefined) return [];
    const count = all.reduce((sum, each) => sum + each.count, 0);
    const places = all.map(({ severity }) => severities.indexOf(severity));
    const requests = all.flatMap((each) => each.requests).slice(0, 3);
    return [
      {
        weight: all.reduce((sum, { concerned }) => sum + concerned, 0),
        title: `${type}: ${count} times, severity ${severities[Math.max(...places)]}`,
        lines: [
          ...all.slice(0, 2).map(({ description, timeUs }) => {
            return `pattern: ${description}; first at ${(timeUs / 1e6).toFixed(1)} s`;
          }),
          ...(requests.length === 0 ? [] : [`examples: ${requests.join(', ')}`]),
        ],
        focus: known[1],
        slot: known[0],
      },
    ];
  });
}

function issuesOf(facts: RunFacts): Issue[] {
  const all = [...sloIssues(facts), ...cacheIssues(facts), ...imbalance(facts), ...ofAnomalies(facts)];
  return all.sort((a, b) => b.weight - a.weight || (a.title < b.title ? -1 : 1));
}

// Patterns of bad outcomes: properties of requests and of decisions about them, sorted by their lift. The lift says how
// many times as frequent a property is among bad requests as among all.

interface Pattern {
  readonly what: string;
  /** Number of requests with the property, and of bad ones among them. */
  readonly support: number;
  readonly bad: number;
  readonly lift: number;
}

/** Fewest requests of a pattern. */
const SUPPORT_MIN = 5;

function size(tokens: number): string {
  if (tokens < 512) return 'under 512';
  if (tokens < 2048) return '512 to 2047';
  return tokens < 8192 ? '2048 to 8191' : '8192 and more';
}

function properties({ tenant, sloClass, promptTokens, routing, preemptions }: RequestFact): string[] {
  const about = [
    `tenant ${tenant || 'none'}`,
    `class ${sloClass || 'none'}`,
    `prompt of ${size(promptTokens)} tok`,
  ];
  if (preemptions > 0) about.push('gave way at least once');
  if (routing === undefined) return [...about, 'never routed'];
  const beyond = crowding(routing);
  about.push(
    `sent to instance ${routing.chosenInstance}`,
    routing.cacheHit ? 'found cached blocks' : 'found no cached block',
    beyond === 0
      ? 'sent to the least busy instance'
      : beyond < 4
        ? '1 to 3 in flight above the least'
        : '4 and more in flight above the least',
  );
  return about;
}

/** Bad requests missed their targets. Where all requests met them: the tenth with the longest times to the first token. */
function badRequests(requests: readonly RequestFact[]): ReadonlySet<RequestFact> {
  const missed = requests.filter(({ good }) => !good);
  if (missed.length > 0) return new Set(missed);
  const slow = [...requests].sort((a, b) => b.ttftMs - a.ttftMs || (a.id < b.id ? -1 : 1));
  return new Set(slow.slice(0, Math.ceil(requests.length / 10)));
}

/** Properties and pairs, by lift times the root of the bad requests. A pair needs a fifth more lift than each part. */
function patternsOf(requests: readonly RequestFact[], most: number): Pattern[] {
  const bad = badRequests(requests);
  const base = bad.size / Math.max(1, requests.length);
  const tagged = requests.map((request) => ({ request, tags: properties(request) }));
  const counted = (groups: (tags: readonly string[]) => readonly (readonly string[])[]) => {
    const flat = tagged.flatMap(({ request, tags }) => groups(tags).map((parts) => ({ parts, request })));
    return [...groupBy(flat, ({ parts }) => parts.join(' and '))].map(([what, all]) => {
      const hits = all.filter(({ request }) => bad.has(request)).length;
      const [{ parts }] = all;
      return { what, parts, support: all.length, bad: hits, lift: hits / all.length / base };
    });
  };
  const singles = counted((tags) => tags.map((tag) => [tag]));
  const liftOf = new Map(singles.map(({ what, lift }) => [what, lift]));
  const pairs = counted((tags) => tags.flatMap((a, i) => tags.slice(i + 1).map((b) => [a, b]))).filter(
    ({ parts, lift }) => parts.every((part) => lift > 1.2 * (liftOf.get(part) ?? 0)),
  );
  return [...singles, ...pairs]
    .filter(({ support, lift }) => support >= SUPPORT_MIN && lift > 1.1)
    .sort((a, b) => b.lift * Math.sqrt(b.bad) - a.lift * Math.sqrt(a.bad) || (a.what < b.what ? -1 : 1))
    .slice(0, most);
}

function patternLine({ what, support, bad, lift }: Pattern): string {
  return (
    `${what}: ${bad} of ${support} went badly (${percent(bad / support)}), ` +
    `${lift.toFixed(1)} times the average`
  );
}

// Sections of summaries.

function against(
  name: string,
  value: number,
  base: number | undefined,
  show: (value: number) => string,
): string {
  if (base === undefined) return `${name} ${show(value)}`;
  const change = value / base - 1;
  const told = base === 0 ? '' : `, ${change >= 0 ? '+' : ''}${(100 * change).toFixed(1)}%`;
  return `${name} ${show(value)} (baseline ${show(base)}${told})`;
}

function outcomeLines({ metrics, baseline, targets, requests, caseId, policyId }: RunFacts): string[] {
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

function issueLines(issues: readonly Issue[]): string[] {
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

function counterfactualLines(regrets: readonly Regret[]): string[] {
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

/** The worst decisions: by regret where it is known, else by time to the first token. */
function worstLines(requests: readonly RequestFact[], regrets: readonly Regret[], most: number): string[] {
  const known = new Map(regrets.map((regret) => [regret.decision, regret]));
  const routed = requests.filter(({ routing }) => (routing?.chosenInstance ?? -1) >= 0);
  const cost = ({ routing, ttftMs }: RequestFact): number =>
    1e6 * (known.get(routing?.decision ?? -1)?.regretMs ?? 0) + ttftMs;
  const worst = [...routed].sort((a, b) => cost(b) - cost(a) || (a.id < b.id ? -1 : 1)).slice(0, most);
  return worst.flatMap((request) => decisionLines(request, known.get(request.routing?.decision ?? -1)));
}

/** One decision with its context and its outcome. */
function decisionLines(request: RequestFact, regret: Regret | undefined): string[] {
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

function focusLines(issues: readonly Issue[]): string[] {
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

// A run in 500 to 1,500 tokens, for a person or a prompt. The same run gives the same text. Nothing in it
// looks like a secret to the filters of search frameworks: ids have at most 16 digits, and no word is
// followed by a colon and a number that a filter takes for a key.

export const summaryStrategies = [
  'issue_focused',
  'decision_audit',
  'counterfactual',
  'pattern_mining',
] as const;
type SummaryStrategy = (typeof summaryStrategies)[number];

export interface SummaryConfig {
  readonly strategy: SummaryStrategy;
  /** From 100 to 20,000; a token counts as four characters. */
  readonly maxTokens: number;
  /** Slots whose issues the summary names; empty for all. */
  readonly focusAreas: readonly string[];
  readonly includeExamples: boolean;
  readonly includeCounters: boolean;
}

const summaryConfig = optionTable({
  strategy: is.oneOf(summaryStrategies),
  maxTokens: is.number(),
  focusAreas: is.list(is.text()),
  includeExamples: is.flag(),
  includeCounters: is.flag(),
} satisfies Kinds<SummaryConfig>);

export const defaultSummary: SummaryConfig = {
  strategy: 'issue_focused',
  maxTokens: 1500,
  focusAreas: [],
  includeExamples: true,
  includeCounters: true,
};

const CHARACTERS_PER_TOKEN = 4;

interface Section {
  readonly title: string;
  readonly lines: readonly string[];
}

const factKinds = is.fields({
  ...{ caseId: is.text(), policyId: is.text() },
  ...{ requests: is.array(), anomalies: is.array(), regrets: is.array() },
});

export function summarise(facts: RunFacts, config: SummaryConfig = defaultSummary): string {
  factKinds.read(facts, 'facts');
  summaryConfig.read(config, 'config');
  const issues = issuesOf(facts).filter(
    ({ slot }) => config.focusAreas.length === 0 || config.focusAreas.includes(slot),
  );
  const shown = config.includeExamples ? issues : issues.map(withoutExamples);
  const sections = sectionsOf(facts, shown, config.strategy);
  return fitted(
    config.includeCounters ? sections : sections.filter(({ title }) => title !== 'Outcome'),
    config.maxTokens * CHARACTERS_PER_TOKEN,
  );
}

function withoutExamples(issue: Issue): Issue {
  return { ...issue, lines: issue.lines.filter((line) => !line.startsWith('examples')) };
}

function sectionsOf(facts: RunFacts, issues: readonly Issue[], strategy: SummaryStrategy): Section[] {
  const { requests, regrets } = facts;
  const outcome = { title: 'Outcome', lines: outcomeLines(facts) };
  const focus = { title: 'Suggested focus', lines: focusLines(issues) };
  const key = (most: number): Section => ({
    title: 'Key issues',
    lines: issues.length === 0 ? ['none'] : issueLines(issues.slice(0, most)),
  });
  const counterfactuals = { title: 'Counterfactuals', lines: counterfactualLines(regrets) };
  const patterns = (most: number): Section => ({
    title: 'Patterns of what went badly',
    lines: patternsOf(requests, most).map((pattern) => `- ${patternLine(pattern)}`),
  });
  const worst = (most: number): Section => ({
    title: 'Worst decisions',
    lines: worstLines(requests, regrets, most),
  });
  switch (strategy) {
    case 'issue_focused':
      return [outcome, key(4), counterfactuals, worst(3), focus, patterns(4)];
    case 'decision_audit': {
      const known = new Map(regrets.map((regret) => [regret.decision, regret]));
      const step = Math.max(1, Math.floor(requests.length / 12));
      const sampled = requests.filter((_, i) => i % step === Math.floor(step / 2)).slice(0, 12);
      const lines = sampled.flatMap((request) =>
        decisionLines(request, known.get(request.routing?.decision ?? -1)),
      );
      return [outcome, focus, { title: 'Decisions, spread over the run', lines }];
    }
    case 'counterfactual':
      return [outcome, counterfactuals, focus, worst(6)];
    case 'pattern_mining':
      return [outcome, patterns(16), focus, key(2)];
  }
}

/** The whole lines that fit, from the first section on. */
function fitted(sections: readonly Section[], characters: number): string {
  let left = characters;
  const parts: string[] = [];
  for (const { title, lines } of sections) {
    const head = `## ${title}`;
    if (lines.length === 0 || left < head.length + lines[0].length + 4) continue;
    const kept: string[] = [];
    left -= head.length + 3;
    for (const line of lines) {
      if (left < line.length + 1) break;
      left -= line.length + 1;
      kept.push(line);
    }
    parts.push([head, ...kept].join('\n'));
  }
  return `${parts.join('\n\n')}\n`;
}
