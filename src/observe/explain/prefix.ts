/**
 * A prefix to look for in a log: keys as the log has them, or tokens with everything that makes keys of them. A log has neither
 * tokens nor the secret, so a question by tokens brings both, and other tenants and models, where it may lie under their keys.
 */

import { maxLineValues, parseJson } from '../../runtime/boundedJson.ts';
import { kvLayoutConfig } from '../../runtime/geometry/layout.ts';
import { BlockKeys, KeyChain, kvLayout, TierKVError } from '../../runtime/index.ts';
import * as is from '../../runtime/kinds.ts';
import { wordsOf } from '../../runtime/log/decisionSink.ts';
import { checkInputs, optionTable } from '../../runtime/options.ts';

export interface AskedPrefix {
  /** Four words a block. */
  readonly keys: Uint32Array;
  readonly blocks: number;
  readonly tenant: string | null;
  /** The keys of the same tokens for others. */
  readonly others: readonly {
    readonly cause: 'anotherTenant' | 'anotherModel';
    readonly name: string;
    readonly keys: Uint32Array;
  }[];
}

const remedy =
  'Write 32 hexadecimal digits a line, or JSON with tokens, tenant, model, secretKey and layout: see docs/guide/why-was-it-evicted.md.';
const secretKey = is.that<string>(
  '32 to 64 hexadecimal digits',
  (value) => typeof value === 'string' && /^([0-9a-f]{2}){16,32}$/i.test(value),
);

const prefixTable = optionTable(
  {
    tokens: is.list(is.integer(0), 'Give it a list of token ids.'),
    tenant: is.text(),
    model: is.text(),
    secretKey,
    layout: kvLayoutConfig,
    epoch: is.optional(is.integer(0), 0),
    extras: is.optional(is.byName(is.text()), {}),
    otherTenants: is.optional(is.list(is.text()), []),
    otherModels: is.optional(is.list(is.text()), []),
  },
  'TKV_CONFIG',
);

/**
 * @param content of the file
 * @param path its name in errors
 * @throws TKV_INPUT or TKV_CONFIG naming the file and the line or field at fault
 */
export function readPrefix(content: string, path: string): AskedPrefix {
  checkInputs({ content, path }, { content: is.text(), path: is.name() });
  if (!content.trimStart().startsWith('{')) return fromKeys(content, path);
  try {
    return fromTokens(content, path);
  } catch (cause) {
    if (!(cause instanceof TierKVError) || cause.path !== undefined) throw cause;
    throw new TierKVError(cause.code, `${path}: ${cause.message}`, {
      path,
      cause,
      ...(cause.field === undefined ? {} : { field: cause.field }),
    });
  }
}

function fromKeys(content: string, path: string): AskedPrefix {
  const keys = new BlockKeys();
  for (const [i, line] of content.split(/\r?\n/).entries()) {
    if (line.trim() === '') continue;
    const words = keyOf(line.trim());
    if (words === undefined) {
      throw new TierKVError('TKV_INPUT', `${path}:${i + 1} is not the key of a block. ${remedy}`, {
        path,
        line: i + 1,
      });
    }
    keys.append(words, 0);
  }
  if (keys.length === 0) throw new TierKVError('TKV_INPUT', `${path} names no block. ${remedy}`, { path });
  return { keys: keys.words, blocks: keys.length, tenant: null, others: [] };
}

/** Four words; undefined unless the text is 32 hexadecimal digits. */
export function keyOf(hex: string): Uint32Array | undefined {
  checkInputs({ hex }, { hex: is.text() });
  return /^[0-9a-f]{32}$/.test(hex.toLowerCase()) ? wordsOf(hex.toLowerCase()) : undefined;
}

function fromTokens(content: string, path: string): AskedPrefix {
  const value = parseJson(
    content,
    (problem, cause) => new TierKVError('TKV_INPUT', `${path} ${problem}. ${remedy}`, { path, cause }),
    maxLineValues,
  );
  is.object().read(value, 'the prefix');
  const given = prefixTable.read(value, 'config');
  const secretKey = Uint8Array.from(Buffer.from(given.secretKey, 'hex'));
  const layout = kvLayout(given.layout);
  const keysOf = (tenant: string, model: string): BlockKeys => {
    const { epoch, extras } = given;
    const chain = new KeyChain({ secretKey, tenant, model, layout, epoch, extras });
    const keys = new BlockKeys();
    chain.hashBlocks(given.tokens, 0, keys);
    return keys;
  };
  const keys = keysOf(given.tenant, given.model);
  if (keys.length === 0) {
    const problem = `has ${given.tokens.length} tokens, less than a block of ${layout.blockTokens}`;
    throw new TierKVError('TKV_INPUT', `${path} ${problem}. Give more of them.`, { path, field: 'tokens' });
  }
  const tenants = given.otherTenants.filter((name) => name !== given.tenant);
  const models = given.otherModels.filter((name) => name !== given.model);
  return {
    keys: keys.words,
    blocks: keys.length,
    tenant: given.tenant,
    others: [
      ...tenants.map((name) => ({
        cause: 'anotherTenant' as const,
        name,
        keys: keysOf(name, given.model).words,
      })),
      ...models.map((name) => ({
        cause: 'anotherModel' as const,
        name,
        keys: keysOf(given.tenant, name).words,
      })),
    ],
  };
}
