import { afterAll, expect, test } from 'vitest';
import { layoutOf } from '../../src/adapters/transformers/index.ts';
import { type ConversationReport, runConversations } from './conversations.ts';
import { loadDecoder, removeDirectories, restartedRuntimes } from './decoders.ts';

afterAll(removeDirectories);

const seed = Number(process.env.TIERKV_SEED ?? 1);

test.each([
  ['f32', {}],
  ['f16', { kvDtype: 'f16' }],
] as const)('answers and bits are those of the model alone, over restarts (%s)', async (_, shape) => {
  const { model, directory } = await loadDecoder(shape);
  const runtimes = restartedRuntimes(layoutOf(model));
  const report = await runConversations({
    model,
    weights: directory,
    open: runtimes,
    conversations: 60,
    seed,
    restartEvery: 12,
    sharedTokens: 200,
  });
  const { conversations, restarts, wrongAnswers, wrongBlocks, foreignTokens, uncached } = report;
  expect({ seed, conversations, restarts, wrongAnswers, wrongBlocks, foreignTokens, uncached }).toEqual({
    seed,
    conversations: 60,
    restarts: 5,
    wrongAnswers: 0,
    wrongBlocks: 0,
    foreignTokens: 0,
    uncached: [],
  });
  expect(report.comparedBlocks).toBeGreaterThan(100);
  expect(report.tokens.restored).toBeGreaterThan(1000);
  expect(report.tokens.live).toBeGreaterThan(100);
});

/** A control: these must be seen. */
test('one wrong bit of a block is seen in bits and in answers', async () => {
  const { model, directory } = await loadDecoder();
  const open = restartedRuntimes(layoutOf(model));
  const report: ConversationReport = await runConversations({
    model,
    weights: directory,
    open: async () => {
      const runtime = await open();
      const read = runtime.read.bind(runtime);
      runtime.read = (sequence, index) => {
        const bytes = read(sequence, index).slice();
        bytes[3] ^= 0x40; // the exponent of a key's first element
        return bytes;
      };
      return runtime;
    },
    conversations: 20,
    seed,
    restartEvery: 10,
    sharedTokens: 200,
  });
  expect(report.wrongBlocks).toBe(report.comparedBlocks);
  expect(report.wrongAnswers).toBeGreaterThan(0);
});
