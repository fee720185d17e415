/**
 * A child of a-standing-process-loses-nothing.test.ts: a runtime whose read of the disk is under way while the
 * process is stopped, or keeps itself with one long call. It says `held`, and what came of the read.
 *
 *     standing.ts DEADLINE_MS [BLOCK_MS]
 */

import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { FaultPlan, FaultStore } from '../../../src/testing/faults.ts';
import { blocks, cacheBelow, openRuntime, prompt, tenant } from '../liveRuntime.ts';

const [deadlineMs, blockMs] = process.argv.slice(2).map(Number);
const dir = mkdtempSync(join(tmpdir(), 'tierkv-standing-'));
const plan = new FaultPlan({ seed: 1, rates: { stalled: 1 }, stalledMax: 1000 });
plan.pause();
let disk: FaultStore | undefined;
try {
  await using kv = await openRuntime({
    nvme: { dir, bytes: blocks(60) },
    transferDeadlineMs: deadlineMs,
    wrapStores: ({ hbm, nvme }) => {
      disk = new FaultStore(nvme!, { plan, wait: () => Promise.resolve() });
      return { hbm, nvme: disk };
    },
  });
  while (kv.manager.inspect.usage(1).cachedBytes < blocks(4)) await cacheBelow(kv, 10, 1);
  plan.resume();
  const begun = kv.begin(prompt(10), { tenant });
  while (disk!.stalledCalls === 0) await new Promise((resolve) => setImmediate(resolve));
  const letGo = (): void => {
    plan.pause();
    disk!.releaseStalled();
  };
  if (blockMs === undefined) {
    process.stdin.once('data', () => {
      letGo();
      process.stdin.pause();
    });
    process.stdout.write('held\n');
  } else {
    setImmediate(letGo); // it is taken behind the timers that came due meanwhile
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, blockMs);
  }
  const { cachedTokens } = await begun;
  const failed = Array.from(kv.manager.inspect.counters.loadsFailed);
  process.stdout.write(`${JSON.stringify({ cachedTokens, failed })}\n`);
} finally {
  rmSync(dir, { recursive: true, force: true });
}
