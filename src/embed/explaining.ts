/**
 * `kv.explain`: what a request of this runtime found, and why the rest was missing. The runtime remembers blocks and requests
 * within bounds, and the prompts of the newest requests, so that it can look for the same tokens under other tenants and extras.
 * It is for operators: an explanation names other tenants, so it never goes to a client.
 */

import { nearestName } from '../runtime/errors.ts';
import {
  BlockKeys,
  type KeyElements,
  type RequestExtras,
  requireElements,
  TierKVError,
  tierName,
} from '../runtime/index.ts';
import * as is from '../runtime/kinds.ts';
import { type Kinds, optionTable } from '../runtime/options.ts';
import { BlockHistory, type RememberedRequest } from './blockHistory.ts';
import { type RequestContext, tokensToFind } from './context.ts';
import { type CacheExplanation, explainKeys, explainRequest, type Naming, type Twin } from './explanation.ts';
import type { RequestWatch } from './observability.ts';

const BLOCKS_DEFAULT = 65_536;
const TOKENS_DEFAULT = 1_048_576;

export interface ExplainMemory {
  /** Blocks that are remembered; some 300 bytes each. Default 65,536. */
  readonly blocks?: number | undefined;
  /** Tokens of prompts that are kept, to look for them under other tenants: 4 bytes each. Default 1,048,576. */
  readonly tokens?: number | undefined;
}

const explainMemoryTable = optionTable(
  {
    blocks: is.optional(is.integer(16, 2 ** 24), BLOCKS_DEFAULT),
    tokens: is.optional(is.integer(0, 2 ** 30), TOKENS_DEFAULT),
  } satisfies Kinds<ExplainMemory>,
  'TKV_CONFIG',
);

/** The bounds, with their defaults. @throws TKV_CONFIG for one that is wrong */
export function checkedMemory(memory: ExplainMemory): { readonly blocks: number; readonly tokens: number } {
  const { blocks, tokens } = explainMemoryTable.read(memory, 'explain');
  return { blocks, tokens };
}

export interface TokensToExplain {
  readonly tenant: string;
  /** The same extras as at `begin`. */
  readonly extras?: RequestExtras | undefined;
}

const tokensToExplainTable = optionTable({
  tenant: is.passed(),
  extras: is.optional(is.passed()),
} satisfies Kinds<TokensToExplain>);

/** Tenants, and kinds of extras, under which tokens are looked for: each costs the hashes of a prompt. */
const TWINS_TRIED = 64;

/** The prompt of a request that is remembered. */
interface Prompt {
  readonly tokens: Uint32Array;
  readonly tenant: string;
  readonly extras: RequestExtras | undefined;
}

const ignored = (): void => {};

export class RuntimeExplainer {
  readonly model: string;
  readonly #context: RequestContext;
  readonly #history: BlockHistory;
  readonly #tokensMost: number;
  /** Prompts by sequence, the oldest first. */
  readonly #prompts: Map<number, Prompt> = new Map();
  #tokens = 0;

  /** @throws TKV_CONFIG for a bound that is wrong */
  constructor(context: RequestContext, model: string, memory: ExplainMemory) {
    const { blocks, tokens } = checkedMemory(memory);
    this.#tokensMost = tokens;
    this.model = model;
    this.#context = context;
    this.#history = new BlockHistory(context.manager, { blocks, requestBlocks: blocks });
    context.observers.add({
      asked: ({ id, tenant, promptTokens, prompt, extras }): RequestWatch => ({
        hashed: ignored,
        placed: ignored,
        filled: (_nowUs, _cachedTokens, sequence) => {
          const request = this.#history.request(sequence);
          if (request === undefined) return;
          request.id = id;
          this.#keep(sequence, { tokens: prompt.words.slice(0, promptTokens), tenant, extras });
        },
        prefilled: ignored,
        token: ignored,
        ended: ignored,
      }),
    });
  }

