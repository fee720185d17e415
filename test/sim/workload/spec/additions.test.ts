/** What workloads have beyond upstream's: sessions that walk, tenants that misbehave, prefixes to choose from. */

import { describe, expect, it } from 'vitest';
import { parseWorkloadSpec } from '../../../../src/sim/description/readWorkload.ts';
import { formatWorkloadSpec } from '../../../../src/sim/description/writeWorkload.ts';
import { SessionManager } from '../../../../src/sim/workload/closedLoop.ts';
import { requestsOf, type TokenSpan, type WorkloadRequest } from '../../../../src/sim/workload/request.ts';
import { closedLoopTrace } from '../../../../src/sim/workload/traceV2.ts';
import { generateWorkload, type Workload } from '../../../../src/sim/workload/workload.ts';

const clientOf = (extra: string, input = true): string => `version: "2"
seed: 3
aggregate_rate: 10
num_requests: 400
clients:
  - id: a
    tenant_id: acme
    rate_fraction: 1
    arrival: {process: poisson}
${input ? '    input_distribution: {type: gaussian, params: {mean: 100, std_dev: 20, min: 1, max: 300}}\n' : ''}    output_distribution: {type: constant, params: {value: 50}}
${extra}`;

const workloadOf = (extra: string, input = true): Workload =>
  generateWorkload(parseWorkloadSpec(clientOf(extra, input), 'spec.yaml'));

const requests = (extra: string, input = true): WorkloadRequest[] => [
  ...requestsOf(workloadOf(extra, input).stream()),
];

/** Serves a closed loop in which every answer takes a second. @returns the rounds of each session */
function serve(workload: Workload): WorkloadRequest[][] {
  if (workload.sessions === undefined) throw new Error('no sessions');
  const manager = new SessionManager(workload.sessions);
  return [...requestsOf(workload.stream())].map((first) => {
    const rounds = [first];
    for (let at: WorkloadRequest | undefined = first; at !== undefined; ) {
      const timeUs = at.arrivalUs + 1_000_000;
      at = manager.next(at, { outcome: 'completed', timeUs, contextTokens: at.outputTokens });
      if (at !== undefined) rounds.push(at);
    }
    return rounds;
  });
}

const spansOf = ({ prompt }: WorkloadRequest): readonly TokenSpan[] =>
  prompt.kind === 'drawn' ? prompt.spans : [];
const mean = (values: readonly number[]): number => values.reduce((a, b) => a + b, 0) / values.length;

const markov = `    session:
      markov:
        states:
          - {name: ask, next: {look: 3, write: 1}}
          - name: look
            input_distribution: {type: constant, params: {value: 700}}
            pause_ms: {type: constant, params: {value: 40}}
            next: {look: 1, write: 1}
          - {name: write, output_distribution: {type: constant, params: {value: 500}}, next: {end: 1}}
`;
const agentic = `    session:
      agentic:
        tool_call_probability: 0.75
        max_tool_calls: 8
        tool_latency_ms: {type: exponential, params: {mean: 300}}
        tool_result_distribution: {type: constant, params: {value: 400}}
`;
const chain = (growth: string): string => `    session:
      reasoning_chain:
        chain_length: {type: gaussian, params: {mean: 6, std_dev: 2, min: 2, max: 12}}
        tokens_per_step: {type: constant, params: {value: 200}}
      ${growth}
`;

