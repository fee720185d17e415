/**
 * A small number for each tenant, by which the manager counts bytes and knows whose bytes lay in a slot.
 * Numbers are never given to another tenant; when they run out, the tenants that come later share the last
 * one, and are kept apart by always clearing.
 */

import { SharingGroups } from '../../runtime/index.ts';
import { requireTenant } from './tenantChains.ts';

/** Owner of blocks whose tenant is not known, such as those of an earlier run. */
export const UNKNOWN_OWNER = 0;
export const OWNERS = 4096;
/** Stands for all tenants beyond. */
export const SHARED_OWNER: number = OWNERS - 1;

export class TenantOwners {
  readonly #numbers: Map<string, number> = new Map();
  readonly #sharing: SharingGroups;

  constructor(sharing: SharingGroups = new SharingGroups()) {
    this.#sharing = sharing;
  }

  /** @throws TKV_INPUT for a tenant that is no text or empty */
  of(tenant: string): number {
    requireTenant(tenant);
    return this.ofDomain(this.#sharing.domainOf(tenant));
  }

  /** The number of a tenant that is alone, of a group, or of all tenants: the empty text. */
  ofDomain(domain: string): number {
    const known = this.#numbers.get(domain);
    if (known !== undefined) return known;
    const next = this.#numbers.size + 1;
    if (next >= SHARED_OWNER) return SHARED_OWNER;
    this.#numbers.set(domain, next);
    return next;
  }
}
