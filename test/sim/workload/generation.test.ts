import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { parseWorkloadSpec } from '../../../src/sim/description/readWorkload.ts';
import type { ClientSpec, WorkloadSpec } from '../../../src/sim/description/workloadSpec.ts';
import type { ArrivalSpec, LengthSpec } from '../../../src/sim/random/samplers.ts';
import { SessionManager } from '../../../src/sim/workload/closedLoop.ts';
import { distributionSpec } from '../../../src/sim/workload/presets.ts';
import { requestsOf } from '../../../src/sim/workload/request.ts';
import { WorkloadDigest } from '../../../src/sim/workload/summary.ts';
import { TokenReader } from '../../../src/sim/workload/tokens.ts';
import { generateWorkload } from '../../../src/sim/workload/workload.ts';
import { naiveRequests } from './naive.ts';

const lengths: fc.Arbitrary<LengthSpec> = fc.oneof(
  fc.record({
    type: fc.constant('gaussian' as const),
    mean: fc.integer({ min: 1, max: 60 }),
    std_dev: fc.nat(30),
    min: fc.constant(1),
    max: fc.integer({ min: 1, max: 90 }),
  }),
  fc.record({ type: fc.constant('exponential' as const), mean: fc.integer({ min: 1, max: 60 }) }),
  fc.record({
    type: fc.constant('lognormal' as const),
    mu: fc.double({ min: 0, max: 4, noNaN: true }),
    sigma: fc.double({ min: 0, max: 1, noNaN: true }),
    max: fc.constant(200),
  }),
  fc.record({ type: fc.constant('constant' as const), value: fc.integer({ min: 1, max: 40 }) }),
  fc.constant<LengthSpec>({
    type: 'empirical',
    bins: [
      [5, 1],
      [50, 2],
      [17, 0],
      [90, 0.5],
    ],
  }),
  fc.constant<LengthSpec>({
    type: 'pareto_lognormal',
    alpha: 2.5,
    xm: 10,
    mu: 3,
    sigma: 0.5,
    mix_weight: 0.4,
  }),
);
const arrivals: fc.Arbitrary<ArrivalSpec> = fc.oneof(
  fc.constantFrom<ArrivalSpec>(
    { process: 'poisson' },
    { process: 'constant' },
    { process: 'gamma', shape: 0.5, scale: 200_000 },
  ),
  fc.record({
    process: fc.constantFrom('gamma' as const, 'weibull' as const),
    cv: fc.double({ min: 0.3, max: 4, noNaN: true }),
  }),
);
const windows = fc.oneof(
  { weight: 3, arbitrary: fc.constant([]) },
  {
    weight: 1,
    arbitrary: fc.array(
      fc
        .tuple(fc.nat(8_000_000), fc.integer({ min: 1, max: 8_000_000 }))
        .map(([startUs, length]) => ({ startUs, endUs: startUs + length })),
      { minLength: 1, maxLength: 3 },
    ),
  },
);
const multiTurn = fc.record({
  maxRounds: fc.integer({ min: 1, max: 4 }),
  thinkTimeUs: fc.nat(500_000),
  accumulate: fc.boolean(),
  singleSession: fc.constant(false),
});

const clients = fc
  .array(
    fc.record({
      rateFraction: fc.double({ min: 0.05, max: 3, noNaN: true }),
      arrival: arrivals,
      inputLength: lengths,
      outputLength: lengths,
      group: fc.constantFrom('', '', 'g0', 'g1'),
      prefixLength: fc.integer({ min: 1, max: 80 }),
      windows,
      turns: fc.option(multiTurn, { nil: undefined, freq: 2 }),
      ratio: fc.option(lengths, { nil: undefined }),
      timeoutUs: fc.option(fc.nat(1_000_000), { nil: undefined }),
      streaming: fc.boolean(),
    }),
    { minLength: 1, maxLength: 4 },
  )
  .map((list) =>
    list.map(
      ({ group, prefixLength, turns, ratio, timeoutUs, ...rest }, i): ClientSpec => ({
        id: `c${i}`,
        tenantId: `t${i % 2}`,
        sloClass: '',
        model: '',
        adapter: '',
        sloTargetUs: 0,
        concurrency: 0,
        thinkTimeUs: 0,
        prefixGroup: group,
        prefixLength: group === '' ? 0 : prefixLength,
        ...rest,
        ...(turns === undefined
          ? {}
          : {
              reasoning: { multiTurn: turns, ...(ratio === undefined ? {} : { reasonRatio: ratio }) },
              closedLoop: false,
            }),
        ...(timeoutUs === undefined ? {} : { timeoutUs }),
      }),
    ),
  );

