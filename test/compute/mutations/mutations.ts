/** Mistakes that a kernel could have, each as a change of its text. Every one of them must be caught. */

export type MutatedKernel =
  | 'lanes'
  | 'workgroups'
  | 'write'
  | 'write f16'
  | 'write int8'
  | 'read'
  | 'copy'
  | 'convert';

export interface Mutation {
  readonly kernel: MutatedKernel;
  /** Its kind, a colon, and what is wrong. */
  readonly fault: string;
  readonly search: string | RegExp;
  readonly replacement: string;
}

type Change = readonly [fault: string, search: string | RegExp, replacement: string];

/** What both kernels of attention could get wrong. */
const ofAttention: readonly Change[] = [
  ['causal mask: the next token is seen too', 'let end = min(position + 1u,', 'let end = min(position + 2u,'],
  ['causal mask: the own token is not seen', 'let end = min(position + 1u,', 'let end = min(position,'],
  ['window: one token longer', 'position + 1u - min(window,', 'position - min(window,'],
  ['window: one token shorter', 'position + 1u - min(window,', 'position + 2u - min(window,'],
  ['window: none', 'window > 0u', 'false'],
  ['split: the last is left out of the sum', 'split < splits', 'split + 1u < splits'],
  ['split: sums are not brought to one largest score', 'exp2(sums.x - largest)', '1.0'],
  ['stride: another layer', ' + layer.units', ''],
  ['stride: another KV head', 'firstHead / group', 'firstHead % group'],
  ['stride: another row of queries', 'row * queryStride', '0u'],
  ['stride: the query of another head', 'start + 1u * headDim4', 'start'],
  ['stride: the result of another head', 'to + 1u * (headDim4 + 1u)', 'to'],
  ['block: never the next', 'table + token / blockTokens', 'table'],
  ['block: another sequence', 'entriesAt + 2u * (table + ', 'entriesAt + 2u * ('],
  ['slab: always the first', 'let slab = tables[entryOf(table, token)]', 'let slab = 0u'],
  ['scale: of the scores, left out', '] * scale', ']'],
  ['scale: of K, left out', /scaleOf\(slab\d\[k \+ headDim4\]\)/g, '1.0'],
  ['scale: of V, left out', /scaleOf\(slab\d\[v \+ headDim4\]\)/g, '1.0'],
];

const ofLanes: readonly Change[] = [
  ['split: one token longer', '(split + 1u) * splitTokens)', '(split + 1u) * splitTokens + 1u)'],
  ['split: one token shorter', '(split + 1u) * splitTokens)', '(split + 1u) * splitTokens - 1u)'],
  ['stride: V from K', 'let v = k + kvUnits', 'let v = k'],
  ['stride: rows of half the length', 'k += rowUnits', 'k += rowUnits / 2u'],
  ['softmax: no rescale when a larger score comes', /let keep = exp2\(.*?\);/g, 'let keep = 1.0;'],
  ['softmax: weights of the score alone', /exp2\(score(\d) - largest\d\)/g, 'exp2(score$1)'],
];

const ofWorkgroups: readonly Change[] = [
  ['split: one token shorter', 'base + splitTokens) - base', 'base + splitTokens - 1u) - base'],
  ['stride: V from K', '[token] + kvUnits', '[token]'],
  ['softmax: the largest score of 8 tokens only', /largest = max\(largest, ofLanes.*?\);/g, ''],
  ['softmax: the weights of 8 tokens only', /total \+= ofLanes.*?;/g, ''],
  ['mask: a token before the window', 'token >= begin && token < end', 'token < end'],
  ['shares: of V, one is left out', 'other < shares', 'other + 1u < shares'],
  [
    'shares: of V, a token counts twice',
    'min(end, (share + 1u) * tokens)',
    'min(end, (share + 1u) * tokens + 1u)',
  ],
];

const ofWriting: readonly Change[] = [
  ['place: V over K', 'select(0u, kvUnits, isV)', '0u'],
  ['place: K as V', 'select(kOffset, vOffset, isV)', 'kOffset'],
  ['stride: another head of the source', 'head * sourceHead', '0u'],
  ['stride: another row of the source', 'row * sourceStride', '0u'],
  ['stride: another head of the block', 'kvHead * headUnits', '0u'],
  ['stride: another layer', ' + layer.units', ''],
  ['block: behind its end', '(token % blockTokens) * rowUnits', 'token * rowUnits'],
  ['slab: always the first', 'let slab = tables[entryOf(table, position)]', 'let slab = 0u'],
];

