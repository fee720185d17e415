/**
 * How likely the model finds a token, and which others it finds as likely: natural logarithms of the probabilities that the
 * logits say, before temperature and other rules of sampling.
 */

export interface TokenLogprob {
  readonly token: number;
  readonly logprob: number;
}

/** A token of an answer, and the most likely ones in its place. */
export interface SampledLogprob extends TokenLogprob {
  /** The most likely first; ties go to the lower id. */
  readonly top: readonly TokenLogprob[];
}

/** @param top how many of the most likely tokens are wanted */
export function sampledLogprob(logits: Float32Array, token: number, top: number): SampledLogprob {
  let largest = Number.NEGATIVE_INFINITY;
  for (let i = 0; i < logits.length; i++) largest = Math.max(largest, logits[i]);
  let sum = 0;
  for (let i = 0; i < logits.length; i++) sum += Math.exp(logits[i] - largest);
  const total = largest + Math.log(sum);
  return {
    token,
    logprob: logits[token] - total,
    top: likeliest(logits, top).map((each) => ({ token: each, logprob: logits[each] - total })),
  };
}

function likeliest(logits: Float32Array, count: number): number[] {
  const best: number[] = [];
  for (let i = 0; i < logits.length && count > 0; i++) {
    if (best.length === count && logits[i] <= logits[best[count - 1]]) continue;
    let at = best.length;
    while (at > 0 && logits[best[at - 1]] < logits[i]) at--;
    best.splice(at, 0, i);
    if (best.length > count) best.pop();
  }
  return best;
}
