/**
 * A model of upstream's GPU and CPU store, `--kv-cpu-blocks` (reference commit f90a1e3a), for comparison only:
 * everything full is copied down after each step for nothing, and each block that comes up is billed to the
 * next step of the whole batch (D4).
 */

import { ReloadingStore } from './reloadingStore.ts';

export interface MirrorConfig {
  readonly cpuBlocks: number;
  /** Tokens a tick. */
  readonly bandwidth: number;
  readonly baseTicks: number;
}

export class MirrorStore extends ReloadingStore {
  cpuHits = 0;
  mirrored = 0;
  cpuEvictions = 0;
  pendingLatency = 0;
  readonly #config: MirrorConfig;
  /** The oldest first. */
  readonly #cpu = new Set<string>();

  constructor(blocks: number, blockTokens: number, config: MirrorConfig) {
    super(blocks, blockTokens);
    this.#config = config;
  }

  get cpuLru(): string[] {
    return [...this.#cpu];
  }

  override get thrashed(): number {
    return this.cpuEvictions;
  }

  override get offloads(): number {
    return this.mirrored;
  }

  override mirror(batch: readonly (readonly [id: string, promptTokens: number])[]): void {
    for (const [id] of batch) {
      for (const hash of this.hashesOf(id, Infinity)) {
        if (!this.#cpu.has(hash)) {
          this.mirrored++;
          if (this.#cpu.size >= this.#config.cpuBlocks) {
            for (const oldest of this.#cpu) {
              this.#cpu.delete(oldest);
              break;
            }
            this.cpuEvictions++;
          }
        }
        this.#touch(hash);
      }
    }
  }

  override consumeLatency(): number {
    const latency = this.pendingLatency;
    this.pendingLatency = 0;
    return latency;
  }

  protected override reload(keys: readonly string[]): number {
    const { baseTicks, bandwidth } = this.#config;
    const most = this.free.length;
    let reloaded = 0;
    for (const key of keys) {
      if (this.byHash.has(key)) continue;
      if (!this.#cpu.has(key) || reloaded >= most) break;
      this.writeFree(key);
      this.#touch(key);
      this.cpuHits++;
      this.pendingLatency += baseTicks + Math.ceil(this.blockTokens / bandwidth);
      reloaded++;
    }
    return reloaded;
  }

  #touch(hash: string): void {
    this.#cpu.delete(hash);
    this.#cpu.add(hash);
  }
}
