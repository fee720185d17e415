/**
 * Keys a second: how fast a prompt becomes block keys, on one thread. The anchor in the same run is the time
 * of one BLAKE2s compression alone, repeated as often as each key needs it: `ofLimit` is that time divided by
 * the measured one.
 *
 *     node bench/kv/keys.ts [--json]
 */

import { performance } from 'node:perf_hooks';
import { Granularity, unitSpec } from '../../src/runtime/geometry/box.ts';
import { kvLayout } from '../../src/runtime/geometry/layout.ts';
import { compress, messageBytes, messageWords, stateWords } from '../../src/runtime/keys/blake2s.ts';
import {
  BlockKeys,
  ExternalKeys,
  KeyChain,
  type KeyElements,
  type KeySource,
} from '../../src/runtime/keys/keyChain.ts';

interface Row {
  readonly name: string;
  readonly keysPerS: number;
  readonly elementsPerS: number;
  readonly nsPerKey: number;
  /** One bare compression, measured right after the row. */
  readonly compressionNs: number;
  /** Time of the bare compressions of a key / time of the key; 0 without compressions. */
  readonly ofLimit: number;
  readonly heapBytesPerKey: number;
}

const repeats = 7;

/** Seconds of the fastest of several rounds, and heap growth a call over all of them. */
function measure(calls: number, run: () => void): { seconds: number; heapBytesPerCall: number } {
  for (let i = 0; i < 3; i++) run();
  let seconds = Number.POSITIVE_INFINITY;
  const heapBefore = process.memoryUsage().heapUsed;
  for (let i = 0; i < repeats; i++) {
    const start = performance.now();
    run();
    seconds = Math.min(seconds, (performance.now() - start) / 1000);
  }
  const grownBytes = Math.max(0, process.memoryUsage().heapUsed - heapBefore);
  return { seconds, heapBytesPerCall: grownBytes / (calls * repeats) };
}

function compressionSeconds(): number {
  const state = new Uint32Array(stateWords);
  const message = new Uint32Array(messageWords);
  const count = 200_000;
  const run = (): void => {
    for (let i = 0; i < count; i++) {
      message[0] = i;
      compress(state, message, messageBytes, true);
    }
  };
  return measure(count, run).seconds / count;
}

function row(name: string, source: KeySource, elements: KeyElements, compressions: number): Row {
  const keys = new BlockKeys(Math.ceil(elements.length / source.elementsPerKey));
  const count = source.hashBlocks(elements, 0, keys);
  const { seconds, heapBytesPerCall } = measure(count, () => {
    source.hashBlocks(elements, 0, keys);
  });
  const compressionNs = compressionSeconds() * 1e9;
  const nsPerKey = (seconds / count) * 1e9;
  return {
    name,
    keysPerS: count / seconds,
    elementsPerS: elements.length / seconds,
    nsPerKey,
    compressionNs,
    ofLimit: (compressions * compressionNs) / nsPerKey,
    heapBytesPerKey: heapBytesPerCall,
  };
}

function chain(blockTokens: number, granularity: Granularity = Granularity.BLOCK): KeyChain {
  const layout = kvLayout({ layers: 32, kvHeads: 8, headDim: 128, dtype: 'bf16', blockTokens });
  return new KeyChain({
    secretKey: Uint8Array.from({ length: 32 }, (_, i) => i),
    tenant: 'bench',
    epoch: 0,
    model: 'llama-3.1-8b',
    layout,
    unit: unitSpec(layout, { granularity }),
  });
}

const tokens = Int32Array.from({ length: 2 ** 21 }, (_, i) => Math.imul(i, 0x9e3779b1) >>> 15);
const ids = Float64Array.from({ length: 2 ** 20 }, (_, i) => i);

const rows: Row[] = [
  row('16 tokens a block, Int32Array', chain(16), tokens, 2),
  row('16 tokens a block, number[]', chain(16), [...tokens], 2),
  row('64 tokens a block, Int32Array', chain(64), tokens, 5),
  row('512 tokens a block, Int32Array', chain(512), tokens, 33),
  row('single tokens, Int32Array', chain(16, Granularity.TOKEN), tokens.subarray(0, 2 ** 19), 1),
  row('external ids, Float64Array', new ExternalKeys({ tenant: 'bench', epoch: 0 }), ids, 0),
];

if (process.argv.includes('--json')) {
  const report = { bench: 'keys', node: process.version, rows };
  console.log(JSON.stringify(report));
} else {
  console.table(
    Object.fromEntries(
      rows.map((each) => [
        each.name,
        {
          'M keys/s': (each.keysPerS / 1e6).toFixed(2),
          'M elements/s': (each.elementsPerS / 1e6).toFixed(1),
          'ns/key': each.nsPerKey.toFixed(0),
          'ns/compression': each.compressionNs.toFixed(0),
          'of compression': each.ofLimit === 0 ? '-' : `${(100 * each.ofLimit).toFixed(0)}%`,
          'heap bytes/key': each.heapBytesPerKey.toFixed(3),
        },
      ]),
    ),
  );
}
