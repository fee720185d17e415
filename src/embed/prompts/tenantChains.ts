/**
 * The key chains of a runtime, a set for each tenant with one chain for each layer group. The secret is
 * copied when the runtime opens, so that what its owner does with the bytes later changes no key. Chains of
 * tenants not met for long are given up and made again when they come back.
 */

import { KeyChain, type KeyNamespace, SharingGroups, TierKVError } from '../../runtime/index.ts';
import type { LayerGroup } from '../layerGroups.ts';

/** Tenants whose chains are kept: 1.2 KB each. */
const TENANTS_MAX = 4096;

export class TenantChains {
  readonly #namespace: Omit<KeyNamespace, 'tenant'>;
  readonly #groups: readonly LayerGroup[];
  readonly #sharing: SharingGroups;
  /** In the order in which tenants were met last. */
  readonly #chains: Map<string, readonly KeyChain[]> = new Map();

  /** @throws TKV_CONFIG naming the field of the namespace that is missing or malformed */
  constructor(
    namespace: Omit<KeyNamespace, 'tenant'>,
    groups: readonly LayerGroup[],
    sharing: SharingGroups = new SharingGroups(),
  ) {
    const { secretKey } = namespace;
    this.#namespace = {
      ...namespace,
      secretKey: secretKey instanceof Uint8Array ? secretKey.slice() : secretKey,
    };
    this.#groups = groups;
    this.#sharing = sharing;
    this.of('any tenant'); // a bad key or model name is found before anything is opened
  }

  /**
   * One chain for each layer group.
   * @param tenant compared by its UTF-8 bytes, without Unicode normalisation
   * @throws TKV_INPUT for a tenant that is no text
   */
  of(tenant: string): readonly KeyChain[] {
    if (typeof tenant !== 'string') {
      throw new TierKVError(
        'TKV_INPUT',
        `tenant is ${tenant === null ? 'null' : typeof tenant}, not text. Pass who may share this ` +
          `KV as a string.`,
        { field: 'tenant' },
      );
    }
    const domain = this.#sharing.domainOf(tenant);
    const known = this.#chains.get(domain);
    if (known !== undefined) {
      this.#chains.delete(domain);
      this.#chains.set(domain, known);
      return known;
    }
    const chains = this.#groups.map((group) => new KeyChain(this.#namespaceOf(domain, group)));
    this.#chains.set(domain, chains);
    if (this.#chains.size > TENANTS_MAX) {
      const [oldest] = this.#chains.keys();
      this.#chains.delete(oldest);
    }
    return chains;
  }

  #namespaceOf(tenant: string, { first, end }: LayerGroup): KeyNamespace {
    if (this.#groups.length === 1) return { ...this.#namespace, tenant };
    const extras = { ...this.#namespace.extras, 'tierkv.layers': `${first}-${end}` };
    return { ...this.#namespace, tenant, extras };
  }
}