const specs: fc.Arbitrary<WorkloadSpec> = fc.record({
  seed: fc.bigInt({ min: -(2n ** 63n), max: 2n ** 63n - 1n }),
  category: fc.constant('' as const),
  aggregateRate: fc.double({ min: 1, max: 40, noNaN: true }),
  horizonUs: fc.constantFrom(3_000_000, 10_000_000, Infinity),
  numRequests: fc.integer({ min: 1, max: 120 }),
  goodputSloTargets: fc.constant({}),
  clients,
  cohorts: fc.constant([]),
});

describe('streaming generation', () => {
  it('equals the plain algorithm on random specs: arrivals, sessions, every token', () => {
    fc.assert(
      fc.property(specs, (spec) => {
        const naive = naiveRequests(spec, spec.numRequests);
        const reader = new TokenReader();
        const streamed = [...requestsOf(generateWorkload(spec).stream())];
        expect(streamed).toHaveLength(naive.length);
        streamed.forEach((request, i) => {
          const { input, output, ...facts } = naive[i];
          expect({
            arrivalUs: request.arrivalUs,
            clientId: request.origin.clientId,
            sessionId: request.sessionId,
            round: request.round,
            prefixTokens: request.prefixTokens,
            deadlineUs: request.deadlineUs,
            reasonRatio: request.reasonRatio,
          }).toEqual(facts);
          expect([request.inputTokens, request.outputTokens]).toEqual([input.length, output.length]);
          expect([...reader.prompt(request)]).toEqual(input);
          expect([...reader.output(request)]).toEqual(output);
        });
      }),
      { numRuns: 150 },
    );
  });

  it('is sorted, counted, cut, without anything negative, and the same twice', () => {
    fc.assert(
      fc.property(specs, (spec) => {
        const workload = generateWorkload(spec);
        const digests = [0, 1].map(() => {
          const digest = new WorkloadDigest();
          let previousUs = 0;
          let count = 0;
          for (const request of requestsOf(workload.stream())) {
            expect(request.id).toBe(`request_${count++}`);
            expect(request.arrivalUs).toBeGreaterThanOrEqual(previousUs);
            expect(request.arrivalUs).toBeLessThan(spec.horizonUs);
            expect(
              Math.min(request.inputTokens, request.outputTokens, request.deadlineUs, request.prefixTokens),
            ).toBeGreaterThanOrEqual(0);
            previousUs = request.arrivalUs;
            digest.add(request);
          }
          expect(count).toBeLessThanOrEqual(spec.numRequests);
          return digest.toString();
        });
        expect(digests[0]).toBe(digests[1]);
      }),
      { numRuns: 100 },
    );
  });

  it('keeps shares, rate and mean lengths within statistics', () => {
    const spec = parseWorkloadSpec(
      `
version: "2"
seed: 5
aggregate_rate: 200
clients:
  - {id: a, rate_fraction: 3, arrival: {process: gamma, cv: 2}, input_distribution: {type: exponential, params: {mean: 100}}, output_distribution: {type: constant, params: {value: 3}}}
  - {id: b, rate_fraction: 1, arrival: {process: weibull, cv: 1.5}, input_distribution: {type: gaussian, params: {mean: 50, std_dev: 10, min: 1, max: 100}}, output_distribution: {type: constant, params: {value: 3}}}
`,
      'shares',
    );
    const requests = [...requestsOf(generateWorkload(spec, { maxRequests: 40_000 }).stream())];
    const a = requests.filter((request) => request.origin.clientId === 'a');
    // CV 2 over 30,000 gaps: the share of a has a deviation of about 0.9 %; five of them
    expect(a.length / requests.length).toBeGreaterThan(0.71);
    expect(a.length / requests.length).toBeLessThan(0.79);
    const seconds = requests[requests.length - 1].arrivalUs / 1e6;
    expect(requests.length / seconds).toBeGreaterThan(185);
    expect(requests.length / seconds).toBeLessThan(215);
    const mean = a.reduce((sum, request) => sum + request.inputTokens, 0) / a.length;
    expect(mean).toBeGreaterThan(97);
    expect(mean).toBeLessThan(103);
  });
});

