/**
 * The key chains of a runtime, a set for each tenant with one chain for each layer group. The secret is
 * copied when the runtime opens, so that what its owner does with the bytes later changes no key. Chains of
 * tenants not met for long are given up and made again when they come back.
 */

import { configError, described, inputError, type TierKVError } from '../runtime/errors.ts';
import {
  elementAt,
  KeyChain,
  type KeyElements,
  type KeyNamespace,
  type RequestExtras,
  requireElements,
} from '../runtime/index.ts';
import * as is from '../runtime/kinds.ts';
import { OwnerNumbers } from '../runtime/manager/ownerQuotas.ts';
import { checkInputs } from '../runtime/options.ts';
import { type BlockBook, type BlockExtra, blockExtras } from './blockBook.ts';
import type { LayerGroup } from './layerGroups.ts';

/** @throws TKV_INPUT unless it is a text that is not empty: tenants without a name would share the empty one */
function requireTenant(tenant: string): void {
  is.name('Pass who may share this KV, from your own authentication.').read(tenant, 'tenant');
}

/** Tenants whose chains are kept: 1.2 KB each. */
const TENANTS_MAX = 4096;

export class TenantChains {
  readonly #namespace: Omit<KeyNamespace, 'tenant'>;
  readonly #groups: readonly LayerGroup[];
  readonly #sharing: SharingGroups;
  readonly #book: BlockBook | undefined;
  /** In the order in which tenants were met last. */
  readonly #chains: Map<string, readonly KeyChain[]> = new Map();

  /**
   * @param book takes the token ids of all blocks that are hashed; undefined to keep none
   * @throws TKV_CONFIG naming the field of the namespace that is missing or malformed
   */
  constructor(
    namespace: Omit<KeyNamespace, 'tenant'>,
    groups: readonly LayerGroup[],
    sharing: SharingGroups = new SharingGroups(),
    book?: BlockBook,
  ) {
    const { secretKey } = namespace;
    this.#namespace = {
      ...namespace,
      secretKey: secretKey instanceof Uint8Array ? new Uint8Array(secretKey) : secretKey, // a Buffer's slice is a view
    };
    this.#groups = groups;
    this.#sharing = sharing;
    this.#book = book;
    this.of('any tenant'); // a bad key or model name is found before anything is opened
  }

  /**
   * One chain for each layer group.
   * @param tenant compared by its UTF-8 bytes, without Unicode normalisation
   * @param extras of one request
   * @throws TKV_INPUT for a tenant that is not a text or empty, and for invalid extras
   */
  of(tenant: string, extras?: RequestExtras): readonly KeyChain[] {
    requireTenant(tenant);
    const domain = this.#sharing.domainOf(tenant);
    const chains = this.ofDomain(domain);
    if (extras === undefined) return chains;
    let told: readonly BlockExtra[] | undefined;
    return chains.map((plain, g) => {
      const chain = plain.withExtras(extras);
      if (chain !== plain) this.#booked(chain, domain, g, (told ??= blockExtras(extras)));
      return chain;
    });
  }

  /** Blocks of the chain are written down. */
  #booked(chain: KeyChain, tenant: string, group: number, extras: readonly BlockExtra[]): void {
    const book = this.#book;
    if (book === undefined) return;
    const whose = { tenant, group, extras, blockTokens: chain.elementsPerKey };
    chain.listen(
      (keys, from, tokens) => book.note(whose, keys, from, tokens),
      (keys, key, block, count, tokens) => book.noteTail(whose, keys, key, block, count, tokens),
    );
  }

  /** The chains of a tenant that is alone, of a group, or of all tenants: the empty text. */
  ofDomain(domain: string): readonly KeyChain[] {
    const known = this.#chains.get(domain);
    if (known !== undefined) {
      this.#chains.delete(domain);
      this.#chains.set(domain, known);
      return known;
    }
    const chains = this.#groups.map((group, g) => {
      const chain = new KeyChain(this.#namespaceOf(domain, group));
      this.#booked(chain, domain, g, []);
      return chain;
    });
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

// Tenants and groups as the manager knows them.

export class TenantOwners {
  readonly #numbers: OwnerNumbers = new OwnerNumbers();
  readonly #sharing: SharingGroups;

  constructor(sharing: SharingGroups = new SharingGroups()) {
    this.#sharing = sharing;
  }

  /** Tenants that are alone and groups, with their numbers. */
  get numbers(): ReadonlyMap<string, number> {
    return this.#numbers.known;
  }

  /** @throws TKV_INPUT for a tenant that is not a text or empty */
  of(tenant: string): number {
    requireTenant(tenant);
    return this.ofDomain(this.#sharing.domainOf(tenant));
  }

  /** The number of a tenant that is alone, of a group, or of all tenants: the empty text. */
  ofDomain(domain: string): number {
    return this.#numbers.of(domain);
  }
}

// A sequence's own copy of its tokens: what the caller does with its array afterwards changes nothing here.

export class TokenList {
  #tokens: Uint32Array;
  #length = 0;

