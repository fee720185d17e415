/**
 * Who shares KV with whom. A tenant is alone unless a group names it: the tenants of a group are one to the
 * cache, with one set of keys and one share of the room. Groups are declared by whoever embeds tierkv.
 */

import { configError, TierKVError } from '../errors.ts';

/** Begins the names of groups where keys are made, so that no tenant has the same. */
const GROUP = '\u0000';

export class SharingGroups {
  readonly #groupOf: Map<string, string> = new Map();

  /**
   * @param groups tenants by the name of their group
   * @throws TKV_CONFIG for a tenant that two groups name, or a group of nobody
   */
  constructor(groups: Readonly<Record<string, readonly string[]>> = {}) {
    for (const [name, tenants] of Object.entries(groups)) {
      const field = `sharingGroups.${name}`;
      if (!Array.isArray(tenants) || tenants.length === 0) {
        throw configError(field, 'names nobody', 'Name its tenants in a list, or leave it out.');
      }
      for (const tenant of tenants) {
        if (typeof tenant !== 'string') throw configError(field, 'names what is no text', 'Name tenants.');
        if (this.#groupOf.has(tenant)) {
          throw configError(field, `names ${tenant}, which is in a group already`, 'Name each tenant once.');
        }
        this.#groupOf.set(tenant, GROUP + name);
      }
    }
  }

  /** The tenant itself, or what stands for its group. @throws TKV_INPUT for a name that only groups have */
  domainOf(tenant: string): string {
    const group = this.#groupOf.get(tenant);
    if (group !== undefined) return group;
    if (this.#groupOf.size > 0 && typeof tenant === 'string' && tenant.startsWith(GROUP)) {
      throw new TierKVError('TKV_INPUT', 'tenant begins with a zero character. Name tenants without.', {
        field: 'tenant',
      });
    }
    return tenant;
  }
}
