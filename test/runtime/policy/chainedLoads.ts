/** Synthetic loads of chained blocks for one pool, each request with its time. Ids name whole prefixes. */

import type { Random } from '../../fuzz/random.ts';

export interface ChainRequest {
  readonly nowUs: number;
  readonly ids: readonly number[];
}

/**
 * Chats whose users return after `gapS` seconds, a few blocks longer each time, among requests that users never
 * repeats.
 * @param oneOffs share of requests that are never repeated
 */
export function chatsAmongOneOffs(
  random: Random,
  requests: number,
  options: { chats: number; gapS: number; oneOffs: number; blocks: number },
): ChainRequest[] {
  const { chats, gapS, oneOffs, blocks } = options;
  const load: ChainRequest[] = [];
  const chains: number[][] = Array.from({ length: chats }, () => []);
  let next = 1;
  const stepUs = Math.floor((gapS * 1e6) / chats);
  for (let r = 0; r < requests; r++) {
    const nowUs = r * stepUs;
    if (random.chance(oneOffs)) {
      load.push({ nowUs, ids: Array.from({ length: random.between(1, blocks) }, () => next++) });
      continue;
    }
    const chat = random.below(chats);
    if (chains[chat].length > blocks) chains[chat] = [];
    for (let more = random.between(1, 2); more > 0; more--) chains[chat].push(next++);
    load.push({ nowUs, ids: chains[chat].slice() });
  }
  return load;
}
