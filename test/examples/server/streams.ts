/** Streams of requests whose answers are compared, and what the model alone says to each. */

import { expect } from 'vitest';
import type { GenerationRequest } from '../../../examples/server/engine/index.ts';
import type { SeededRandom } from '../../../src/testing/index.ts';
import type { PlainRun, Traced } from './model/plainRun.ts';

export function randomTokens(random: SeededRandom, count: number): number[] {
  return Array.from({ length: count }, () => 3 + random.below(509));
}

/** Half of the streams are greedy, the others sample, each in its own way. */
export function requestOf(prompt: readonly number[], n: number): GenerationRequest {
  const sampling =
    n % 2 === 0
      ? { temperature: 0, topK: 0, topP: 1, seed: 0 }
      : { temperature: 0.5 + (n % 5) / 4, topK: n % 3 === 0 ? 20 : 0, topP: n % 4 === 1 ? 0.9 : 1, seed: n };
  return { prompt, tenant: `tenant ${n % 3}`, maxTokens: 6 + (n % 5), sampling, stop: [] };
}

/** One after the other, each without anything of the others. */
export async function answersOf(plain: PlainRun, requests: readonly GenerationRequest[]): Promise<Traced[]> {
  const answers: Traced[] = [];
  for (const request of requests) answers.push(await plain.answer(request));
  return answers;
}

/** Fails with the first stream and token that differ, and the seed. */
export function expectSame(found: readonly Traced[], wanted: readonly Traced[], what: string): void {
  found.forEach(({ tokens, logits }, i) => {
    expect(tokens, `tokens of stream ${i}, ${what}`).toEqual(wanted[i].tokens);
    expect(logits, `logits of stream ${i}, ${what}`).toEqual(wanted[i].logits);
  });
}
