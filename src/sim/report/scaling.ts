/**
 * A record of each decision of an autoscaler. What came of it is filled in as the replicas that it ordered
 * come: delays are drawn when their phase begins.
 */

import type { SimulationObserver } from '../cluster/parts.ts';
import type { ReplicaChange, ScaleChange, ScalingSetup } from '../cluster/scaling.ts';

export interface ScaleRecord extends ScaleChange {
  readonly kind: 'scale';
  // of the replicas that it ordered, the slowest one; -1 where none came so far
  /** Until the machine was there, behind the delay of the decision. */
  provisioningDelayUs: number;
  /** When they took requests, and were warm. */
  readyUs: number;
  warmupEndUs: number;
}

export class ScaleRecords {
  /** The last decision of each configuration; replicas are ordered by it. */
  readonly #last = new Map<string, ScaleRecord>();
  /** The decision that ordered each replica, by configuration and replica. */
  readonly #orders = new Map<string, ScaleRecord>();

  scaled(change: ScaleChange): ScaleRecord {
    const record: ScaleRecord = {
      kind: 'scale',
      ...change,
      provisioningDelayUs: -1,
      readyUs: -1,
      warmupEndUs: -1,
    };
    this.#last.set(change.configId, record);
    return record;
  }

  replica({ configId, replica, phase, timeUs, untilUs }: ReplicaChange): void {
    const name = `${replica} ${configId}`;
    if (phase === 'ordered') {
      const record = this.#last.get(configId);
      if (record !== undefined) this.#orders.set(name, record);
      return;
    }
    const record = this.#orders.get(name);
    if (record === undefined) return;
    if (phase === 'provisioning') {
      record.provisioningDelayUs = Math.max(record.provisioningDelayUs, untilUs - timeUs);
    } else if (phase === 'ready') {
      record.readyUs = Math.max(record.readyUs, timeUs);
      record.warmupEndUs = Math.max(record.warmupEndUs, untilUs);
    }
  }
}

// Scaling of each configuration over a run: decisions of its autoscaler, and numbers of replicas.

export interface ScalingOf {
  readonly configId: string;
  readonly policy: string;
  readonly minReplicas: number;
  readonly maxReplicas: number;
  /** Decisions to add and to take away. */
  readonly ups: number;
  readonly downs: number;
  /** Replicas that are ready or on their way: fewest and most at a time, over time, and at the end. */
  readonly fewest: number;
  readonly most: number;
  readonly meanReplicas: number;
  readonly replicas: number;
  /** Replicas that became ready after the start, and that are gone. */
  readonly added: number;
  readonly gone: number;
}

interface ScaleEntry {
  readonly setup: ScalingSetup;
  ups: number;
  downs: number;
  fewest: number;
  most: number;
  replicas: number;
  sinceUs: number;
  replicaUs: number;
  added: number;
  readonly ready: Set<number>;
  gone: number;
}

export class ScalingReport implements SimulationObserver {
  readonly #entries = new Map<string, ScaleEntry>();

  /** Before the first event. */
  begin(setups: readonly ScalingSetup[]): void {
    for (const setup of setups) {
      const replicas = setup.replicas.current;
      const counts = { ups: 0, downs: 0, fewest: replicas, most: replicas, added: 0, gone: 0 };
      const ready = new Set(setup.replicas.all.map(({ number }) => number));
      this.#entries.set(setup.configId, { setup, replicas, sinceUs: 0, replicaUs: 0, ready, ...counts });
    }
  }

  scaled({ configId, action, newCount, timeUs }: ScaleChange): void {
    const entry = this.#entries.get(configId);
    if (entry === undefined) return;
    if (action === 'up') entry.ups++;
    else entry.downs++;
    entry.replicaUs += entry.replicas * (timeUs - entry.sinceUs);
    entry.sinceUs = timeUs;
    entry.replicas = newCount;
    entry.fewest = Math.min(entry.fewest, newCount);
    entry.most = Math.max(entry.most, newCount);
  }

  replica({ configId, replica, phase }: ReplicaChange): void {
    const entry = this.#entries.get(configId);
    if (entry === undefined) return;
    if (phase === 'ready') {
      entry.added++;
      entry.ready.add(replica);
    } else if (phase === 'terminated' && entry.ready.has(replica)) entry.gone++;
  }

  /** In order of the pools, over the time until `endUs`. */
  of(endUs: number): ScalingOf[] {
    return [...this.#entries.values()].map((entry) => {
      const { setup, ups, downs, fewest, most, replicas, added, gone, sinceUs, replicaUs } = entry;
      const { policyName, config } = setup.scaler;
      const lastUs = replicas * Math.max(0, endUs - sinceUs);
      const meanReplicas = endUs > 0 ? (replicaUs + lastUs) / Math.max(endUs, sinceUs) : replicas;
      return {
        configId: setup.configId,
        policy: policyName,
        minReplicas: config.minReplicas,
        maxReplicas: config.maxReplicas,
        ups,
        downs,
        fewest,
        most,
        meanReplicas,
        replicas,
        added,
        gone,
      };
    });
  }
}