const cohortSpec = (extra: string, top: string = 'aggregate_rate: 50'): WorkloadSpec =>
  parseWorkloadSpec(
    `
version: "2"
seed: 3
${top}
cohorts:
  - {id: u, population: 4, rate_fraction: 1, arrival: {process: poisson}, input_distribution: {type: constant, params: {value: 10}}, output_distribution: {type: constant, params: {value: 5}}, ${extra}}
`,
    'cohort',
  );

describe('cohorts and windows', () => {
  it('fills a spike window by its rate, all but the last request of each member', () => {
    const spec = cohortSpec(
      'spike: {start_time_us: 2000000, duration_us: 10000000, trace_rate: 40}',
      'aggregate_rate: 0',
    );
    const requests = [...requestsOf(generateWorkload(spec).stream())];
    // 10 requests a second and member for 10 s, and the gap that ends on the end of the window
    expect(requests).toHaveLength(4 * (100 - 1));
    expect(
      requests.every((request) => request.arrivalUs >= 2_000_000 && request.arrivalUs < 12_000_000),
    ).toBe(true);
    expect(requests.every((request) => request.deadlineUs === 0)).toBe(true);
    expect(new Set(requests.map((request) => request.origin.clientId)).size).toBe(4);
  });

  it('keeps prefixes in windows only when told to', () => {
    const spec = cohortSpec(
      'prefix_group: p, prefix_length: 7, spike: {start_time_us: 0, duration_us: 5000000, trace_rate: 40}',
      'aggregate_rate: 0',
    );
    const without = [...requestsOf(generateWorkload(spec).stream())];
    const kept = [...requestsOf(generateWorkload(spec, { keepInWindows: true }).stream())];
    expect(without.every((request) => request.inputTokens === 10)).toBe(true);
    expect(kept.every((request) => request.inputTokens === 17)).toBe(true);
    expect(kept.map((request) => request.arrivalUs)).toEqual(without.map((request) => request.arrivalUs));
  });

  it('gives every member its own prefix if the spec says so', () => {
    const groups = (sharing: string): Set<string> =>
      new Set(
        [
          ...requestsOf(
            generateWorkload(cohortSpec(`prefix_group: p, prefix_sharing: ${sharing}`), {
              maxRequests: 200,
            }).stream(),
          ),
        ].map((request) => request.recordedPrefixGroup),
      );
    expect(groups('shared')).toEqual(new Set(['p']));
    expect(groups('per_member')).toEqual(new Set(['p-0', 'p-1', 'p-2', 'p-3']));
  });

  it('is most active at the peak of a diurnal pattern', () => {
    const spec = cohortSpec('diurnal: {peak_hour: 14, peak_to_trough_ratio: 4}', 'aggregate_rate: 0.5');
    const hours = new Float64Array(24);
    for (const request of requestsOf(generateWorkload(spec, { maxRequests: 40_000 }).stream()))
      hours[Math.floor(request.arrivalUs / 3.6e9)]++;
    const [peak, trough] = [hours[14], hours[2]];
    expect(peak / trough).toBeGreaterThan(3);
    expect(peak / trough).toBeLessThan(5.5);
  });

  it('drains to nothing', () => {
    const spec = cohortSpec('drain: {start_time_us: 10000000, ramp_duration_us: 10000000}');
    const requests = [...requestsOf(generateWorkload(spec).stream())];
    const between = (from: number, to: number): number =>
      requests.filter((r) => r.arrivalUs >= from * 1e6 && r.arrivalUs < to * 1e6).length;
    expect(between(0, 10)).toBeGreaterThan(between(10, 15));
    expect(between(10, 15)).toBeGreaterThan(between(15, 20));
    expect(between(20, 1e6)).toBe(0);
  });

  it('merges windows of one client that overlap or come out of order', () => {
    const spec = parseWorkloadSpec(
      `
version: "2"
seed: 1
aggregate_rate: 0
clients:
  - id: a
    rate_fraction: 1
    arrival: {process: poisson}
    input_distribution: {type: constant, params: {value: 10}}
    output_distribution: {type: constant, params: {value: 5}}
    lifecycle:
      windows:
        - {start_us: 5000000, end_us: 9000000, trace_rate: 20}
        - {start_us: 0, end_us: 6000000, trace_rate: 10}
        - {start_us: 7000000, end_us: 8000000, trace_rate: 50}
`,
      'windows',
    );
    const requests = [...requestsOf(generateWorkload(spec).stream())];
    expect(requests).toHaveLength(79 + 59 + 49);
    const arrivals = requests.map((request) => request.arrivalUs);
    expect(arrivals).toEqual([...arrivals].sort((x, y) => x - y));
    // the draws belong to the windows in the order of the spec, whatever the order of arrival
    const reader = new TokenReader();
    const all = requests
      .map((request) => reader.prompt(request).join())
      .filter((text, i, list) => list.indexOf(text) === i);
    expect(all).toHaveLength(requests.length);
  });
});

