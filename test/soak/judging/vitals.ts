/** What the process holds at a moment of rest: memory by kind after a collection, descriptors, threads. */

import { readdirSync } from 'node:fs';
import v8 from 'node:v8';
import vm from 'node:vm';

export interface Vitals {
  readonly rssBytes: number;
  readonly heapUsedBytes: number;
  readonly externalBytes: number;
  readonly arrayBuffersBytes: number;
  /** Undefined where the system has no /proc. */
  readonly fds: number | undefined;
  readonly threads: number | undefined;
}

let collect: (() => void) | undefined;

/**
 * Collections until what they free frees nothing more: objects of the device are given back by finalizers.
 */
export async function collectGarbage(): Promise<void> {
  v8.setFlagsFromString('--expose-gc');
  collect ??= vm.runInNewContext('gc') as () => void;
  for (let turn = 0; turn < 3; turn++) {
    collect();
    await new Promise((resolve) => setTimeout(resolve, 1));
  }
}

/** V8 frees array buffers, and the device what it gave, on other threads: this waits until nothing more goes away. */
export async function vitals(): Promise<Vitals> {
  let now = await looked();
  for (let turn = 0; turn < 10; turn++) {
    const before = now;
    now = await looked();
    const isLess = (['arrayBuffersBytes', 'fds', 'threads'] as const).some(
      (what) => (now[what] ?? 0) < (before[what] ?? 0),
    );
    if (!isLess) break;
  }
  return now;
}

async function looked(): Promise<Vitals> {
  await collectGarbage();
  const { rss, heapUsed, external, arrayBuffers } = process.memoryUsage();
  return {
    rssBytes: rss,
    heapUsedBytes: heapUsed,
    externalBytes: external,
    arrayBuffersBytes: arrayBuffers,
    fds: entriesOf('/proc/self/fd'),
    threads: entriesOf('/proc/self/task'),
  };
}

function entriesOf(dir: string): number | undefined {
  try {
    return readdirSync(dir).length;
  } catch {
    return undefined;
  }
}

/** Cores that the process, its threads included, keeps busy while it has no requests. */
export async function idleCores(ms: number): Promise<number> {
  const begunMs = performance.now();
  const before = process.cpuUsage();
  await new Promise((resolve) => setTimeout(resolve, ms));
  const { user, system } = process.cpuUsage(before);
  return (user + system) / 1000 / (performance.now() - begunMs);
}