  /** @throws TKV_INPUT naming the invalid token id */
  constructor(tokens: KeyElements) {
    this.#tokens = new Uint32Array(Math.max(tokens.length, 16));
    this.append(tokens);
  }

  get length(): number {
    return this.#length;
  }

  /** The tokens; words from `length` on mean nothing. Replaced when the list grows. */
  get words(): Uint32Array {
    return this.#tokens;
  }

  /**
   * Adds the tokens from `from` on. @throws TKV_INPUT naming the invalid token id; nothing is added then
   */
  append(tokens: KeyElements, from = 0): void {
    requireTokenIds(tokens, from);
    const length = this.#length + tokens.length - from;
    if (length > this.#tokens.length) this.#grow(length);
    for (let i = from; i < tokens.length; i++) this.#tokens[this.#length + i - from] = elementAt(tokens, i);
    this.#length = length;
  }

  /** Adds one token, which is an id. */
  push(token: number): void {
    if (this.#length === this.#tokens.length) this.#grow(this.#length + 1);
    this.#tokens[this.#length++] = token;
  }

  #grow(length: number): void {
    const grown = new Uint32Array(Math.max(length, this.#tokens.length * 2));
    grown.set(this.#tokens.subarray(0, this.#length));
    this.#tokens = grown;
  }

  truncate(length: number): void {
    this.#length = Math.min(this.#length, length);
  }

  /**
   * The first of the known tokens that is another one in `tokens`, or that `tokens` has not; -1 where all are
   * the same.
   */
  firstDifference(tokens: KeyElements): number {
    for (let i = 0; i < this.#length; i++) if (elementAt(tokens, i) !== this.#tokens[i]) return i;
    return -1;
  }
}

/** A list that says it has more elements than this is sparse: it is refused by its length, which costs nothing. */
const listedMost = 2 ** 24;

/** The tokens as they are now, for a call that goes on with them later. */
export function copyOfTokens(tokens: KeyElements): KeyElements {
  requireElements(tokens);
  // not of a Buffer, whose slice is a view
  if (ArrayBuffer.isView(tokens) && !(tokens instanceof Uint8Array)) return (tokens as Uint32Array).slice();
  if (tokens.length > listedMost) return tokens;
  return Array.isArray(tokens) ? (tokens as number[]).slice() : Array.from(tokens as ArrayLike<number>);
}

/** @throws TKV_INPUT naming the first invalid token id from `from` on */
export function requireTokenIds(tokens: KeyElements, from = 0, field = 'tokens'): void {
  for (let i = from; i < tokens.length; i++) {
    const token = elementAt(tokens, i);
    if (token >>> 0 !== token) throw badToken(`${field}[${i}]`, tokens[i]);
  }
}

/** @throws TKV_INPUT naming the field where the token id is invalid */
export function requireTokenId(token: number, field: string): void {
  if (typeof token !== 'number' || token >>> 0 !== token) throw badToken(field, token);
}

function badToken(field: string, token: unknown): TierKVError {
  return inputError(
    field,
    `is ${described(token)}, not an integer from 0 to 4294967295. Pass token ids as ` +
      `the tokenizer gave them.`,
  );
}

// Groups of tenants that share KV. A tenant is alone unless a group names it: to the cache, the tenants of a group
// are one, with one set of keys and one share of the room. The program that embeds tierkv declares groups.

/** Prefix of group names where keys are made, so that no tenant has the same name. */
const GROUP = '\u0000';

export class SharingGroups {
  readonly #groupOf: Map<string, string> = new Map();

  /**
   * @param groups tenants by the name of their group
   * @throws TKV_CONFIG for a tenant in two groups, or an empty group
   */
  constructor(groups: Readonly<Record<string, readonly string[]>> = {}) {
    checkInputs({ groups }, { groups: is.optional(is.object()) });
    for (const [name, tenants] of Object.entries(groups)) {
      const field = `sharingGroups.${name}`;
      if (!Array.isArray(tenants) || tenants.length === 0) {
        throw configError(field, 'must list tenants', 'Name its tenants in a list, or leave it out.');
      }
      for (const tenant of tenants) {
        if (typeof tenant !== 'string')
          throw configError(field, 'must list tenant names', 'Give each as text.');
        if (this.#groupOf.has(tenant)) {
          throw configError(field, `names ${tenant}, which is in a group already`, 'Name each tenant once.');
        }
        this.#groupOf.set(tenant, GROUP + name);
      }
    }
  }

  /** The tenant itself, or the name of its group. @throws TKV_INPUT for a name that only groups have */
  domainOf(tenant: string): string {
    const group = this.#groupOf.get(tenant);
    if (group !== undefined) return group;
    if (this.#groupOf.size > 0 && typeof tenant === 'string' && tenant.startsWith(GROUP)) {
      throw inputError('tenant', 'begins with a zero character. Name tenants without.');
    }
    return tenant;
  }
}
