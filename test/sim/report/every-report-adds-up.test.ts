/**
 * Laws that hold for the report of every run: requests, tokens, blocks and times are conserved, and no ratio
 * leaves a part of its whole out. Random deployments with tiers, roles, gateways, autoscaling, deadlines,
 * horizons, preemption and sessions; the seed is in each message.
 */

import { describe, expect, it } from 'vitest';
import type { SimulationObserver } from '../../../src/sim/cluster/parts.ts';
import { Simulation } from '../../../src/sim/cluster/simulation.ts';
import { PolicyControlPlane } from '../../../src/sim/control/plane.ts';
import type { RoutingDecision } from '../../../src/sim/control/policy.ts';
import { newSimulation } from '../../../src/sim/description/deployment.ts';
import type { SimRequest } from '../../../src/sim/instance/simRequest.ts';
import { Status } from '../../../src/sim/metrics/requestTable.ts';
import {
  attainedOf,
  clusterMetrics,
  metricsOutput,
  tenantSummaries,
} from '../../../src/sim/report/metricsOutput.ts';
import { cacheMetrics, Spread, transferMetrics } from '../../../src/sim/report/tierMetrics.ts';
import { SeededRandom } from '../../../src/testing/index.ts';
import { sized } from '../../sized.ts';
import { randomSetup } from '../cluster/randomCluster.ts';
import {
  type SmallRequest,
  smallPool,
  smallSimulation,
  smallWorkload,
  streamOf,
} from '../cluster/smallCluster.ts';

/** What an observer counts of a run, without the report's own counters. */
class Witness implements SimulationObserver {
  /** Blocks that requests found when they first joined a batch, hand-offs left out. */
  found = 0;
  joins = 0;
  readonly #seen = new Set<number>();

