/** The key chains of a runtime's configuration, one a tenant, each made when its tenant is met first. */

import { KeyChain } from '../runtime/index.ts';
import type { KVRuntimeConfig } from './config.ts';

export class TenantChains {
  readonly #config: KVRuntimeConfig;
  readonly #chains: Map<string, KeyChain> = new Map();

  constructor(config: KVRuntimeConfig) {
    this.#config = config;
  }

  /** @throws TKV_CONFIG naming the field of the namespace that is missing or malformed */
  of(tenant: string): KeyChain {
    let chain = this.#chains.get(tenant);
    if (chain === undefined) {
      const { secretKey, epoch = 0, model, layout, extras } = this.#config;
      const namespace = { secretKey, tenant, epoch, model, layout };
      chain = new KeyChain(extras === undefined ? namespace : { ...namespace, extras });
      this.#chains.set(tenant, chain);
    }
    return chain;
  }
}