describe('sessions', () => {
  it('of a Markov chain go from state to state by its weights', () => {
    const sessions = serve(workloadOf(markov));
    expect(sessions.length).toBe(400);
    let looks = 0;
    for (const [first, ...rounds] of sessions) {
      expect(first.outputTokens).toBe(50);
      let before = first;
      for (const [i, round] of rounds.entries()) {
        const isWrite = i === rounds.length - 1;
        expect(round.outputTokens).toBe(isWrite ? 500 : 50);
        expect(round.arrivalUs - before.arrivalUs - 1_000_000).toBe(isWrite ? 0 : 40_000);
        const repeated = before.inputTokens + before.outputTokens;
        if (!isWrite) expect(round.inputTokens - repeated).toBe(700);
        before = round;
      }
      looks += rounds.length - 1;
    }
    // three quarters look at least once, and go on looking half of the time
    expect(looks / sessions.length).toBeGreaterThan(1.3);
    expect(looks / sessions.length).toBeLessThan(1.7);
  });

  it('of agents call tools until they are done, and wait for them', () => {
    const sessions = serve(workloadOf(agentic));
    const calls = sessions.map((rounds) => rounds.length - 1);
    expect(Math.max(...calls)).toBe(8);
    // 0.75 + ... + 0.75^8
    expect(mean(calls)).toBeGreaterThan(2.4);
    expect(mean(calls)).toBeLessThan(3);
    const pauses = sessions.flatMap((rounds) =>
      rounds.slice(1).map(({ arrivalUs }, i) => arrivalUs - rounds[i].arrivalUs - 1_000_000),
    );
    expect(mean(pauses)).toBeGreaterThan(250_000);
    expect(mean(pauses)).toBeLessThan(350_000);
  });

  it.each([
    ['context_growth: linear', 6, (chained: number) => chained * 201],
    ['context_growth: sublinear', 6, (chained: number) => chained * (1 + Math.ceil(Math.sqrt(200)))],
  ])('of reasoning grow with %s', (growth, length, grown) => {
    const sessions = serve(workloadOf(chain(growth)));
    const lengths = sessions.map((rounds) => rounds.length);
    expect(mean(lengths)).toBeGreaterThan(length - 0.5);
    expect(mean(lengths)).toBeLessThan(length + 0.5);
    for (const [first, ...rounds] of sessions) {
      for (const [i, round] of rounds.entries()) {
        expect(round.inputTokens).toBe(first.inputTokens + grown(i + 1));
        expect(spansOf(round)[0]).toEqual(spansOf(first)[0]);
      }
    }
  });

  it('keep the last tokens of a bounded context', () => {
    const sessions = serve(workloadOf(chain('context_growth: bounded\n      context_limit: 500')));
    for (const rounds of sessions) {
      for (const round of rounds) {
        expect(round.inputTokens).toBeLessThanOrEqual(501);
        expect(spansOf(round).reduce((sum, { tokens }) => sum + tokens, 0)).toBe(round.inputTokens);
      }
    }
    expect(sessions.flat().some(({ inputTokens }) => inputTokens === 501)).toBe(true);
  });

  it('are the same for a seed, others for another one, and survive a snapshot', () => {
    expect(serve(workloadOf(agentic))).toEqual(serve(workloadOf(agentic)));
    const other = generateWorkload(parseWorkloadSpec(clientOf(agentic).replace('seed: 3', 'seed: 4'), 'x'));
    expect(serve(other)).not.toEqual(serve(workloadOf(agentic)));
    const workload = workloadOf(markov);
    const plan = workload.sessions!;
    const [first] = requestsOf(workload.stream());
    const once = new SessionManager(plan);
    const end = { outcome: 'completed', timeUs: 5e6, contextTokens: 50 } as const;
    const second = once.next(first, end)!;
    const again = SessionManager.restore(plan, once.snapshot());
    expect(again.next(second, { ...end, timeUs: 6e6 })).toEqual(once.next(second, { ...end, timeUs: 6e6 }));
  });
});

const gapsOf = (all: readonly WorkloadRequest[]): number[] =>
  all.slice(1).map(({ arrivalUs }, i) => arrivalUs - all[i].arrivalUs);

