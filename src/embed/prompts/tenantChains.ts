/**
 * The key chains of a runtime, a set for each tenant with one chain for each layer group. The secret is
 * copied when the runtime opens, so that what its owner does with the bytes later changes no key. Chains of
 * tenants not met for long are given up and made again when they come back.
 */

import { KeyChain, type KeyNamespace, type RequestExtras, SharingGroups } from '../../runtime/index.ts';
import { requireText } from '../../runtime/options.ts';
import type { LayerGroup } from '../layerGroups.ts';

/** @throws TKV_INPUT for what is no text, and for the empty text, which all without a name would share */
export function requireTenant(tenant: string): void {
  requireText(tenant, 'tenant', 'Pass who may share this KV, from your own authentication.');
}

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
   * @param extras of one request
   * @throws TKV_INPUT for a tenant that is no text or empty, and for extras that are none
   */
  of(tenant: string, extras?: RequestExtras): readonly KeyChain[] {
    requireTenant(tenant);
    const chains = this.ofDomain(this.#sharing.domainOf(tenant));
    return extras === undefined ? chains : chains.map((chain) => chain.withExtras(extras));
  }

  /** The chains of a tenant that is alone, of a group, or of all tenants: the empty text. */
  ofDomain(domain: string): readonly KeyChain[] {
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