  joined(request: Parameters<NonNullable<SimulationObserver['joined']>>[0]): void {
    this.joins++;
    if (request.part === 'decode' || this.#seen.has(request.number)) return;
    this.#seen.add(request.number);
    this.found += Math.max(0, request.foundBlocks);
  }
}

const sum = (values: Iterable<number>): number => [...values].reduce((all, value) => all + value, 0);

/** Targets that some requests of each class meet and others miss; classes without targets stay. */
function targetsOf(
  random: SeededRandom,
): Record<string, { ttftUs?: number; itlUs?: number; e2eUs?: number }> {
  const names = ['critical', 'standard', 'batch', 'default', 'of no request'].filter(() =>
    random.chance(0.7),
  );
  return Object.fromEntries(
    names.map((name) => [
      name,
      {
        ...(random.chance(0.7) ? { ttftUs: random.below(40_000) } : {}),
        ...(random.chance(0.4) ? { itlUs: random.below(3000) } : {}),
        ...(random.chance(0.5) ? { e2eUs: random.below(200_000) } : {}),
      },
    ]),
  );
}

function holdLaws(seed: number, simulation: Simulation, witness: Witness, horizonUs: number): void {
  const where = `seed ${seed}`;
  const conservation = simulation.close();
  const { table, instances } = simulation;
  const rows = Array.from({ length: table.size }, (_, row) => row);
  const targets = targetsOf(new SeededRandom(seed + 1));
  const metrics = clusterMetrics(table, instances, targets);
  const each = instances.map(({ id }, i) => metricsOutput(table, instances, id, i, false));

  // requests
  const { injected, ...places } = conservation;
  expect(sum(Object.values(places)), where).toBe(injected);
  expect(injected, where).toBe(table.size);
  const { arrived, rejected, unroutable, shed, expired, lost } = conservation;
  const elsewhere = arrived + rejected + unroutable + shed + expired + lost;
  expect(metrics.injected_requests + elsewhere, where).toBe(injected);
  expect(metrics.still_running, where).toBe(conservation.running + conservation.handedOff);
  for (const field of [
    'completed_requests',
    'still_queued',
    'injected_requests',
    'total_input_tokens',
    'total_output_tokens',
    'preemption_count',
    'dropped_unservable',
    'timed_out_requests',
  ] as const) {
    expect(sum(each.map((one) => one[field])), `${where}: ${field} by instance`).toBe(metrics[field]);
  }

  // tokens
  const completed = rows.filter((row) => table.status[row] === Status.COMPLETED);
  expect(sum(completed.map((row) => table.generatedTokens[row])), where).toBe(metrics.total_output_tokens);
  expect(metrics.total_input_tokens, where).toBeGreaterThanOrEqual(
    sum(completed.map((row) => table.promptTokens[row])),
  );
  expect(metrics.total_input_tokens, where).toBeLessThanOrEqual(
    sum(rows.filter((row) => table.instance[row] >= 0).map((row) => table.promptTokens[row])),
  );
  for (const row of rows) {
    const got = table.generatedTokens[row];
    expect(got, where).toBeLessThanOrEqual(Math.max(1, table.outputTokens[row]));
    if (table.preemptions[row] === 0) expect(got > 0, where).toBe(table.firstTokenUs[row] >= 0);
  }
  const { tenants } = tenantSummaries(table);
  const named = rows.filter((row) => table.originOf(row).tenantId !== '');
  expect(tenants.length, where).toBe(new Set(named.map((row) => table.originOf(row).tenantId)).size);
  expect(sum(tenants.map(({ tokens }) => tokens)), where).toBe(
    sum(named.map((row) => (table.status[row] === Status.COMPLETED ? table.generatedTokens[row] : 0))),
  );

  // times
  const endUs = Math.round(metrics.vllm_estimated_duration_s * 1e6);
  expect(endUs, where).toBeLessThanOrEqual(horizonUs);
  for (const row of rows) {
    if (table.instance[row] >= 0) expect(table.arrivalUs[row], where).toBeLessThanOrEqual(endUs);
    if (table.e2eUs[row] < 0 || horizonUs !== Infinity) continue;
    expect(table.arrivalUs[row] + table.e2eUs[row], where).toBeLessThanOrEqual(endUs);
  }
  expect(metrics.responses_per_sec * metrics.vllm_estimated_duration_s, where).toBeCloseTo(
    completed.length,
    6,
  );
  for (const { counters, endUs: until } of instances) {
    if (horizonUs === Infinity) expect(counters.busyUs, where).toBeLessThanOrEqual(until);
  }

  // blocks
  const cache = cacheMetrics(instances);
  const byTier = Object.values(cache.hitsByTier);
  expect(Math.min(...byTier, cache.misses), where).toBeGreaterThanOrEqual(0);
  expect(sum(byTier) + cache.misses, where).toBe(cache.lookups);
  expect(sum(transferMetrics(instances).tiers.map(({ hits }) => hits)), where).toBe(cache.hits);
  const written = instances.map(({ engine }) => {
    return sum(engine.traffic().tiers.map(({ writtenBytes }) => writtenBytes)) / engine.blockBytes;
  });
  expect(transferMetrics(instances).sent, where).toBe(sum(written));
  const joinsAgain = witness.joins !== conservation.injected - elsewhere || metrics.preemption_count > 0;
  if (metrics.preemption_count === 0 && lost === 0) expect(cache.hits, where).toBe(witness.found);
  else expect(cache.hits, where).toBeGreaterThanOrEqual(witness.found);
  if (instances.length === 1) expect(cache.hitRate, where).toBe(metrics.cache_hit_rate);
  const rates = each.map(({ cache_hit_rate: rate }) => rate);
  expect(cache.hitRate, where).toBeLessThanOrEqual(Math.max(...rates));
  const hasRoles = instances.some(({ role }) => role !== 'monolithic');
  if (!joinsAgain && !hasRoles && completed.length === table.size) {
    // a request that is done has held a block for each token but the last
    const size = instances[0].blockTokens;
    const held = completed.map((row) =>
      Math.ceil((table.promptTokens[row] + table.generatedTokens[row] - 1) / size),
    );
    expect(cache.lookups, where).toBe(sum(held));
    const prompts = completed.map((row) => Math.floor(table.promptTokens[row] / size));
    expect(cache.hits, where).toBeLessThanOrEqual(sum(prompts));
  }

  // targets
  const attained = attainedOf(table, targets);
  for (const counts of [attained, ...Object.values(attained.byClass)]) {
    expect(counts.attained + counts.missed + counts.rejected, where).toBe(counts.injected);
  }
  expect(attained.injected + attained.withoutTargets, where).toBe(injected);
  expect(sum(Object.values(attained.byClass).map((counts) => counts.injected)), where).toBe(
    attained.injected,
  );
  if (Object.keys(targets).length === 0) return;
  expect((metrics.slo_attainment ?? -1) * attained.injected, where).toBeCloseTo(attained.attained, 6);
  for (const [name, counts] of Object.entries(attained.byClass)) {
    const shown = metrics.per_class?.[name];
    expect(shown?.count ?? 0, `${where}: ${name}`).toBe(counts.injected);
    if (shown === undefined) continue;
    expect(shown.slo_attainment * shown.count, `${where}: ${name}`).toBeCloseTo(counts.attained, 6);
    for (const share of Object.values(shown.slo_attainment_by_dim)) {
      expect(share, `${where}: ${name}`).toBeGreaterThanOrEqual(shown.slo_attainment);
      expect(share * shown.count, `${where}: ${name}`).toBeLessThanOrEqual(
        counts.injected - counts.rejected + 1e-6,
      );
    }
  }
}

const SEEDS = sized(100, 400);
const SEEDS_A_TEST = 50;

describe('the report of a random run', () => {
  it.each(Array.from({ length: SEEDS / SEEDS_A_TEST }, (_, i) => i * SEEDS_A_TEST))(
    `adds up, ${SEEDS_A_TEST} seeds from %i on`,
    (first) => {
      for (let seed = first; seed < first + SEEDS_A_TEST; seed++) {
        const witness = new Witness();
        const setup = randomSetup(seed, witness);
        // every third run is cut while much is under way
        const horizonUs = seed % 3 === 0 ? 3000 + 500 * (seed % 101) : setup.options.horizonUs;
        const simulation = newSimulation({ ...setup, options: { ...setup.options, horizonUs } });
        simulation.run();
        holdLaws(seed, simulation, witness, horizonUs);
      }
    },
  );

  it('equals the report of a fork that goes on from the middle', () => {
    for (let seed = 0; seed < sized(20, 60); seed++) {
      const simulation = newSimulation(randomSetup(seed));
      simulation.runSome(200);
      const fork = Simulation.fork(simulation.snapshot());
      const reports = [simulation, fork].map((run) => {
        run.run();
        run.close();
        const { table, instances } = run;
        return [clusterMetrics(table, instances, {}, false), cacheMetrics(instances)];
      });
      expect(reports[1], `seed ${seed}`).toEqual(reports[0]);
    }
  });
});

describe('the duration of a run that is cut by its horizon', () => {
  /** A request of one step, and one whose only step ends after every horizon below. */
  const durationUs = (horizonUs: number): number => {
    const requests: SmallRequest[] = [
      { atUs: 0, prompt: 4, output: 1 },
      { atUs: 10_000, prompt: 64, output: 1 },
      { atUs: 10_900, prompt: 4, output: 1 },
    ];
    const simulation = newSimulation({
      deployment: { pools: [smallPool()] },
      workload: { stream: streamOf(smallWorkload(requests)), sessions: undefined },
      control: new PolicyControlPlane({}, { key: 1n, blockTokens: 4, maxSequences: 16 }),
      observer: {},
      scaling: [],
      forced: {},
      options: {
        horizonUs,
        admissionLatencyUs: 0,
        routingLatencyUs: 0,
        lastTokenInContext: true,
        handoff: { baseLatencyUs: 50, bandwidthBytesPerS: 1e8 },
      },
    });
    simulation.run();
    simulation.close();
    const { table, instances } = simulation;
    return Math.round(clusterMetrics(table, instances, {}).vllm_estimated_duration_s * 1e6);
  };

  it('is the last event of an instance: the end of a step, or the coming of a request', () => {
    const firstStepUs = 1000 + 10 * 4;
    expect(durationUs(9_999)).toBe(firstStepUs);
    expect(durationUs(10_500)).toBe(10_000);
    expect(durationUs(11_000)).toBe(10_900);
    expect(durationUs(Infinity)).toBeGreaterThan(11_640);
  });
});

describe('figures that flatter', () => {
  const requests: SmallRequest[] = Array.from({ length: 40 }, (_, i) => {
    return { atUs: 400 * i, prompt: 24, output: 8, stream: i % 4, tenant: i % 2 === 0 ? 'a' : 'b' };
  });
  const run = (replicas: number, policy: string, control: object = {}): Simulation => {
    const simulation = smallSimulation([smallPool({ replicas })], requests, {
      routing: { policy },
      signals: { snapshotIntervalUs: 0, cacheSignalUs: 0 },
      ...control,
    });
    simulation.run();
    simulation.close();
    return simulation;
  };

  it('idle instances do not change how much was found, and upstream has the mean over them', () => {
    const { instances: one } = run(1, 'round-robin');
    const { instances: many, table } = run(4, 'always-busiest');
    expect(many.filter(({ times }) => times.steps === 0).length).toBe(3);
    expect(cacheMetrics(many)).toMatchObject({
      hits: cacheMetrics(one).hits,
      misses: cacheMetrics(one).misses,
    });
    expect(cacheMetrics(many).hitRate).toBe(cacheMetrics(one).hitRate);
    expect(clusterMetrics(table, many).cache_hit_rate).toBeCloseTo(cacheMetrics(one).hitRate / 4, 12);
  });

  it('warns of requests that go to a few instances of a pool more than chance explains', () => {
    const told = (replicas: number, policy: string, count = 40): string[] => {
      const spread = new Spread();
      const pools = [smallPool({ replicas })];
      const simulation = smallSimulation(pools, requests.slice(0, count), { routing: { policy } }, spread);
      simulation.run();
      const warnings = spread.warnings(simulation.instances, new Set());
      expect(spread.warnings(simulation.instances, new Set(['all']))).toEqual([]);
      return warnings;
    };
    expect(told(4, 'always-busiest')).toEqual([
      expect.stringMatching(
        /^3 of 4 instances of all got no request, and \S+ got 40 of 40 requests\. Look at/,
      ),
    ]);
    expect(told(2, 'always-busiest')[0]).toMatch(/^1 of 2 instances of all got no request/);
    for (const replicas of [1, 2, 3, 4]) expect(told(replicas, 'round-robin')).toEqual([]);
    expect(told(4, 'always-busiest', 8)).toEqual([]);
    // all share a prefix, and the one that has it wins by its weight
    const spread = new Spread();
    const decision = { prefillInstance: -1 } as RoutingDecision;
    for (let i = 0; i < 20; i++)
      spread.routing({} as SimRequest, { ...decision, target: i < 12 ? 0 : 1 + (i % 2) });
    const three = smallSimulation([smallPool({ replicas: 3 })], []).instances;
    expect(spread.warnings(three, new Set())[0]).toMatch(
      /^of 3 instances of all one took over half: \S+ got 12 of 20 requests/,
    );
  });

  it('a rejected class attains nothing, in total and by dimension', () => {
    const { table } = run(1, 'round-robin', { admission: { policy: 'reject-all' } });
    const metrics = clusterMetrics(table, [], { default: { ttftUs: 1e9, e2eUs: 1e9 } });
    expect([metrics.slo_attainment, metrics.goodput_rps]).toEqual([0, 0]);
    expect(metrics.per_class?.default).toMatchObject({
      count: 40,
      slo_attainment_by_dim: { e2e: 0, ttft: 0 },
    });
  });

  it('blocks that a hand-off brings are found nowhere', () => {
    const distinct = requests.map(({ stream: _s, ...request }) => request);
    const pools = [smallPool({ role: 'prefill' }), smallPool({ role: 'decode' })];
    const simulation = smallSimulation(pools, distinct, { decider: { policy: 'always' } });
    simulation.run();
    expect(simulation.handoffs.counters.completed).toBe(40);
    expect(cacheMetrics(simulation.instances).hits).toBe(0);
    expect(cacheMetrics(simulation.instances).misses).toBeGreaterThan(40 * 6);
  });

  it('a tenant that got nothing makes the shares uneven', () => {
    const { table } = run(1, 'round-robin');
    expect(tenantSummaries(table).jain).toBe(1);
    for (let row = 0; row < table.size; row++) {
      if (table.originOf(row).tenantId === 'b') table.status[row] = Status.REJECTED;
    }
    expect(tenantSummaries(table).jain).toBe(0.5);
    expect(tenantSummaries(table, true).jain).toBe(1);
  });
});
