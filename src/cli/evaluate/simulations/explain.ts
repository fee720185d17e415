/**
 * One case told: its decisions, what went wrong, what the alternatives would have given, and a page about it.
 */

import type { BoundBundle } from '../../../evolve/binding/index.ts';
import type { RawMetrics, SuiteCase } from '../../../evolve/fitness/index.ts';
import { meetsTargets } from '../../../evolve/fitness/index.ts';
import { type RequestFact, type SummaryConfig, summarise } from '../../../evolve/summary/index.ts';
import {
  type Anomaly,
  type Regret,
  regretsOf,
  sampleDecisions,
  type TraceLevel,
  TraceRecorder,
} from '../../../evolve/trace/index.ts';
import { type RequestTable, statusNames } from '../../../sim/metrics/index.ts';
import type { TargetsByClass } from '../../../sim/report/index.ts';
import { caseBuilder, runCase } from './runCase.ts';

export interface ExplainOptions {
  readonly summary: SummaryConfig;
  /** Routing decisions that are taken again otherwise; each costs a run for every other instance. */
  readonly regrets: number;
  readonly level: TraceLevel;
  /** Of the baseline on the same case. */
  readonly baseline?: RawMetrics;
}

export interface Explanation {
  readonly summary: string;
  readonly anomalies: readonly Anomaly[];
  readonly regrets: readonly Regret[];
  /** JSON lines; none at the level `minimal`. */
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
  bound: BoundBundle,
  suiteCase: SuiteCase,
  options: ExplainOptions,
): { readonly metrics: RawMetrics; readonly explanation: Explanation } {
  const recorder = new TraceRecorder(options.level);
  const { metrics, built, targets } = runCase(bound, suiteCase, [recorder], (simulation) =>
    recorder.attach(simulation),
  );
  const { simulation } = built;
  const rows = new Map([...recorder.routings].map(([row, record]) => [record, row]));
  const sampled = sampleDecisions([...recorder.routings.values()], options.regrets);
  const { build } = caseBuilder(bound, suiteCase);
  // each sampled record is one of those that were listed with their rows
  const regrets = regretsOf(
    () => build({}).simulation,
    simulation,
    sampled,
    (record) => rows.get(record) as number,
  );
  const anomalies = recorder.anomalies.found(targets);
  const summary = summarise(
    {
      caseId: suiteCase.id,
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
  const trace = recorder.records.map((record) => JSON.stringify(record));
  return { metrics, explanation: { summary, anomalies, regrets, trace } };
}
