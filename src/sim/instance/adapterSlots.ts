/**
 * LoRA adapters of an engine: GPU memory has slots for them, as many as vLLM's `max_loras` says. A request whose adapter has no
 * slot waits while others pass it; the step that first computes under an adapter takes longer by its load; the adapter that
 * was used longest ago, and that no request of the batch needs, makes room.
 */

import { requireFinite, requireInteger } from '../../runtime/errors.ts';
import type { StateVisitor } from '../../runtime/snapshot.ts';

export interface AdapterConfig {
  /** Most adapters in the GPU memory of all ranks, and so of the requests of a batch. */
  readonly slots: number;
  /** Time in which one is loaded, µs. */
  readonly loadUs: number;
}

/** 4,096 of each of 1,024 ranks. */
const SLOTS_MAX = 2 ** 22;

export function checkAdapters({ slots, loadUs }: AdapterConfig): void {
  requireInteger('adapters.slots', slots, 1, SLOTS_MAX);
  requireFinite('adapters.loadUs', loadUs);
}

export class AdapterSlots {
  readonly #config: AdapterConfig;
  /** Requests that hold blocks, by their adapter. */
  readonly #users = new Map<string, number>();
  /** Adapters in memory, the one used longest ago first. */
  readonly #resident = new Set<string>();
  loads = 0;

  constructor(config: AdapterConfig) {
    this.#config = config;
  }

  /** In memory now, the one used longest ago first. */
  get resident(): string[] {
    return [...this.#resident];
  }

  /** Whether a request under the adapter may join the batch; one without any always may. */
  mayJoin(adapter: string): boolean {
    return adapter === '' || this.#users.has(adapter) || this.#users.size < this.#config.slots;
  }

  /** A request under the adapter holds blocks from now on. */
  begin(adapter: string): void {
    if (adapter !== '') this.#users.set(adapter, (this.#users.get(adapter) ?? 0) + 1);
  }

  end(adapter: string): void {
    const users = (this.#users.get(adapter) ?? 0) - 1;
    if (users > 0) this.#users.set(adapter, users);
    else this.#users.delete(adapter);
  }

  /** A step computes the request's first tokens. @returns the time of the load that it takes, in µs */
  use(adapter: string): number {
    if (adapter === '') return 0;
    const isHere = this.#resident.delete(adapter);
    if (!isHere && this.#resident.size >= this.#config.slots) {
      for (const other of this.#resident) {
        if (this.#users.has(other)) continue;
        this.#resident.delete(other);
        break;
      }
    }
    this.#resident.add(adapter);
    if (isHere) return 0;
    this.loads++;
    return this.#config.loadUs;
  }

  visitState(visitor: StateVisitor): void {
    this.loads = visitor.number(this.loads);
    visitor.value(
      () => ({ users: [...this.#users], resident: [...this.#resident] }),
      ({ users, resident }) => {
        this.#users.clear();
        this.#resident.clear();
        for (const [adapter, count] of users) this.#users.set(adapter, count);
        for (const adapter of resident) this.#resident.add(adapter);
      },
    );
  }
}
