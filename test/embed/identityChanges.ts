/** One prompt, and all that a request may say otherwise beside it: for tests over the doors that find KV by its content. */

import type { RequestExtras } from '../../src/runtime/index.ts';
import { layout } from './liveRuntime.ts';

const { blockTokens } = layout;
export const tokens: Uint32Array = Uint32Array.from({ length: 3 * blockTokens + 1 }, (_, i) => 500 + i);
/** Full blocks of the prompt. */
export const whole = 3;

export interface Asked {
  readonly tokens: Uint32Array;
  readonly tenant: string;
  readonly extras: RequestExtras;
}

export const base: Asked = {
  tokens,
  tenant: 'a',
  extras: { adapter: 'sql', image: { value: new Uint8Array([1, 2]), fromToken: 5 } },
};

const withTokens = (change: (list: Uint32Array) => void): Asked => {
  const list = tokens.slice();
  change(list);
  return { ...base, tokens: list };
};
const withExtras = (extras: RequestExtras): Asked => ({ ...base, extras: { ...base.extras, ...extras } });

/** What one request may say otherwise, and how many of its three blocks it may still share. */
export const changes: readonly (readonly [what: string, asked: Asked, shared: number])[] = [
  ['the first token', withTokens((list) => list[0]++), 0],
  ['a token of the second block', withTokens((list) => list[blockTokens + 3]++), 1],
  ['the last token of a block', withTokens((list) => list[blockTokens - 1]++), 0],
  ['two tokens in another order', withTokens((list) => list.subarray(0, 2).reverse()), 0],
  ['the same tokens at another position', { ...base, tokens: Uint32Array.from([9, ...tokens]) }, 0],
  ['blocks in another order', withTokens((list) => list.copyWithin(0, blockTokens, 2 * blockTokens)), 0],
  ['the tenant', { ...base, tenant: 'b' }, 0],
  ['a tenant of another case', { ...base, tenant: 'A' }, 0],
  ['no extras', { ...base, extras: {} }, 0],
  ['another adapter', withExtras({ adapter: 'sqm' }), 0],
  ['an adapter of another name', { ...base, extras: { adaptor: 'sql', image: base.extras.image } }, 0],
  ['a value as bytes', withExtras({ adapter: new TextEncoder().encode('sql') }), 0],
  ['one extra more', withExtras({ salt: 'x' }), 0],
  ['one extra less', { ...base, extras: { adapter: 'sql' } }, 0],
  ['another image', withExtras({ image: { value: new Uint8Array([1, 3]), fromToken: 5 } }), 0],
  ['the image one token later', withExtras({ image: { value: new Uint8Array([1, 2]), fromToken: 6 } }), 0],
  ['the image at the first token', withExtras({ image: new Uint8Array([1, 2]) }), 0],
  ['the image a block later', withExtras({ image: { value: new Uint8Array([1, 2]), fromToken: 21 } }), 0],
  ['an extra in the third block', withExtras({ more: { value: 'x', fromToken: 2 * blockTokens + 1 } }), 2],
];