describe('tenants', () => {
  it('with bursts send several at once', () => {
    const burst = '    behavior: {type: bursty, burst: {probability: 0.2, size: 5, interval_us: 100}}\n';
    const short = gapsOf(requests(burst)).filter((gap) => gap === 100).length;
    expect(short / 400).toBeGreaterThan(0.35);
    expect(short / 400).toBeLessThan(0.65);
  });

  it('that are adversarial come together, with long prompts', () => {
    const all = requests('    behavior: {type: adversarial, synchronised: {every_us: 1000000, size: 20}}\n');
    expect(all.every(({ inputTokens }) => inputTokens === 32_000)).toBe(true);
    for (const [i, { arrivalUs }] of all.entries()) {
      expect(arrivalUs).toBe(1_000_000 * (1 + Math.floor(i / 20)) + (i % 20));
    }
  });

  it('that are abusive send oversized prompts, or fill the cache with prompts of their own', () => {
    const abusive = requests('    behavior: {type: abusive}\n');
    const large = abusive.filter(({ inputTokens }) => inputTokens === 16_000).length / 400;
    expect(large).toBeGreaterThan(0.18);
    expect(large).toBeLessThan(0.32);
    const filling = requests('    behavior: {exhaust_cache_tokens: 9000}\n');
    expect(filling.every(({ inputTokens }) => inputTokens === 9000)).toBe(true);
    expect(new Set(filling.map((request) => spansOf(request)[0].position)).size).toBe(400);
  });

  it('choose among prefixes by popularity', () => {
    const all = requests(`    prefixes:
      reuse_probability: 0.8
      groups: [{id: long, length: 900, popularity: 3}, {id: short, length: 90}]
`);
    const share = (group: string): number =>
      all.filter(({ origin }) => origin.prefixGroup === group).length / all.length;
    expect(share('long')).toBeGreaterThan(0.52);
    expect(share('long')).toBeLessThan(0.68);
    expect(share('short')).toBeGreaterThan(0.14);
    expect(share('short')).toBeLessThan(0.26);
    const long = all.filter(({ prefixTokens }) => prefixTokens === 900);
    expect(new Set(long.map((request) => JSON.stringify(String(spansOf(request)[0].seed)))).size).toBe(1);
  });

  it('share a prefix within a tenant, and nothing between two tenants', () => {
    const spec = clientOf('    correlation: {intra_tenant_prefix: 1, prefix_length: 64}\n').replace(
      /( {2}- id: a[\s\S]*)$/,
      (client) => `${client}${client.replace('id: a', 'id: b').replace('acme', 'other')}`,
    );
    const all = [...requestsOf(generateWorkload(parseWorkloadSpec(spec, 'x')).stream())];
    const seeds = Map.groupBy(all, ({ origin }) => origin.tenantId);
    expect(seeds.size).toBe(2);
    const first = [...seeds.values()].map((mine) => new Set(mine.map((one) => String(spansOf(one)[0].seed))));
    expect(first.map(({ size }) => size)).toEqual([1, 1]);
    expect([...first[0]]).not.toEqual([...first[1]]);
  });

  it('with correlated bursts have long prompts close together', () => {
    const all = requests('    correlation: {burst_size: 0.5}\n');
    const gaps = gapsOf(all);
    const middle = [...gaps].sort((a, b) => a - b)[200];
    const close = all.slice(1).filter((_, i) => gaps[i] < middle / 2);
    const far = all.slice(1).filter((_, i) => gaps[i] > 2 * middle);
    const lengths = (some: typeof all): number => mean(some.map(({ inputTokens }) => inputTokens));
    expect(lengths(close)).toBeGreaterThan(1.5 * lengths(far));
  });

  it('with correlated bursts have long conversations close together, in open loop', () => {
    const turns = `    reasoning: {multi_turn: {max_rounds: 3, think_time_us: 5000, context_growth: ""}}\n    closed_loop: false\n`;
    const plain = requests(turns);
    const all = requests(`${turns}    correlation: {burst_size: 0.5}\n`);
    const starts = (some: typeof all): typeof all => some.filter(({ round }) => round === 0);
    const gaps = gapsOf(starts(all));
    const bySession = Map.groupBy(all, ({ sessionId }) => sessionId);
    const middle = [...gaps].sort((a, b) => a - b)[gaps.length >> 1];
    const roundsAfter = (matches: (gap: number) => boolean): number[] =>
      starts(all)
        .slice(1)
        .filter((_, i) => matches(gaps[i]))
        .flatMap(({ sessionId }) => (bySession.get(sessionId) ?? []).slice(1))
        .map(({ inputTokens }) => inputTokens);
    const close = roundsAfter((gap) => gap < middle / 2);
    const far = roundsAfter((gap) => gap > 2 * middle);
    expect(mean(close)).toBeGreaterThan(1.5 * mean(far));
    // lengths alone change at first: sessions start when they did
    expect(starts(all)[1].arrivalUs).toBe(starts(plain)[1].arrivalUs);
  });

  const lengths = 'input_distribution: {type: constant, params: {value: 100}}';

  it('with correlated bursts have long follow-ups soon after their round, in closed loop', () => {
    const states = (correlation: string): WorkloadRequest[][] =>
      serve(
        workloadOf(`    session:
      markov:
        states:
          - {name: quick, next: {quick: 1, slow: 1}, pause_ms: {type: constant, params: {value: 10}}, ${lengths}}
          - {name: slow, next: {quick: 1, slow: 1}, pause_ms: {type: constant, params: {value: 4000}}, ${lengths}}
        rounds: {type: constant, params: {value: 8}}
      context_growth: none
${correlation}`),
      );
    const split = (sessions: WorkloadRequest[][]): { soon: number[]; late: number[] } => {
      const soon: number[] = [];
      const late: number[] = [];
      for (const rounds of sessions) {
        for (const [i, { arrivalUs, inputTokens }] of rounds.entries()) {
          if (i === 0) continue;
          (arrivalUs - rounds[i - 1].arrivalUs > 2e6 ? late : soon).push(inputTokens);
        }
      }
      return { soon, late };
    };
    const plain = split(states(''));
    expect(mean(plain.soon)).toBe(100);
    expect(mean(plain.late)).toBe(100);
    const correlated = split(states('    correlation: {burst_size: 0.5}\n'));
    expect(mean(correlated.soon)).toBeGreaterThan(1.5 * mean(correlated.late));
    expect(states('    correlation: {burst_size: 0.5}\n')).toEqual(
      states('    correlation: {burst_size: 0.5}\n'),
    );
  });

  it.each([
    [
      'conversations',
      `    reasoning: {multi_turn: {max_rounds: 6, think_time_us: 5000, context_growth: ""}}
    closed_loop: true
`,
    ],
    [
      'sessions that walk',
      `    session:
      markov:
        states: [{name: only, next: {only: 1}, ${lengths}}]
        rounds: {type: constant, params: {value: 6}}
      context_growth: none
`,
    ],
  ])('that send oversized prompts send them in every round of %s in closed loop', (_, session) => {
    const followUps = (behavior: string): number[] =>
      serve(workloadOf(session + behavior)).flatMap((rounds) =>
        rounds.slice(1).map(({ inputTokens }) => inputTokens),
      );
    const plain = followUps('');
    expect(plain.length).toBeGreaterThan(300);
    expect(Math.max(...plain)).toBeLessThan(400);
    const some = followUps('    behavior: {oversized: {share: 0.25, tokens: 9000}}\n');
    const share = some.filter((tokens) => tokens === 9000).length / some.length;
    expect(share).toBeGreaterThan(0.18);
    expect(share).toBeLessThan(0.32);
    const all = followUps('    behavior: {exhaust_cache_tokens: 9000}\n    correlation: {burst_size: 0.5}\n');
    expect(new Set(all)).toEqual(new Set([9000]));
  });

  it('of an archetype need no lengths', () => {
    const elephant = `    archetype: {typical_prompt_size: elephant, prefix_reuse_affinity: 1, session_length: 3}\n`;
    const workload = workloadOf(elephant, false);
    const sessions = serve(workload);
    expect(sessions.every((rounds) => rounds.length === 3)).toBe(true);
    expect(mean(sessions.map(([first]) => first.inputTokens))).toBeGreaterThan(40_000);
    expect(sessions.every(([first]) => first.prefixTokens === 16_000)).toBe(true);
  });
});

