/**
 * Changes of replicas that are taken back soon, and the requests in between: those that arrived after the
 * change and before it was taken back, and were sent to an instance of that configuration.
 */

import type { ScaleChange, Simulation } from '../../sim/cluster/index.ts';

/** A change of replicas that is taken back within so long is an oscillation. */
const OSCILLATION_US = 120_000_000;

interface Window {
  readonly fromUs: number;
  readonly toUs: number;
}

export class Oscillations {
  /** By configuration: the last change of its replicas. */
  readonly #last = new Map<string, ScaleChange>();
  readonly #windows = new Map<string, Window[]>();
  /** By request row: instances that it was sent to. */
  readonly #sentTo = new Map<number, number[]>();

  /** @returns the change that this one takes back, if it does so soon */
  scaled(change: ScaleChange): ScaleChange | undefined {
    const { configId, action, timeUs } = change;
    const last = this.#last.get(configId);
    this.#last.set(configId, change);
    if (last === undefined || last.action === action) return undefined;
    if (timeUs - last.timeUs > OSCILLATION_US) return undefined;
    const windows = this.#windows.get(configId) ?? [];
    windows.push({ fromUs: last.timeUs, toUs: timeUs });
    this.#windows.set(configId, windows);
    return last;
  }

  sent(row: number, instance: number): void {
    const instances = this.#sentTo.get(row) ?? [];
    if (!instances.includes(instance)) instances.push(instance);
    this.#sentTo.set(row, instances);
  }

  /** Rows of the requests in between, those that waited longest for their first token first. */
  requestsOf(configId: string, { table, instances }: Simulation): number[] {
    const windows = this.#windows.get(configId) ?? [];
    const rows: number[] = [];
    for (const [row, sentTo] of this.#sentTo) {
      const arrivalUs = table.arrivalUs[row];
      if (!windows.some(({ fromUs, toUs }) => arrivalUs >= fromUs && arrivalUs < toUs)) continue;
      if (sentTo.some((instance) => instances[instance]?.configId === configId)) rows.push(row);
    }
    const waited = (row: number): number =>
      table.firstTokenUs[row] === -1 ? Infinity : table.firstTokenUs[row];
    return rows.sort((a, b) => (waited(a) === waited(b) ? a - b : waited(b) - waited(a)));
  }
}