  /** @throws TKV_UNKNOWN_ID for a request that is not remembered */
  request(asked: string | number): CacheExplanation {
    const request = this.#find(asked);
    const prompt = this.#prompts.get(request.sequence);
    const twinOf = prompt === undefined ? undefined : this.#twins(prompt, [], request.openedUs);
    const explanation = explainRequest(this.#history, request, this.#naming(twinOf));
    if (prompt !== undefined || explanation.blocks.every(({ cause }) => cause !== 'neverSeen'))
      return explanation;
    const limit =
      'The prompt is not remembered: whether another tenant has the same tokens is not known. Raise explain.tokens.';
    return { ...explanation, limits: [...explanation.limits, limit] };
  }

  /** @param others explainers of other runtimes of this process, where the tokens may lie under another model */
  tokens(
    tokens: KeyElements,
    options: TokensToExplain,
    others: readonly RuntimeExplainer[],
  ): CacheExplanation {
    const { tenant, extras } = tokensToExplainTable.read(options);
    requireElements(tokens);
    const context = this.#context;
    const [chain] = context.chains.of(tenant, extras);
    const keys = new BlockKeys();
    chain.hashBlocks(tokens, 0, keys, tokensToFind(context, tokens));
    const limit = Math.floor(Math.max(tokens.length - 1, 0) / context.blockTokens);
    const prompt = { tokens: Uint32Array.from(tokens as ArrayLike<number | bigint>, Number), tenant, extras };
    const asked = { keys: keys.words, blocks: keys.length, limit };
    return explainKeys(this.#history, asked, tenant, this.#naming(this.#twins(prompt, others)));
  }

  #find(asked: string | number): RememberedRequest {
    let found: RememberedRequest | undefined;
    if (typeof asked === 'number') found = this.#history.request(asked);
    else for (const request of this.#history.requests) if (request.id === asked) found = request;
    if (found !== undefined) return found;
    const ids: string[] = [];
    for (const { id } of this.#history.requests) if (id !== undefined) ids.push(id);
    const nearest = typeof asked === 'string' ? nearestName(asked, ids) : undefined;
    const hint = nearest === undefined ? '' : ` Did you mean '${nearest}'?`;
    const { requestCount, forgotRequests } = this.#history;
    const kept = `${requestCount} requests are remembered, and ${forgotRequests} were forgotten.`;
    throw new TierKVError(
      'TKV_UNKNOWN_ID',
      `request ${JSON.stringify(asked)} is not known.${hint} ${kept} Raise explain.blocks to remember more.`,
      { field: 'request' },
    );
  }

  #keep(sequence: number, prompt: Prompt): void {
    if (prompt.tokens.length > this.#tokensMost) return;
    this.#prompts.set(sequence, prompt);
    this.#tokens += prompt.tokens.length;
    for (const [oldest, { tokens }] of this.#prompts) {
      if (this.#tokens <= this.#tokensMost) return;
      this.#prompts.delete(oldest);
      this.#tokens -= tokens.length;
    }
  }

  #naming(twinOf: Naming['twinOf']): Naming {
    const { owners, blockTokens } = this.#context;
    const names = new Map([...owners.numbers].map(([name, number]) => [number, shown(name)]));
    return {
      tenantOf: (owner) => names.get(owner) ?? null,
      requestOf: (sequence) => this.#history.request(sequence)?.id,
      blockTokens,
      ...(twinOf === undefined ? {} : { twinOf }),
    };
  }

  /** Where others have the tokens of a block; each place is hashed once, when the first block asks for it. */
  #twins(
    { tokens, tenant, extras }: Prompt,
    others: readonly RuntimeExplainer[],
    atUs = Number.POSITIVE_INFINITY,
  ): (block: number) => Twin | undefined {
    const { chains, owners, sharing } = this.#context;
    const own = sharing.domainOf(tenant);
    let places:
      | { readonly twin: Omit<Twin, 'tier'>; readonly keys: BlockKeys; readonly at: BlockHistory }[]
      | undefined;
    const makePlaces = (): NonNullable<typeof places> => {
      const made: NonNullable<typeof places> = [];
      const add = (
        twin: Omit<Twin, 'tier'>,
        chain: ReturnType<typeof chains.of>[number],
        at: BlockHistory,
      ): void => {
        const keys = new BlockKeys();
        chain.hashBlocks(tokens, 0, keys);
        made.push({ twin, keys, at });
      };
      for (const domain of [...owners.numbers.keys()].reverse().slice(0, TWINS_TRIED)) {
        if (domain === own) continue;
        const [plain] = chains.ofDomain(domain);
        const chain = extras === undefined ? plain : plain.withExtras(extras);
        add({ cause: 'anotherTenant', name: shown(domain) }, chain, this.#history);
      }
      const given = JSON.stringify(extras ?? {});
      for (const [text, other] of this.#extrasSeen()) {
        if (text === given) continue;
        const name = text === '{}' ? 'the model without extras' : `the extras ${text}`;
        add({ cause: 'anotherModel', name }, chains.of(tenant, other)[0], this.#history);
      }
      for (const other of others) {
        if (other === this) continue;
        const [chain] = other.#context.chains.of(tenant, extras);
        add({ cause: 'anotherModel', name: other.model }, chain, other.#history);
      }
      return made;
    };
    return (block) => {
      places ??= makePlaces();
      for (const { twin, keys, at } of places) {
        if (block >= keys.length) continue;
        const facts = at.block(keys.words, block * 4);
        if (facts === undefined || (facts.copies === 0 && facts.sealedBy === -1)) continue;
        if (facts.sealedUs > atUs) continue;
        const position = at.fastestTier(facts);
        return { ...twin, tier: position === -1 ? null : tierName(at.manager.inspect.tiers[position]) };
      }
      return undefined;
    };
  }

  /** The extras of requests that are remembered, by their text. */
  #extrasSeen(): ReadonlyMap<string, RequestExtras | undefined> {
    const seen = new Map<string, RequestExtras | undefined>([['{}', undefined]]);
    for (const { extras } of this.#prompts.values()) {
      if (seen.size >= TWINS_TRIED) break;
      if (extras !== undefined) seen.set(JSON.stringify(extras), extras);
    }
    return seen;
  }
}

/** A group's name begins with the zero character. */
function shown(domain: string): string {
  return domain.startsWith('\0') ? `group ${domain.slice(1)}` : domain === '' ? 'all tenants' : domain;
}
