/**
 * A record of each decision of an autoscaler. What came of it is filled in as the replicas that it ordered
 * come: delays are drawn when their phase begins.
 */

import type { ReplicaChange, ScaleChange } from '../../cluster/index.ts';

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
  /** By configuration: its last decision, which orders replicas after it. */
  readonly #last = new Map<string, ScaleRecord>();
  /** By configuration and replica: the decision that ordered it. */
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
