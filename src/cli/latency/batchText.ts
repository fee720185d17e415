/**
 * Batches as users write them: `decode=64@512` are 64 decodes with 512 tokens in their caches, `prefill=2048`
 * is a whole prompt, `prefill=512@1024` 512 new tokens after 1024 cached ones, `prefill=512@1024/4096` such a
 * piece of a prompt of 4096. Several go into one batch with commas.
 */

import { configError } from '../../runtime/errors.ts';
import { BatchSums } from '../../sim/latency/index.ts';

const part = /^(prefill|decode)=(\d+)(?:@(\d+))?(?:\/(\d+))?$/;

function wrong(text: string, problem: string): never {
  throw configError('--batch', `"${text}" ${problem}`, 'Write for example decode=64@512,prefill=2048.');
}

/** @throws {TierKVError} TKV_CONFIG for anything else. */
export function parseBatch(text: string): BatchSums {
  const sums = new BatchSums();
  for (const piece of text.split(',')) {
    const match = part.exec(piece.trim());
    if (match === null) wrong(text, `has a part "${piece}" that is no prefill or decode`);
    const [count, at, whole] = [match[2], match[3], match[4]].map((digits) =>
      digits === undefined ? undefined : Number(digits),
    );
    if (!Number.isSafeInteger(count) || count! < 1 || count! > 1e9 || (at ?? 0) > 1e9 || (whole ?? 0) > 1e9) {
      wrong(text, 'has a number outside 1 to 1000000000');
    }
    if (match[1] === 'decode') {
      if (whole !== undefined) wrong(text, 'gives a prompt length to decodes');
      sums.addDecodes(count!, count! * (at ?? 0));
      continue;
    }
    const cached = at ?? 0;
    const promptTokens = whole ?? cached + count!;
    if (cached + count! > promptTokens)
      wrong(text, `processes more than its prompt of ${promptTokens} tokens`);
    sums.add({ promptTokens, progressTokens: cached, newTokens: count!, outputTokens: 1 });
  }
  return sums;
}