it.each([
  ['pareto', (gaps: number[]) => Math.max(...gaps) / mean(gaps), 6, 1000],
  ['periodic, jitter: 0.2', (gaps: number[]) => Math.max(...gaps) / mean(gaps), 1.05, 1.2],
])('arrivals that are %s', (process, figure, least, most) => {
  const all = [
    ...requestsOf(
      generateWorkload(
        parseWorkloadSpec(clientOf('').replace('process: poisson', `process: ${process}`), 'spec.yaml'),
      ).stream(),
    ),
  ];
  const gaps = gapsOf(all);
  expect(mean(gaps)).toBeGreaterThan(50_000);
  expect(mean(gaps)).toBeLessThan(150_000);
  expect(figure(gaps)).toBeGreaterThan(least);
  expect(figure(gaps)).toBeLessThan(most);
});

it.each([
  markov,
  agentic,
  chain('context_growth: sublinear'),
  '    behavior: {type: abusive}\n    correlation: {burst_size: -0.3, intra_tenant_prefix: 0.4}\n',
])('a written spec reads back as the same %#', (extra) => {
  const spec = parseWorkloadSpec(clientOf(extra), 'spec.yaml');
  expect(parseWorkloadSpec(formatWorkloadSpec(spec), 'again.yaml')).toEqual(spec);
});

