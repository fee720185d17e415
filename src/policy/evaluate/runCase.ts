/** One case of a suite with one bundle: a simulation, and its raw metrics. */

import { buildPlanned } from '../../sim/build/build.ts';
import type { BoundPolicies, BuiltSimulation } from '../../sim/build/built.ts';
import { goodputTargets } from '../../sim/build/classTargets.ts';
import { planSimulation, type SimulationPlan } from '../../sim/build/plan.ts';
import { type ForcedDecisions, observers, type SimulationObserver } from '../../sim/cluster/parts.ts';
import type { Simulation } from '../../sim/cluster/simulation.ts';
import { withValue } from '../../sim/description/settings.ts';
import type { WorkloadSpec } from '../../sim/description/workloadSpec.ts';
import { type RequestTable, statusNames } from '../../sim/metrics/requestTable.ts';
import { meetsTargets, type TargetsByClass } from '../../sim/metrics/statistics.ts';
import { PartitionedRandom } from '../../sim/random/goRand.ts';
import type { LengthSpec } from '../../sim/random/samplers.ts';
import { bindBundle } from '../evolve/binding/bind.ts';
import type { PolicyBundle } from '../evolve/bundle/policyBundle.ts';
import { policyId } from '../evolve/bundle/presets.ts';
import type { SuiteCase } from '../evolve/fitness/evaluation.ts';
import { type LostTimes, type RawMetrics, RunWatch, rawMetrics } from '../evolve/fitness/rawMetrics.ts';
import { type RequestFact, type SummaryConfig, summarise } from '../evolve/summary.ts';
import type { Anomaly } from '../evolve/trace/anomalies.ts';
import { TraceRecorder } from '../evolve/trace/recorder.ts';
import type { TraceLevel } from '../evolve/trace/records.ts';
import { type Regret, regretsOf, sampleDecisions } from '../evolve/trace/regret.ts';

/** Binds bundles that were checked, and keeps the last one: a bundle runs through all cases of a suite. */
export class Binder {
  #last: { readonly id: string; readonly bound: BoundPolicies } | undefined;

