/**
 * The conversations at any size: `npm run campaign -- transformers --conversations 500 --seed 1 [--large]`. It fails for a
 * wrong answer, a wrong bit, and a token that another tenant found.
 */

import { parseArgs } from 'node:util';
import { largerDecoder, tinyDecoder } from '../../examples/tinyDecoder/make.ts';
import { layoutOf } from '../../src/adapters/transformers/index.ts';
import { runConversations } from './conversations.ts';
import { loadDecoder, removeDirectories, restartedRuntimes } from './decoders.ts';

const { values } = parseArgs({
  options: {
    conversations: { type: 'string', default: '500' },
    seed: { type: 'string', default: '1' },
    large: { type: 'boolean', default: false },
  },
});
const conversations = Number(values.conversations);
const seed = Number(values.seed);
console.log(
  `${conversations} conversations over the ${values.large ? 'larger' : 'tiny'} decoder, seed ${seed}`,
);
try {
  const { model, directory } = await loadDecoder(values.large ? largerDecoder : tinyDecoder);
  const report = await runConversations({
    model,
    weights: directory,
    open: restartedRuntimes(layoutOf(model)),
    conversations,
    seed,
    restartEvery: 25,
    sharedTokens: 400,
    progress: (done) => {
      if (done % 50 === 0) console.log(`  ${done} conversations`);
    },
  });
  const { tokens, uncached, byTier, ...rest } = report;
  console.log(JSON.stringify({ ...rest, tokens, byTier }, undefined, 2));
  for (const why of new Set(uncached)) console.log(`  went without the cache: ${why}`);
  if (rest.wrongAnswers + rest.wrongBlocks + rest.foreignTokens > 0) process.exitCode = 1;
} finally {
  removeDirectories();
}
