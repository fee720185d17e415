/**
 * Key chains of a pool's columns, one for each tenant and column, made when they are first asked for. Chains
 * that were not asked for lately are given up and made again.
 */

import { KeyChain, type KeyNamespace } from '../keys/index.ts';
import type { Column } from './columns.ts';
import type { ResolvedPoolConfig } from './config.ts';

/** 300 bytes each. */
const CHAINS_MAX = 16_384;

export class ColumnChains {
  readonly #config: ResolvedPoolConfig;
  /** In the order in which they were asked for last. */
  readonly #chains: Map<string, KeyChain> = new Map();

  constructor(config: ResolvedPoolConfig) {
    this.#config = config;
  }

  of(tenant: string, column: Column): KeyChain {
    const name = `${column.id} ${tenant}`;
    const chain = this.#chains.get(name) ?? new KeyChain(this.#namespace(tenant, column));
    this.#chains.delete(name);
    this.#chains.set(name, chain);
    if (this.#chains.size > CHAINS_MAX) {
      const [oldest] = this.#chains.keys();
      if (oldest !== undefined) this.#chains.delete(oldest);
    }
    return chain;
  }

  #namespace(tenant: string, { spec, unitInRange, isGroup, layerStart, layerEnd }: Column): KeyNamespace {
    const { secretKey, model, layout } = this.#config;
    const extras = isGroup ? { 'tierkv.layers': `${layerStart}-${layerEnd}` } : {};
    return { secretKey, tenant, epoch: 0, model, layout, unit: spec, unitInRange, extras };
  }
}
