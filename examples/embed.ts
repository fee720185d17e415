/** Embeds the runtime: allocate, write, release, look up, reload. Run it with `node examples/embed.ts`. */

import { mkdtemp } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { KVRuntime } from '../src/index.ts'; // in your project: 'tierkv'
import { kvLayout } from '../src/runtime/index.ts'; // in your project: 'tierkv/runtime'

const layout = kvLayout({ layers: 4, kvHeads: 2, headDim: 64, dtype: 'f16', blockTokens: 16 });
await using kv = await KVRuntime.open({
  layout,
  model: 'example-model@1',
  secretKey: crypto.getRandomValues(new Uint8Array(32)),
  hbmBytes: 20 * layout.blockBytes,
  ddrBytes: 64 * layout.blockBytes,
  nvme: { dir: await mkdtemp(path.join(os.tmpdir(), 'tierkv-')), bytes: 256 * layout.blockBytes },
  notice: console.error,
});

const prompt = Uint32Array.from({ length: 100 }, (_, i) => i);
const first = await kv.begin(prompt, { tenant: 'tenant-a' }); // allocate
for (const { index } of kv.openBlocks(first)) {
  const { buffer, offsetBytes, sizeBytes } = kv.slot(first, index);
  kv.device.queue.writeBuffer(buffer, offsetBytes, new Uint8Array(sizeBytes).fill(index + 1)); // write: your prefill kernel
}
await kv.seal(first);
kv.release(first); // release: the blocks stay cached

kv.manager.evict(0, 6, kv.nowUs()); // push them out of HBM, as pressure would
await kv.idle();
console.log('look up:', kv.lookup(prompt, { tenant: 'tenant-a' }).byTier, 'blocks in HBM, DDR, NVMe');

const second = await kv.begin(prompt, { tenant: 'tenant-a' }); // reload: found below, brought up, verified
console.log(`reloaded: ${second.cachedTokens} of ${prompt.length} tokens need no prefill`);
kv.release(second);