  async bind(bundle: PolicyBundle): Promise<BoundPolicies> {
    const id = policyId(bundle);
    if (this.#last?.id !== id) this.#last = { id, bound: await bindBundle(bundle, true) };
    return this.#last.bound;
  }
}

interface RunCase {
  readonly metrics: RawMetrics;
  readonly built: BuiltSimulation;
  readonly targets: TargetsByClass;
}

/** A case as a thread runs it. */
export interface PlannedCase extends Omit<SuiteCase, 'deployment'> {
  readonly plan: SimulationPlan;
  /**
   * Least times that count for a request that does not complete, where the baseline has requests slower than a minute.
   */
  readonly lost?: LostTimes;
}

/** @throws {TierKVError} for a deployment that is wrong, in the words of the one who wrote it */
export function planCase({ deployment, ...rest }: SuiteCase): PlannedCase {
  return { ...rest, plan: planSimulation(withValue(deployment, 'seed', BigInt(rest.seed))) };
}

/** A function that makes the simulation of a case anew at each call. */
export function caseBuilder(
  bound: BoundPolicies,
  { plan, seed, perturbation }: PlannedCase,
): (observer: SimulationObserver, forced?: ForcedDecisions) => BuiltSimulation {
  const factors = drawFactors(BigInt(seed), perturbation);
  // policies of a bundle may look at blocks, so block keys exist from the first event on
  return (observer, forced) =>
    buildPlanned(plan, {
      bundle: bound,
      observer,
      skipsKeys: false,
      ...(forced === undefined ? {} : { forced }),
      ...(perturbation === 0 ? {} : { adjust: (spec) => perturbed(spec, factors) }),
    });
}

/**
 * @param watchers observers of the run
 * @param begun told of the simulation before its first event
 * @throws PolicyError of the bundle's programs, TierKVError for arguments at fault
 */
export function runCase(
  bound: BoundPolicies,
  planned: PlannedCase,
  watchers: readonly SimulationObserver[] = [],
  begun: (simulation: Simulation) => void = () => {},
): RunCase {
  const build = caseBuilder(bound, planned);
  const running: { simulation: Simulation | null } = { simulation: null };
  const watch = new RunWatch(() => running.simulation?.instances.map(({ engine }) => engine.tiers()) ?? []);
  const built = build(observers([watch, ...watchers]));
  const { simulation } = built;
  running.simulation = simulation;
  const byConfig = new Map<string, number>();
  for (const { configId } of simulation.instances) byConfig.set(configId, (byConfig.get(configId) ?? 0) + 1);
  watch.begin(simulation.instances.length, byConfig);
  begun(simulation);
  simulation.run();
  simulation.close();
  const targets = goodputTargets(built.deployment, built.opened.spec);
  return { metrics: rawMetrics(simulation, watch, targets, planned.lost), built, targets };
}

//  Tasks of a worker, and their answers.

export interface CaseTask {
  /** The bundle as `readBundle` returns it. */
  readonly bundle: PolicyBundle;
  readonly case: PlannedCase;
  readonly explain?: ExplainOptions;
}

export interface TaskResult {
  readonly metrics: RawMetrics;
  readonly explanation?: Explanation;
}

export function runTask(bound: BoundPolicies, { case: planned, explain }: CaseTask): TaskResult {
  if (explain !== undefined) return explainCase(bound, planned, explain);
  return { metrics: runCase(bound, planned).metrics };
}

// The explanation of a case: its decisions, its faults, the outcomes of alternatives, and a page about all of it.

export interface ExplainOptions {
  readonly summary: SummaryConfig;
  /** Number of routing decisions to repeat with each other instance; each alternative costs a run. */
  readonly regrets: number;
  readonly level: TraceLevel;
  /** Metrics of the baseline on the same case. */
  readonly baseline?: RawMetrics;
}

/** An account of one case: a summary, anomalies, regrets and the trace. */
export interface Explanation {
  readonly summary: string;
  readonly anomalies: readonly Anomaly[];
  readonly regrets: readonly Regret[];
  /** JSON lines: the decisions unless the level is `minimal`, anomalies, and the metrics as the last one. */
  readonly trace: readonly string[];
}

function factsOf(table: RequestTable, targets: TargetsByClass, recorder: TraceRecorder): RequestFact[] {
  const ms = (us: number): number => (us < 0 ? -1 : us / 1000);
  return Array.from({ length: table.size }, (_, row): RequestFact => {
    const { tenantId, sloClass } = table.originOf(row);
    const status = statusNames[table.status[row]];
    return {
      id: table.idOf(row),
      tenant: tenantId,
      sloClass,
      arrivalMs: table.arrivalUs[row] / 1000,
      promptTokens: table.promptTokens[row],
      status,
      ttftMs: ms(table.firstTokenUs[row]),
      e2eMs: ms(table.e2eUs[row]),
      tpotMs: status === 'completed' ? table.meanGapUs(row) / 1000 : -1,
      preemptions: table.preemptions[row],
      good: meetsTargets(table, row, targets),
      routing: recorder.routings.get(row),
    };
  });
}

export function explainCase(
  bound: BoundPolicies,
  planned: PlannedCase,
  options: ExplainOptions,
): { readonly metrics: RawMetrics; readonly explanation: Explanation } {
  const recorder = new TraceRecorder(options.level);
  const { metrics, built, targets } = runCase(bound, planned, [recorder], (simulation) =>
    recorder.attach(simulation),
  );
  const { simulation } = built;
  const rows = new Map([...recorder.routings].map(([row, record]) => [record, row]));
  const sampled = sampleDecisions([...recorder.routings.values()], options.regrets);
  const build = caseBuilder(bound, planned);
  // each sampled record was listed with its row
  const regrets = regretsOf(
    () => build({}).simulation,
    simulation,
    sampled,
    (record) => rows.get(record) as number,
  );
  const anomalies = recorder.anomalies.found(targets);
  const summary = summarise(
    {
      caseId: planned.id,
      policyId: bound.policyId,
      metrics,
      baseline: options.baseline,
      targets,
      routesByReports: simulation.control.routesByReports,
      requests: factsOf(simulation.table, targets, recorder),
      anomalies,
      regrets,
    },
    options.summary,
  );
  const outcome = [
    ...anomalies.map((anomaly) => ({ kind: 'anomaly', ...anomaly })),
    { kind: 'metrics', caseId: planned.id, policyId: bound.policyId, metrics },
  ];
  const trace = [...recorder.records, ...outcome].map((record) => JSON.stringify(record));
  return { metrics, explanation: { summary, anomalies, regrets, trace } };
}

// Perturbed workloads: rate and lengths times factors drawn from a key, so that a search does not fit one workload too
// closely. The same key gives the same factors.

interface Factors {
  readonly rate: number;
  readonly prompt: number;
  readonly output: number;
}

/** Factors from 1 - most to 1 + most. */
function drawFactors(key: bigint, most: number): Factors {
  const random = new PartitionedRandom(key).stream('perturbation');
  const draw = (): number => 1 + most * (2 * random.float64() - 1);
  return { rate: draw(), prompt: draw(), output: draw() };
}

function scaled(length: LengthSpec, by: number): LengthSpec {
  switch (length.type) {
    case 'gaussian': {
      const { mean, std_dev: deviation, min, max } = length;
      return {
        ...length,
        mean: mean * by,
        std_dev: deviation * by,
        min: Math.max(1, min * by),
        max: max * by,
      };
    }
    case 'exponential':
      return { ...length, mean: length.mean * by };
    case 'constant':
      return { ...length, value: Math.max(1, Math.round(length.value * by)) };
    case 'empirical':
      return {
        ...length,
        bins: length.bins.map(([tokens, weight]) => [Math.max(1, Math.round(tokens * by)), weight] as const),
      };
    // their parameters are logarithms, so they are not multiplied
    case 'lognormal':
    case 'pareto_lognormal':
      return length;
  }
}

function perturbed(spec: WorkloadSpec, { rate, prompt, output }: Factors): WorkloadSpec {
  const change = <T extends { inputLength: LengthSpec; outputLength: LengthSpec }>(traffic: T): T => ({
    ...traffic,
    inputLength: scaled(traffic.inputLength, prompt),
    outputLength: scaled(traffic.outputLength, output),
  });
  return {
    ...spec,
    aggregateRate: spec.aggregateRate * rate,
    clients: spec.clients.map(change),
    cohorts: spec.cohorts.map(change),
  };
}
