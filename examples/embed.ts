/**
 * Embeds the runtime, call by call: begin, seal, step, fork, truncate, release, reload, and waiting for room.
 * Run it with `node examples/embed.ts`. The bytes are stand-ins for what the kernels of a model write.
 */

import { mkdtemp, rm } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { KVRuntime, type KVSequence, kvLayout } from '../src/index.ts'; // in your project: 'tierkv'

const tenant = 'tenant-a'; // from your own authentication
const layout = kvLayout({ layers: 4, kvHeads: 2, headDim: 64, dtype: 'f16', blockTokens: 16 });
const dir = await mkdtemp(path.join(os.tmpdir(), 'tierkv-'));
const kv = await KVRuntime.open({
  layout,
  model: 'example-model@1',
  secretKey: crypto.getRandomValues(new Uint8Array(32)),
  hbmBytes: 20 * layout.blockBytes,
  ddrBytes: 64 * layout.blockBytes,
  nvme: { dir, bytes: 256 * layout.blockBytes },
  scrub: false, // there is one tenant, so no slot changes its tenant
  notice: console.error,
});

/** Your kernels: they write KV into blocks that are open, and into no others. */
function write(sequence: KVSequence): void {
  for (const { index } of kv.openBlocks(sequence)) {
    const { buffer, offsetBytes, sizeBytes } = kv.slot(sequence, index);
    kv.device.queue.writeBuffer(buffer, offsetBytes, new Uint8Array(sizeBytes).fill(index + 1));
  }
}

/** A server recovers the sequence here, or begins it again: see docs/guide/embedding.md. */
function requireDone(end: string): void {
  if (end !== 'done') throw new Error(`the sequence is ${end}`);
}

try {
  const prompt = Uint32Array.from({ length: 100 }, (_, i) => i);
  const first = await kv.begin(prompt, { tenant }); // nothing is cached yet: all blocks are open
  write(first);
  requireDone(await kv.seal(first)); // from here on, others find the full blocks
  console.log(`begin: ${first.cachedTokens} tokens cached, ${first.blocks} blocks`);

  for (let token = 100; token < 120; token++) {
    const [end] = await kv.step([{ sequence: first, tokens: [token] }]); // one entry for each sequence of a batch
    requireDone(end);
    write(first); // the KV of the new token
  }
  console.log(`step: ${first.length} tokens, ${first.blocks} blocks`);

  const second = await kv.fork(first, 105); // a second answer, from token 105 on
  if (second === 'interrupted') throw new Error('the sequence is interrupted');
  const [drafted] = await kv.step([{ sequence: second, tokens: [7, 8, 9, 10, 11, 12, 13, 14] }]);
  requireDone(drafted);
  write(second);
  console.log(`fork: ${second.length} tokens with eight drafts, ${second.blocks} blocks`);
  requireDone(await kv.truncate(second, 107)); // two of the drafts were right
  console.log(`truncate: ${second.length} tokens, ${second.blocks} blocks`);

  for (const sequence of [first, second]) {
    requireDone(await kv.seal(sequence, { tail: true })); // the next turn finds the last tokens too
    kv.release(sequence); // its blocks stay cached
  }

  kv.manager.evict(0, 20, kv.nowUs()); // push all blocks out of HBM, as pressure would
  await kv.idle();
  console.log('lookup:', kv.lookup(prompt, { tenant }).byTier, 'blocks in HBM, DDR, NVMe');
  const nextTurnOfTalk = Uint32Array.from({ length: 130 }, (_, i) => i);
  const third = await kv.begin(nextTurnOfTalk, { tenant }); // found below, brought up, verified
  console.log(`reload: ${third.cachedTokens} of ${third.length} tokens need no prefill`);

  const long = Uint32Array.from({ length: 15 * 16 }, (_, i) => 1000 + i);
  const waiting = kv.begin(long, { tenant, wait: true }); // 9 blocks are held, 15 more do not fit into 20
  await nextTurn();
  console.log(`wait: ${kv.room.waiting} request waits, there is room for ${kv.room.blocks} blocks`);
  kv.release(third);
  const fourth = await waiting;
  console.log(`wait: served with ${fourth.blocks} blocks`);
  kv.release(fourth);
} finally {
  await kv.close();
  await rm(dir, { recursive: true });
}
