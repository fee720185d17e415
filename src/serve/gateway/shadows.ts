/** How often policies that decide beside would have decided otherwise, and what they would have given. */

import { planCase, runCase } from '../../policy/evaluate/runCase.ts';
import { bindBundle } from '../../policy/evolve/binding/bind.ts';
import type { PolicyBundle, PolicySpec } from '../../policy/evolve/bundle/policyBundle.ts';
import type { RawMetrics } from '../../policy/evolve/fitness/rawMetrics.ts';
import * as is from '../../runtime/kinds.ts';
import { checkInputs, type Kinds, optionTable } from '../../runtime/options.ts';
import type { SimulationObserver } from '../../sim/cluster/parts.ts';
import type { PolicyChoice } from '../../sim/control/policy.ts';
import { fromFields } from '../../sim/description/readers.ts';
import { openLog } from './decisionLog.ts';
import { type GatewayPlan, gatewaySlots } from './plan.ts';
import { ShadowCounts, type ShadowTally } from './shadowCounts.ts';

//  Simulated results of policies that decided beside the real ones, on the recorded traffic.

/** How policies that decided beside the real one compare. */
export interface ShadowReport {
  /** The policies of the gateway itself first, then each of the others. */
  readonly policies: readonly {
    readonly name: string;
    /** Comparison of decisions on the same states; undefined for the policies that really decided. */
    readonly tally: ShadowTally | undefined;
    /** Metrics of the simulated trace; undefined without one. */
    readonly metrics: RawMetrics | undefined;
    /** Share of the prompts' full blocks that were found cached in the simulated trace, as servers report it. */
    readonly prefixHitRate: number | undefined;
  }[];
  /** Requests of the log. */
  readonly requests: number;
}

type Simulated = Pick<ShadowReport['policies'][number], 'metrics' | 'prefixHitRate'>;

/** The recorded traffic, and the servers that it is simulated on. */
interface ShadowTrial {
  /** The trace as the gateway wrote it. */
  readonly trace: string;
  /** Deployment file with the pools; of its control plane the signals count, and policies come from the log. */
  readonly deployment: string;
}

const shadowTrialTable = optionTable({
  trace: is.passed(),
  deployment: is.passed(),
} satisfies Kinds<ShadowTrial>);

const unnamed = { id: 'trace', seed: 42, perturbation: 0 } as const;

/**
 * Compares what the policies of a gateway's log decided: the one that served, and those beside it.
 * @throws TKV_INPUT for a file that is not a log; what a simulation throws
 */
export async function compareShadows(log: string, trial: ShadowTrial | undefined): Promise<ShadowReport> {
  checkInputs({ log }, { log: is.name() });
  if (trial !== undefined) shadowTrialTable.read(trial, 'trial');
  const opened = openLog(log);
  const { plan } = opened.header;
  const counts = new ShadowCounts(plan.shadows.map(({ name }) => name));
  let requests = 0;
  for (const { record } of opened.records()) {
    if ('in' in record) {
      if (record.in === 'arrive') requests++;
    } else if (record.out === 'admission' || record.out === 'route') counts.see(record);
  }
  const simulated = async (bundle: PolicyBundle): Promise<Simulated> => {
    if (trial === undefined) return { metrics: undefined, prefixHitRate: undefined };
    const planned = planCase({
      ...unnamed,
      deployment: fromFields({ file: trial.deployment, workload: { file: trial.trace } }),
    });
    let found = 0;
    let asked = 0;
    const watcher: SimulationObserver = {
      ended: ({ foundBlocks, promptBlocks }) => {
        if (foundBlocks < 0) return; // it never joined a batch
        found += foundBlocks;
        asked += promptBlocks;
      },
    };
    const { metrics } = runCase(await bindBundle(bundle), planned, [watcher]);
    return { metrics, prefixHitRate: asked === 0 ? 0 : found / asked };
  };
  const live = liveBundle(plan);
  const policies: ShadowReport['policies'][number][] = [
    { name: live.name ?? 'live', tally: undefined, ...(await simulated(live)) },
  ];
  for (const [i, { name, bundle }] of plan.shadows.entries()) {
    const whole = { ...live, ...gatewayPart(bundle) };
    policies.push({ name, tally: counts.tallies[i], ...(await simulated(whole)) });
  }
  return { policies, requests };
}

/** The slots that a gateway runs. */
function gatewayPart(bundle: PolicyBundle): PolicyBundle {
  return Object.fromEntries(gatewaySlots.flatMap((slot) => (bundle[slot] ? [[slot, bundle[slot]]] : [])));
}

/** The gateway's policies as one bundle, completed by name with what they left to the configuration. */
function liveBundle({ control, bundle }: GatewayPlan): PolicyBundle {
  const named = ({ policy, ...parameters }: PolicyChoice): PolicySpec => ({
    type: 'parameterized',
    template: policy,
    parameters,
  });
  return {
    name: bundle?.name ?? 'live',
    admission: named(control.admission),
    priority: named(control.priority),
    routing: named(control.routing),
    ...(bundle === null ? {} : gatewayPart(bundle)),
  };
}
