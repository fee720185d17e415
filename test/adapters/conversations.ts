/**
 * Conversations that share the beginnings of their prompts, over a model with and without the prefix cache, with restarts
 * of the runtime between them. Each answer is compared with the one of the model alone, and the bits of restored KV with
 * the bits that were saved. What is wrong is counted, so that a control can show some.
 */

import { createHash } from 'node:crypto';
import { DynamicCache, type PreTrainedModel, type Tensor } from '@huggingface/transformers';
import type { EngineModule } from '../../src/adapters/transformers/engine.ts';
import { type PrefixTurn, withPrefixCache } from '../../src/adapters/transformers/index.ts';
import type { KVRuntime } from '../../src/index.ts';
import { generated, randomIds, randomNumbers } from './decoders.ts';

export interface ConversationOptions {
  readonly model: PreTrainedModel;
  /** The model's directory. */
  readonly weights: string;
  /** A runtime that begins with what the one before has left. */
  readonly open: () => Promise<KVRuntime>;
  /** The module, where a control takes another one. */
  readonly transformers?: EngineModule;
  readonly conversations: number;
  readonly seed: number;
  /** Conversations between two restarts. */
  readonly restartEvery: number;
  /** Most tokens of the beginnings that conversations share. */
  readonly sharedTokens: number;
  readonly progress?: (done: number) => void;
}

export interface ConversationReport {
  conversations: number;
  turns: number;
  restarts: number;
  /** Turns whose tokens differ from the model's own. */
  wrongAnswers: number;
  /** Restored blocks whose bits were compared with the bits that were saved, and how many of them differ. */
  comparedBlocks: number;
  wrongBlocks: number;
  /** Bytes of KV in saved blocks. */
  savedBytes: number;
  readonly tokens: { restored: number; live: number; prompt: number };
  /** Restored blocks by the tier that held them. */
  readonly byTier: number[];
  /** Tokens that another tenant found. */
  foreignTokens: number;
  /** Turns that went without the cache. */
  readonly uncached: string[];
}

const TENANTS = ['ann', 'ben', 'cem'];

export async function runConversations(options: ConversationOptions): Promise<ConversationReport> {
  const { model, weights, open, conversations, seed, restartEvery, sharedTokens } = options;
  const next = randomNumbers(seed);
  const below = (count: number): number => next() % count;
  const beginnings = Array.from({ length: 10 }, (_, i) =>
    randomIds(next, Math.floor((sharedTokens * (i + 1)) / 10)),
  );
  const report: ConversationReport = {
    conversations: 0,
    turns: 0,
    restarts: 0,
    wrongAnswers: 0,
    comparedBlocks: 0,
    wrongBlocks: 0,
    savedBytes: 0,
    tokens: { restored: 0, live: 0, prompt: 0 },
    byTier: [],
    foreignTokens: 0,
    uncached: [],
  };
  const note = (turn: PrefixTurn): void => {
    last = turn;
    report.turns++;
    report.tokens.prompt += turn.promptTokens;
    if (turn.from !== 'computed') report.tokens[turn.from] += turn.cachedTokens;
    if (turn.from === 'restored') {
      turn.byTier.forEach((blocks, tier) => {
        report.byTier[tier] = (report.byTier[tier] ?? 0) + blocks;
      });
    }
    report.savedBytes += turn.savedBlocks * blockBytes;
    if (turn.uncached !== undefined) report.uncached.push(turn.uncached);
  };
  let blockBytes = 0;
  let last: PrefixTurn | undefined;
  /** The bits of each block when it was saved, by tenant and tokens. */
  const ledger = new Map<string, string>();
  const blockName = (tenant: string, text: readonly number[], tokens: number): string =>
    createHash('sha256')
      .update(`${tenant} ${text.slice(0, tokens)}`)
      .digest('base64');

  while (report.conversations < conversations) {
    await using runtime = await open();
    blockBytes = runtime.layout.blockBytes;
    const { blockTokens } = runtime.layout;
    const cached = await withPrefixCache(model, {
      weights,
      runtime,
      liveCaches: below(3),
      report: note,
      ...(options.transformers === undefined ? {} : { transformers: options.transformers }),
    });
    for (let i = 0; i < restartEvery && report.conversations < conversations; i++) {
      const tenant = TENANTS[below(TENANTS.length)];
      let text = [...beginnings[below(beginnings.length)], ...randomIds(next, 1 + below(40))];
      const mine = below(2) === 0 ? new DynamicCache() : undefined;
      for (let turn = 0; turn <= below(3); turn++) {
        const asked = { max_new_tokens: 1 + below(6) };
        const plain = await generated(model, text, asked);
        const past = mine === undefined ? {} : { past_key_values: mine };
        const answer = await generated(cached, text, { ...asked, ...past, prefixCache: { tenant } });
        if (`${answer}` !== `${plain}`) report.wrongAnswers++;
        const blocks = Math.floor((answer.length - 1) / blockTokens);
        const fromBlock = mine === undefined ? blocks : blocks - (last?.savedBlocks ?? 0);
        for (let block = fromBlock; block < blocks; block++) {
          const name = blockName(tenant, answer, (block + 1) * blockTokens);
          ledger.set(name, hashOfBlock(mine!, block, blockTokens));
        }
        text = [...plain, ...randomIds(next, 1 + below(30))];
      }
      const { pastKeyValues, cachedTokens } = await cached.prefixCache.restore(text, { tenant });
      for (let block = 0; block * blockTokens < cachedTokens; block++) {
        const saved = ledger.get(blockName(tenant, text, (block + 1) * blockTokens));
        if (saved === undefined) continue;
        report.comparedBlocks++;
        if (hashOfBlock(pastKeyValues, block, blockTokens) !== saved) report.wrongBlocks++;
      }
      report.foreignTokens += (await cached.prefixCache.restore(text, { tenant: 'eve' })).cachedTokens;
      report.conversations++;
      options.progress?.(report.conversations);
    }
    await runtime.save();
    report.restarts++;
  }
  return report;
}

/** The SHA-256 of the rows of one block in all tensors of a cache object, in the order of their names. */
function hashOfBlock(cache: object, index: number, blockTokens: number): string {
  const hash = createHash('sha256');
  const tensors = cache as Readonly<Record<string, Tensor>>;
  for (const name of Object.keys(tensors).sort()) {
    const { dims, data } = tensors[name];
    const [, heads, length, dim] = dims;
    const view = data as Float32Array;
    const bytes = new Uint8Array(view.buffer, view.byteOffset, view.byteLength);
    const row = dim * view.BYTES_PER_ELEMENT;
    for (let head = 0; head < heads; head++) {
      const from = (head * length + index * blockTokens) * row;
      hash.update(bytes.subarray(from, from + blockTokens * row));
    }
  }
  return hash.digest('hex');
}