const PERF = (multiTurn: boolean, stages: string): WorkloadSpec =>
  parseWorkloadSpec(
    `
version: "2"
seed: 42
inference_perf:
  stages: [${stages}]
  shared_prefix: {num_unique_system_prompts: 3, num_users_per_system_prompt: 2, system_prompt_len: 20, question_len: 30, output_len: 9, enable_multi_turn_chat: ${multiTurn}}
`,
    'perf',
  );

describe('inference_perf', () => {
  it('sends exactly rate × duration requests in one stage', () => {
    const requests = [...requestsOf(generateWorkload(PERF(false, '{rate: 10, duration: 20}')).stream())];
    expect(requests).toHaveLength(200);
    expect(requests.every((request) => request.inputTokens === 50 && request.prefixTokens === 20)).toBe(true);
    const per = new Map<string, number>();
    for (const { origin } of requests) per.set(origin.clientId, (per.get(origin.clientId) ?? 0) + 1);
    expect([...per.values()].sort()).toEqual([33, 33, 33, 33, 34, 34]);
  });

  it('runs each stage at its own rate', () => {
    const requests = [
      ...requestsOf(
        generateWorkload(PERF(false, '{rate: 20, duration: 50}, {rate: 80, duration: 50}')).stream(),
      ),
    ];
    const first = requests.filter((request) => request.arrivalUs < 50e6).length;
    expect(first).toBeGreaterThan(850);
    expect(first).toBeLessThan(1150);
    expect(requests.length - first).toBeGreaterThan(3700);
    expect(requests.length - first).toBeLessThan(4300);
  });

  it('plays multi-turn as one session a user, with the prefix in every round', () => {
    const workload = generateWorkload(PERF(true, '{rate: 6, duration: 20}'));
    const first = [...requestsOf(workload.stream())];
    expect(first).toHaveLength(6);
    const manager = new SessionManager(workload.sessions!);
    let rounds = 0;
    for (const start of first) {
      for (let request: typeof start | undefined = start; request !== undefined; ) {
        rounds++;
        expect(request.inputTokens).toBe(50);
        request = manager.next(request, {
          outcome: 'completed',
          timeUs: request.arrivalUs + 1000,
          contextTokens: 8,
        });
      }
    }
    expect(rounds).toBe(120);
  });
});

