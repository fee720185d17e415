/** What came and what ended between two looks of the autoscaler. */

import type { StateVisitor } from '../../../runtime/snapshot/index.ts';
import type { DeploymentMetrics, InstanceSnapshot } from '../../control/index.ts';
import { percentile, type RequestTable, Status } from '../../metrics/index.ts';

export class Traffic {
  #sinceUs = 0;
  #arrivals = 0;
  #promptTokens = 0;
  #ended = 0;
  #outputTokens = 0;
  #ttftUs = 0;
  #tpotUs = 0;
  #latenciesUs: number[] = [];

  arrived(promptTokens: number): void {
    this.#arrivals++;
    this.#promptTokens += promptTokens;
  }

  ended(table: RequestTable, row: number): void {
    if (table.status[row] !== Status.COMPLETED) return;
    this.#ended++;
    this.#outputTokens += table.generatedTokens[row];
    this.#ttftUs += table.firstTokenUs[row];
    this.#tpotUs += table.meanGapUs(row);
    this.#latenciesUs.push(table.e2eUs[row]);
  }

  /** The metrics since the last call. */
  take(instances: readonly InstanceSnapshot[], nowUs: number): DeploymentMetrics {
    const mean = (sum: number, count: number): number => (count === 0 ? 0 : sum / count);
    const over = (pick: (instance: InstanceSnapshot) => number): number =>
      mean(
        instances.reduce((sum, instance) => sum + pick(instance), 0),
        instances.length,
      );
    const latencies = Float64Array.from(this.#latenciesUs).sort();
    const latencySum = latencies.reduce((sum, us) => sum + us, 0);
    const metrics: DeploymentMetrics = {
      avgQueueDepth: over(({ queueDepth }) => queueDepth),
      avgUtilization: over(({ kv }) => kv.tiers[0]?.utilization ?? 0),
      requestRate: mean(this.#arrivals * 1e6, nowUs - this.#sinceUs),
      avgPromptTokens: mean(this.#promptTokens, this.#arrivals),
      avgOutputTokens: mean(this.#outputTokens, this.#ended),
      sloAttainment: {},
      avgLatencyUs: mean(latencySum, latencies.length),
      p99LatencyUs: percentile(latencies, 99),
      avgTtftUs: mean(this.#ttftUs, this.#ended),
      avgTpotUs: mean(this.#tpotUs, this.#ended),
    };
    this.#sinceUs = nowUs;
    this.#arrivals = 0;
    this.#promptTokens = 0;
    this.#ended = 0;
    this.#outputTokens = 0;
    this.#ttftUs = 0;
    this.#tpotUs = 0;
    this.#latenciesUs = [];
    return metrics;
  }

  visitState(visitor: StateVisitor): void {
    this.#sinceUs = visitor.number(this.#sinceUs);
    this.#arrivals = visitor.number(this.#arrivals);
    this.#promptTokens = visitor.number(this.#promptTokens);
    this.#ended = visitor.number(this.#ended);
    this.#outputTokens = visitor.number(this.#outputTokens);
    this.#ttftUs = visitor.number(this.#ttftUs);
    this.#tpotUs = visitor.number(this.#tpotUs);
    visitor.list(this.#latenciesUs);
  }
}
