/** Pieces of token streams, cut to a number of tokens. */

import type { TokenSpan } from '../request.ts';

export function tokensOf(spans: readonly TokenSpan[]): number {
  return spans.reduce((sum, { tokens }) => sum + tokens, 0);
}

/** The spans of the first `tokens` tokens. */
export function leadingSpans(spans: readonly TokenSpan[], tokens: number): TokenSpan[] {
  const leading: TokenSpan[] = [];
  let left = tokens;
  for (const span of spans) {
    if (left <= 0) break;
    leading.push(span.tokens <= left ? span : { ...span, tokens: left });
    left -= span.tokens;
  }
  return leading;
}

/** The spans of the last `tokens` tokens. */
export function trailingSpans(spans: readonly TokenSpan[], tokens: number): TokenSpan[] {
  let skip = Math.max(0, tokensOf(spans) - tokens);
  const trailing: TokenSpan[] = [];
  for (const span of spans) {
    const cut = Math.min(skip, span.tokens);
    skip -= cut;
    if (cut === 0) trailing.push(span);
    else if (cut < span.tokens) {
      trailing.push({ seed: span.seed, position: span.position + cut, tokens: span.tokens - cut });
    }
  }
  return trailing;
}
