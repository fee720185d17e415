/**
 * A run between two events. `data` is plain: it can be cloned structurally, sent to another thread and kept.
 * Forks in the same thread go on from the snapshot itself, which reads on in the requests without drawing any
 * of them again.
 */

import { TierKVError } from '../../../runtime/errors.ts';
import type { SavedState } from '../../../runtime/snapshot/index.ts';
import type { SimulationParts } from '../parts.ts';
import { freshScaling } from '../scaling/index.ts';
import { keyText, type SimulationKey, sameKey } from '../simulationKey.ts';
import type { RequestTape } from './requestTape.ts';

/** Of the form of the data; another one for each change of what is written down. */
export const snapshotVersion = 3;

export interface SnapshotData {
  readonly version: number;
  readonly key: SimulationKey;
  /** Events that were handled, and the time of the last one in microseconds. */
  readonly events: number;
  readonly timeUs: number;
  /** Requests that were taken from the workload's stream. */
  readonly taken: number;
  readonly state: SavedState;
}

export class SimulationSnapshot {
  readonly data: SnapshotData;
  readonly #parts: SimulationParts;
  readonly #tape: RequestTape;

  constructor(parts: SimulationParts, data: SnapshotData, tape: RequestTape) {
    this.#parts = parts;
    this.data = data;
    this.#tape = tape;
  }

  /** Parts for one more simulation, without the observer and the forced decisions of this one. */
  parts(): SimulationParts {
    const { key, options, pools, instances, makeInstance, keys, workload, control, scaling } = this.#parts;
    return {
      key,
      options,
      pools,
      instances,
      makeInstance,
      keys,
      workload: { ...workload, stream: this.#tape.fork() },
      control: control.fresh(),
      ...(scaling === undefined ? {} : { scaling: scaling.map(freshScaling) }),
    };
  }
}

/** @throws TKV_MISMATCH for another version or key */
export function checkSnapshot({ version, key }: SnapshotData, own: SimulationKey): void {
  if (version !== snapshotVersion) {
    throw new TierKVError(
      'TKV_MISMATCH',
      `The snapshot has version ${version}, and this tierkv reads ${snapshotVersion}. Take it anew.`,
      { field: 'snapshot.version' },
    );
  }
  if (sameKey(key, own)) return;
  throw new TierKVError(
    'TKV_MISMATCH',
    `The snapshot is of ${keyText(key)}; the simulation has ${keyText(own)}. Use the same key.`,
    { field: 'snapshot.key' },
  );
}
