/**
 * The decisions of a run: counts for the summary, and each one in full where a trace is wanted. Regret is
 * upstream's: the best score less the chosen one's.
 */

import type { ReplicaChange, ScaleChange, SimulationObserver } from '../cluster/index.ts';
import type { AdmissionDecision, RoutingDecision } from '../control/index.ts';
import type { SimRequest } from '../instance/index.ts';
import { ScaleRecords } from './scaling/index.ts';

export interface DecisionSummary {
  readonly admitted: number;
  readonly rejected: number;
  /** By instance number. */
  readonly targets: ReadonlyMap<number, number>;
  readonly meanRegret: number;
  readonly maxRegret: number;
  readonly divergences: number;
}

export class Decisions implements SimulationObserver {
  readonly #records: object[] | null;
  readonly #scales: ScaleRecords = new ScaleRecords();
  #admitted = 0;
  #rejected = 0;
  #routed = 0;
  #regretSum = 0;
  #regretMax = 0;
  #divergences = 0;
  readonly #targets = new Map<number, number>();

  /** @param keeps whether each decision is kept for a file */
  constructor(keeps: boolean) {
    this.#records = keeps ? [] : null;
  }

  get records(): readonly object[] {
    return this.#records ?? [];
  }

  get summary(): DecisionSummary {
    return {
      admitted: this.#admitted,
      rejected: this.#rejected,
      targets: new Map([...this.#targets].sort(([a], [b]) => a - b)),
      meanRegret: this.#routed === 0 ? 0 : this.#regretSum / this.#routed,
      maxRegret: this.#regretMax,
      divergences: this.#divergences,
    };
  }

  admission(request: SimRequest, decision: AdmissionDecision, nowUs: number): void {
    if (decision.verdict === 'admit') this.#admitted++;
    else if (decision.verdict === 'reject') this.#rejected++;
    this.#records?.push({ kind: 'admission', timeUs: nowUs, ...aboutRequest(request), ...decision });
  }

  routing(request: SimRequest, decision: RoutingDecision | null, nowUs: number): void {
    if (decision === null) {
      this.#records?.push({ kind: 'routing', timeUs: nowUs, ...aboutRequest(request), target: null });
      return;
    }
    const { target, scores } = decision;
    this.#routed++;
    this.#targets.set(target, (this.#targets.get(target) ?? 0) + 1);
    const chosen = scores.find(({ instance }) => instance === target)?.score ?? 0;
    const best = scores.reduce((most, { score }) => Math.max(most, score), chosen);
    const regret = best - chosen;
    this.#regretSum += regret;
    this.#regretMax = Math.max(this.#regretMax, regret);
    this.#records?.push({ kind: 'routing', timeUs: nowUs, ...aboutRequest(request), ...decision, regret });
  }

  scaled(change: ScaleChange): void {
    this.#records?.push(this.#scales.scaled(change));
  }

  replica(change: ReplicaChange): void {
    this.#scales.replica(change);
    this.#records?.push({ kind: 'replica', ...change });
  }

  diverged(divergence: object): void {
    this.#divergences++;
    this.#records?.push({ kind: 'shadow_divergence', ...divergence });
  }
}

function aboutRequest({ id, tenantId, sloClass, promptTokens }: SimRequest): object {
  return { request: id, tenant: tenantId, sloClass, promptTokens };
}