const ofF16: readonly Change[] = [
  ['bits: rounds towards zero', 'vec4(0xfffu) + ((size >> vec4(13u)) & vec4(1u))', 'vec4(0u)'],
  ['bits: loses the sign', '& vec4(0x8000u)', '& vec4(0u)'],
  ['bits: exponent off by one', 'vec4(0x38000000u) + ', 'vec4(0x38800000u) + '],
  ['place: halves in the wrong order', 'bits.x | (bits.y << 16u)', 'bits.y | (bits.x << 16u)'],
];

const ofInt8: readonly Change[] = [
  ['place: V over K', 'select(0u, kvUnits, isV)', '0u'],
  ['place: K as V', 'select(kOffset, vOffset, isV)', 'kOffset'],
  ['stride: another head of the source', 'head * sourceHead', '0u'],
  ['bits: rounds towards zero', 'round(value * inverse)', 'trunc(value * inverse)'],
  ['bits: wraps round instead of ending at 127', '127.0 / largest', '129.0 / largest'],
  ['scale: of 4 elements', /max\(max\(sizes\.x.*?w\)\)/g, 'sizes.x'],
  ['scale: left out', /^.*= scale;.*$/gm, ''],
  ['scale: over the last elements', '[to + headDim4]', '[to + headDim4 - 1u]'],
];

const ofReading: readonly Change[] = [
  ['place: K as V', 'select(0u, kvUnits, isV)', '0u'],
  ['stride: another head', 'rowAt(table, position, head)', 'rowAt(table, position, 0u)'],
  ['slab: always the first', 'let slab = tables[entryOf(table, position)]', 'let slab = 0u'],
  ['scale: left out', /value \*= scaleOf.*?;/g, ''],
  ['scale: of a neighbour', '[start + headDim4]', '[start + headDim4 - 1u]'],
];

const ofCopies: readonly Change[] = [
  ['tokens: one more', '>= pair.tokens', '> pair.tokens'],
  ['tokens: of the first K rows only', '(unit / fromRowUnits) % blockTokens', 'unit / fromRowUnits'],
  ['slab: of the source, always the last', /pair\.fromSlab == \du/g, 'true'],
  ['slab: of the target, all of them', /pair\.toSlab == \du/g, 'pair.toSlab * 0u == 0u'],
  ['place: from the target', 'pair.fromUnit + unit', 'pair.toUnit + unit'],
  ['pairs: one behind', 'pairs[lane / blockUnits]', 'pairs[lane / blockUnits + 1u]'],
  ['workgroups: the last is left out', 'count.x * blockUnits', 'count.x * blockUnits - 64u'],
];

const ofConversion: readonly Change[] = [
  ['tokens: one more', '>= pair.tokens', '> pair.tokens'],
  ['stride: rows of the source are as long as those of the target', 'row * fromRowUnits', 'row * toRowUnits'],
  ['stride: rows of the target are as long as those of the source', 'row * toRowUnits', 'row * fromRowUnits'],
  ['scale: of the source, left out', /value \*= fromScaleOf.*?;/g, ''],
  ['scale: of the target, of 4 elements only', /max\(max\(sizes\.x.*?w\)\)/g, 'sizes.x'],
  ['scale: of the target, left out', /^.*= scale;.*$/gm, ''],
  ['slab: of the source, always the last', /\bslab == \du/g, 'true'],
  ['slab: of the target, all of them', /pair\.toSlab == \du/g, 'pair.toSlab * 0u == 0u'],
];

const all: readonly (readonly [kernel: MutatedKernel, changes: readonly Change[]])[] = [
  ['lanes', [...ofAttention, ...ofLanes]],
  ['workgroups', [...ofAttention, ...ofWorkgroups]],
  ['write', ofWriting],
  ['write f16', ofF16],
  ['write int8', ofInt8],
  ['read', ofReading],
  ['copy', ofCopies],
  ['convert', ofConversion],
];

export const mutations: readonly Mutation[] = all.flatMap(([kernel, changes]) =>
  changes.map(([fault, search, replacement]) => ({ kernel, fault, search, replacement })),
);

/** The first of each kind for each kernel. */
export const mutationsOfCi: readonly Mutation[] = mutations.filter((mutation, i) => {
  const kindOf = ({ kernel, fault }: Mutation): string => `${kernel} ${fault.split(':')[0]}`;
  return mutations.findIndex((other) => kindOf(other) === kindOf(mutation)) === i;
});