describe('a mistake names its key', () => {
  it.each([
    [agentic.replace('tool_call', 'tol_call'), /session\.agentic\.tol_call_probability is not a key/],
    [
      markov.replace('write: 1}}', 'wrote: 1}}'),
      /session\.markov\.states\[0\]\.next\.wrote is not a key.*"write"/,
    ],
    [markov.replaceAll('look', 'end'), /states\[1\]\.name is "end"/],
    ['    session: {max_rounds: 3}\n', /session names 0 of agentic/],
    [chain('context_growth: bounded'), /context_growth is bounded without a context_limit/],
    ['    behavior: {type: bursti}\n', /behavior\.type is "bursti"\. Did you mean "bursty"/],
    ['    behavior: {type: bursty, synchronised: {size: 3}}\n', /behavior has bursts and synchronised/],
    ['    prefixes: {groups: []}\n', /prefixes\.groups is empty/],
    ['    prefix_group: x\n    correlation: {intra_tenant_prefix: 1}\n', /prefix_group excludes a choice/],
    ['    concurrency: 3\n    behavior: {type: bursty}\n', /behavior excludes concurrency/],
    [`${agentic}    closed_loop: false\n`, /closed_loop is false/],
    ['    correlation: {burst_size: 3}\n', /burst_size is 3/],
    ['    arrival_: 1\n', /arrival_ is not a key/],
    [
      `    behavior: {type: bursty}\n    lifecycle: {windows: [{start_us: 0, end_us: 9, trace_rate: 2}]}\n`,
      /have windows with parameters of their own beside/,
    ],
  ])('%#', (extra, says) => {
    expect(() => parseWorkloadSpec(clientOf(extra), 'spec.yaml')).toThrow(says);
  });

  it('a Pareto process without a mean', () => {
    const text = clientOf('').replace('process: poisson', 'process: pareto, shape: 1');
    expect(() => parseWorkloadSpec(text, 'spec.yaml')).toThrow(/arrival\.shape is 1/);
  });
});

it('recorded sessions in closed loop wait for the round before', () => {
  const recorded = [...requestsOf(workloadOf('').stream())].slice(0, 30).map((request, i) => ({
    ...request,
    sessionId: i % 3 === 0 ? '' : `s${i % 4}`,
    thinkTimeUs: i % 2 === 0 ? 7000 : 0,
  }));
  const { stream, sessions } = closedLoopTrace(recorded);
  const manager = new SessionManager(sessions);
  const served: WorkloadRequest[] = [];
  for (const first of requestsOf(stream)) {
    let at: WorkloadRequest | undefined = first;
    while (at !== undefined) {
      served.push(at);
      const timeUs = at.arrivalUs + 9e6;
      const next: WorkloadRequest | undefined = manager.next(at, {
        outcome: 'completed',
        timeUs,
        contextTokens: 1,
      });
      if (next?.thinkTimeUs === 7000) expect(next.arrivalUs).toBe(timeUs + 7000);
      at = next;
    }
  }
  expect(served.map(({ id }) => id).sort()).toEqual(recorded.map(({ id }) => id).sort());
  expect(served.map(({ prompt }) => prompt)).toEqual(
    served.map(({ id }) => recorded.find((request) => request.id === id)?.prompt),
  );
});