const CHAT = parseWorkloadSpec(
  `
version: "2"
seed: 9
aggregate_rate: 20
num_requests: 60
clients:
  - {id: chat, rate_fraction: 1, prefix_group: sys, prefix_length: 16, arrival: {process: poisson},
     input_distribution: {type: exponential, params: {mean: 30}}, output_distribution: {type: exponential, params: {mean: 20}},
     reasoning: {multi_turn: {max_rounds: 3, think_time_us: 1000, context_growth: accumulate}}}
`,
  'chat',
);

describe('sessions', () => {
  const done = (timeUs: number, contextTokens: number): Parameters<SessionManager['next']>[1] => ({
    outcome: 'completed',
    timeUs,
    contextTokens,
  });

  it('carries the whole conversation into every round', () => {
    const workload = generateWorkload(CHAT);
    const manager = new SessionManager(workload.sessions!);
    const reader = new TokenReader();
    const [first] = [...requestsOf(workload.stream())];
    const second = manager.next(first, done(50_000, first.outputTokens - 1))!;
    const context = [...reader.prompt(first), ...reader.output(first).slice(0, first.outputTokens - 1)];
    expect([...reader.prompt(second).slice(0, context.length)]).toEqual(context);
    expect(second.inputTokens).toBeGreaterThan(context.length);
    expect(second.arrivalUs).toBe(51_000);
    const third = manager.next(second, done(90_000, second.outputTokens - 1))!;
    expect([...reader.prompt(third).slice(0, second.inputTokens)]).toEqual([...reader.prompt(second)]);
    expect(manager.next(third, done(120_000, third.outputTokens - 1))).toBeUndefined();
  });

  it('ends with a timeout, a drop, the horizon and the budget', () => {
    const workload = generateWorkload(CHAT, { horizonUs: 60_000_000 });
    const [first] = [...requestsOf(workload.stream())];
    const end = { timeUs: 1000, contextTokens: 0 };
    for (const outcome of ['timed-out', 'dropped'] as const) {
      const manager = new SessionManager(workload.sessions!);
      expect(manager.next(first, { ...end, outcome })).toBeUndefined();
      expect(manager.next(first, { ...end, outcome: 'completed' })).toBeUndefined();
    }
    expect(new SessionManager(workload.sessions!).next(first, done(60_000_000, 0))).toBeUndefined();
    const users = generateWorkload(distributionSpec({ concurrency: 3, numRequests: 5 }));
    const manager = new SessionManager(users.sessions!);
    const seeds = [...requestsOf(users.stream())];
    expect(seeds).toHaveLength(3);
    const follow = seeds.map((seed) => manager.next(seed, done(1000, 0)));
    expect(follow.map((request) => request === undefined)).toEqual([false, false, true]);
  });

  it('resumes from a snapshot as plain data', () => {
    const workload = generateWorkload(CHAT);
    const requests = [...requestsOf(workload.stream())];
    const manager = new SessionManager(workload.sessions!);
    const seconds = requests.map(
      (request) => manager.next(request, done(request.arrivalUs + 10, request.outputTokens))!,
    );
    const fork = SessionManager.restore(workload.sessions!, structuredClone(manager.snapshot()));
    const go = (m: SessionManager): unknown[] =>
      seconds.map((request) => m.next(request, done(request.arrivalUs + 10, request.outputTokens)));
    expect(go(fork)).toEqual(go(manager));
  });
});

describe('workloads without an end', () => {
  it('are refused, naming the client', () => {
    expect(() => generateWorkload({ ...CHAT, numRequests: 0 })).toThrow(
      /client "chat" is always on\. Set num_requests or horizon/,
    );
    expect(() => generateWorkload(distributionSpec({ concurrency: 2, numRequests: 0 }))).toThrow(/no end/);
  });

  it('cannot reach times that a number cannot hold', () => {
    const slow = distributionSpec({ rate: 1e-12, numRequests: 20 });
    expect(() => [...requestsOf(generateWorkload(slow).stream())]).toThrow(/2\^53 µs/);
  });
});
