/**
 * A byte-pair vocabulary over bytes, in the notation of byte-level tokenizers: each byte stands as one visible
 * character, and pairs that occur together most often become tokens.
 */

/** The character of each byte: itself where it is visible, else one from U+0100 on. */
export function byteTokens(): string[] {
  const visible = (byte: number): boolean =>
    (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
  let hidden = 0;
  return Array.from({ length: 256 }, (_, byte) =>
    String.fromCharCode(visible(byte) ? byte : 0x100 + hidden++),
  );
}

export type Merge = readonly [left: string, right: string];

/** The `count` most frequent pairs of a text, one after the other; ties go to what sorts first. */
export function learnMerges(text: string, count: number): Merge[] {
  const characters = byteTokens();
  const words = (text.match(/ ?[A-Za-z]+|[^A-Za-z]/g) ?? []).map((word) =>
    Array.from(Buffer.from(word), (byte) => characters[byte]),
  );
  const merges: Merge[] = [];
  while (merges.length < count) {
    const best = mostFrequent(words);
    if (best === undefined) throw new Error(`the sample text gives ${merges.length} pairs, not ${count}`);
    merges.push(best);
    for (const word of words) apply(word, best);
  }
  return merges;
}

function mostFrequent(words: readonly string[][]): Merge | undefined {
  const counts = new Map<string, number>();
  for (const word of words) {
    for (let i = 0; i + 1 < word.length; i++) {
      const pair = `${word[i]} ${word[i + 1]}`;
      counts.set(pair, (counts.get(pair) ?? 0) + 1);
    }
  }
  const [best] = [...counts].sort(([a, m], [b, n]) => n - m || (a < b ? -1 : 1));
  const [left, right] = best?.[0].split(' ') ?? [];
  return left === undefined || right === undefined ? undefined : [left, right];
}

function apply(word: string[], [left, right]: Merge): void {
  for (let i = 0; i + 1 < word.length; i++) {
    if (word[i] === left && word[i + 1] === right) word.splice(i, 2, left + right);
  }
}
