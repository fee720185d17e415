/**
 * What a slow disk costs requests that do not touch it: `begin` of prompts that lie in DDR, with and without
 * a disk tier whose every write is held up. Real bytes on a real device; run it with `node bench/kv/slowDisk.ts
 * [--delay-ms 500] [--requests 400] [--json FILE]`.
 */

import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import type { EngineStores } from '../../src/backends/tierRows.ts';
import { KVRuntime, kvLayout } from '../../src/index.ts';
import type { TierStore } from '../../src/runtime/index.ts';

const { values } = parseArgs({
  options: {
    'delay-ms': { type: 'string', default: '500' },
    requests: { type: 'string', default: '400' },
    json: { type: 'string' },
  },
});
const delayMs = Number(values['delay-ms']);
const requests = Number(values.requests);
const layout = kvLayout({ layers: 8, kvHeads: 4, headDim: 64, dtype: 'f16', blockTokens: 16 });
const tenant = 'bench';
const HOT = 24;
const PROMPT = 4 * layout.blockTokens + 1;

const tokensOf = (seed: number): Uint32Array =>
  Uint32Array.from({ length: PROMPT }, (_, i) => seed * 1000 + i);

/** The store with every write held up. */
function delayed(store: TierStore): TierStore {
  return new Proxy(store, {
    get(target, name) {
      const value: unknown = Reflect.get(target, name, target);
      if (typeof value !== 'function') return value;
      return async (...args: unknown[]) => {
        if (name === 'write') await new Promise((resolve) => setTimeout(resolve, delayMs));
        return value.apply(target, args);
      };
    },
  });
}

async function measure(withDisk: boolean): Promise<{ begin: number[]; seal: number[]; demotions: number }> {
  const dir = mkdtempSync(join(tmpdir(), 'tierkv-slow-'));
  const kv = await KVRuntime.open({
    layout,
    model: 'bench@1',
    secretKey: new Uint8Array(32).fill(1),
    hbmBytes: 64 * layout.blockBytes,
    ddrBytes: 256 * layout.blockBytes,
    ...(withDisk ? { nvme: { dir, bytes: 4096 * layout.blockBytes } } : {}),
    wrapStores: ({ nvme, ...stores }: EngineStores) => ({
      ...stores,
      ...(nvme === undefined ? {} : { nvme: delayed(nvme) }),
    }),
  });
  const begin: number[] = [];
  const seal: number[] = [];
  try {
    for (let i = 0; i < requests; i++) {
      for (const seed of [1 + (i % HOT), 1000 + i]) {
        const inDdr = kv.lookup(tokensOf(seed), { tenant }).byTier[1] === 4;
        const startMs = performance.now();
        const sequence = await kv.begin(tokensOf(seed), { tenant });
        if (inDdr) begin.push(performance.now() - startMs);
        const sealMs = performance.now();
        await kv.seal(sequence);
        if (sequence.cachedTokens === 0) seal.push(performance.now() - sealMs);
        kv.release(sequence);
      }
    }
    return { begin, seal, demotions: kv.manager.inspect.counters.demotions[1] };
  } finally {
    await kv.close();
    rmSync(dir, { recursive: true });
  }
}

function quantiles(samples: readonly number[]): { p50: number; p90: number; p99: number } {
  const sorted = samples.toSorted((a, b) => a - b);
  const at = (share: number): number =>
    sorted[Math.min(sorted.length - 1, Math.floor(share * sorted.length))];
  return { p50: at(0.5), p90: at(0.9), p99: at(0.99) };
}

const report: Record<string, unknown> = { delayMs, requests };
for (const [name, withDisk] of [
  ['without a disk', false],
  [`disk writes held up by ${delayMs} ms`, true],
] as const) {
  const { begin, seal, demotions } = await measure(withDisk);
  const ms = (samples: readonly number[]): string =>
    Object.entries(quantiles(samples))
      .map(([q, value]) => `${q} ${value.toFixed(1)}`)
      .join('  ');
  console.log(`${name}`);
  console.log(`  begin, four blocks in DDR (${begin.length}):  ${ms(begin)} ms`);
  console.log(`  seal of what was computed (${seal.length}):    ${ms(seal)} ms`);
  console.log(`  blocks written to the disk: ${demotions ?? 0}`);
  report[name] = { begin: quantiles(begin), seal: quantiles(seal), demotions: demotions ?? 0 };
}
if (values.json !== undefined) writeFileSync(values.json, `${JSON.stringify(report, null, 2)}\n`);
