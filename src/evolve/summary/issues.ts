/** The issues of a run, each with a count, a pattern and a cause, the gravest first. */

import { severities } from '../trace/index.ts';
import { groupBy, ms, percent, type RequestFact, type RunFacts } from './facts.ts';

export interface Issue {
  /** Requests that it cost something; what issues are sorted by. */
  readonly weight: number;
  readonly title: string;
  readonly lines: readonly string[];
  /** What to change because of it. */
  readonly focus: string;
  /** Slot of the policy that it is about. */
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

function sloIssues({ requests }: RunFacts): Issue[] {
  const bad = requests.filter(({ good }) => !good);
  if (bad.length === 0) return [];
  const byTenant = [...groupBy(bad, ({ tenant }) => tenant || 'no tenant')].sort(
    ([a, x], [b, y]) => y.length - x.length || (a < b ? -1 : 1),
  );
  const [[tenant, most]] = byTenant;
  const ofTenant = requests.filter((request) => (request.tenant || 'no tenant') === tenant).length;
  const rejected = bad.filter(({ status }) => status === 'rejected').length;
  const late = bad.filter(({ status }) => status === 'completed');
  const queued = late.filter(({ routing }) => crowding(routing) > 0).length;
  return [
    {
      weight: bad.length,
      title: `${bad.length} of ${requests.length} requests missed the targets of their class`,
      lines: [
        `pattern: tenant ${tenant} has ${percent(most.length / bad.length)} of the misses and ` +
          `${percent(ofTenant / requests.length)} of the traffic; ${window(bad, requests)}`,
        `cause: ${rejected} were rejected, ${late.length} were late, of which ${queued} went to ` +
          `an instance ` +
          'with more in flight than the least loaded one',
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

/** Requests in flight on the chosen instance above the least of those that could have taken it. */
export function crowding(routing: RequestFact['routing']): number {
  if (routing === undefined || routing.chosenInstance < 0) return 0;
  const able = routing.instances.filter(({ instance }) => routing.couldTake.includes(instance));
  const chosen = able.find(({ instance }) => instance === routing.chosenInstance);
  return (chosen?.inFlight ?? 0) - Math.min(...able.map(({ inFlight }) => inFlight));
}

/** Prefixes that were computed again on another instance than the last one that had them. */
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
      title: `${crowded.length} requests went where 4 or more requests more were in flight than elsewhere`,
      lines: [
        `pattern: requests by instance vary by ${percent(variation)} of their mean; the chosen ` +
          `instance had ` +
          `${(spread / Math.max(1, requests.length)).toFixed(1)} in flight above the least on average`,
        routesByReports
          ? 'cause: what the policy goes by differs from the load now: snapshots were up to ' +
            `${oldest(requests)} old`
          : 'cause: the policy reads no snapshot, so nothing was old: it went by something else than ' +
            'requests in flight, or more by that',
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

/** Anomalies that are no issue of their own above. */
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

export function issuesOf(facts: RunFacts): Issue[] {
  const all = [...sloIssues(facts), ...cacheIssues(facts), ...imbalance(facts), ...ofAnomalies(facts)];
  return all.sort((a, b) => b.weight - a.weight || (a.title < b.title ? -1 : 1));
}
