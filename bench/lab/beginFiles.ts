/**
 * Which source files one `begin` runs that finds two blocks on the file tier: V8's precise coverage of that call
 * alone, on the software device. The fewer files, the sooner a reader has seen the way of a block.
 *
 *     node bench/lab/beginFiles.ts [--functions]
 */

import { mkdtempSync, rmSync } from 'node:fs';
import { Session } from 'node:inspector/promises';
import { tmpdir } from 'node:os';
import { join, relative, sep } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { KVRuntime } from '../../src/index.ts';
import { kvLayout } from '../../src/runtime/index.ts';

const { values: options } = parseArgs({ options: { functions: { type: 'boolean', default: false } } });
const root = fileURLToPath(new URL('../../src/', import.meta.url));
const layout = kvLayout({ layers: 2, kvHeads: 2, headDim: 64, dtype: 'f16', blockTokens: 16 });
const tokens = Uint32Array.from({ length: 40 }, (_, i) => 1000 + i);
const tenant = 'tenant';
const dir = mkdtempSync(join(tmpdir(), 'tierkv-begin-'));

/** Functions that ran between two takes of the session, by file below src. */
async function ran(session: Session): Promise<Map<string, string[]>> {
  const { result } = await session.post('Profiler.takePreciseCoverage');
  const files = new Map<string, string[]>();
  for (const { url, functions } of result) {
    if (!url.startsWith('file:')) continue;
    const path = relative(root, fileURLToPath(url));
    if (path.startsWith('..')) continue;
    const names = functions
      .filter(({ ranges }) => ranges[0].count > 0)
      .map(({ functionName }) => functionName);
    if (names.length > 0) files.set(path.split(sep).join('/'), names);
  }
  return files;
}

try {
  await using kv = await KVRuntime.open({
    layout,
    model: 'begin@1',
    secretKey: new Uint8Array(32).fill(7),
    hbmBytes: 8 * layout.blockBytes,
    nvme: { dir, bytes: 32 * layout.blockBytes },
    offloadThreshold: 1,
  });
  const computed = await kv.begin(tokens, { tenant });
  for (const { index } of kv.openBlocks(computed)) {
    const { buffer, offsetBytes, sizeBytes } = kv.slot(computed, index);
    kv.device.queue.writeBuffer(buffer, offsetBytes, new Uint8Array(sizeBytes).fill(index + 1));
  }
  await kv.seal(computed);
  kv.release(computed);
  await kv.idle();
  kv.manager.evict(0, 2, kv.nowUs());
  await kv.idle();

  const session = new Session();
  session.connect();
  await session.post('Profiler.enable');
  await session.post('Profiler.startPreciseCoverage', { callCount: true, detailed: false });
  await session.post('Profiler.takePreciseCoverage');
  const sequence = await kv.begin(tokens, { tenant });
  const files = await ran(session);
  session.disconnect();

  if (sequence.cachedTokens !== 32) throw new Error(`found ${sequence.cachedTokens} tokens, not 32`);
  kv.release(sequence);
  for (const [path, names] of [...files].sort(([a], [b]) => (a < b ? -1 : 1))) {
    console.log(options.functions ? `${path}  ${names.filter(Boolean).join(' ')}` : path);
  }
  const functions = [...files.values()].reduce((sum, names) => sum + names.length, 0);
  console.log(`${files.size} files, ${functions} functions and closures`);
} finally {
  rmSync(dir, { recursive: true });
}
