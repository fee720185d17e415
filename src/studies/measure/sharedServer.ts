/**
 * Throughput of a Valkey or Redis for the shared tier: loads and writes of whole blocks with authenticators, as a runtime
 * makes them, and lookups. The result is what the simulator takes for its shared tier.
 */

import { randomBytes } from 'node:crypto';
import { connectRemote } from '../../backends/remote/remoteClient.ts';
import { RemoteStore } from '../../backends/remote/remoteStore.ts';
import { parseRemoteUrl } from '../../backends/remote/remoteUrl.ts';
import { formatBytes, renderTable } from '../../io/printing/text.ts';
import { digestBytes } from '../../runtime/digest.ts';
import { TierKVError } from '../../runtime/errors.ts';
import { poolShape } from '../../runtime/tables/slotPool.ts';
import { Outcome } from '../../runtime/tier/tier.ts';
import type { StoreItem, StoreResult } from '../../runtime/tier/tierStore.ts';
import { median } from './manager.ts';

const sharedServerSchema = 'tierkv.shared/1';

interface SharedServerFigures {
  readonly schema: typeof sharedServerSchema;
  readonly date: string;
  /** The address without its password. */
  readonly server: string;
  readonly capacity_bytes: number;
  readonly read_gb_per_s: number;
  readonly write_gb_per_s: number;
  readonly lookup_us: number;
  readonly delay_us: number;
}

interface SharedServerRow {
  readonly blockBytes: number;
  readonly readGbPerS: number;
  readonly writeGbPerS: number;
  /** Time to read one block alone. */
  readonly readUs: number;
  readonly writeUs: number;
}

interface MeasuredSharedServer {
  readonly figures: SharedServerFigures;
  readonly rows: readonly SharedServerRow[];
}

const KIB = 1024;
const BLOCK_SIZES = [64 * KIB, 256 * KIB, 1024 * KIB, 4096 * KIB];
/** Bytes of a batch, and its blocks at most: enough to keep the server busy. */
const BATCH_BYTES = 16 * 1024 * KIB;
const BATCH_BLOCKS_MAX = 64;
/** Milliseconds after which the server forgets what was written for the measurement. */
const EXPIRY_MS = 60_000;
const DEADLINE_MS = 20_000;
/** Blocks that a lookup asks for. */
const LOOKUP_BLOCKS = 32;

/**
 * @param isQuick fewer rounds
 * @throws TKV_CONFIG where the server does not let us in, TKV_IO where it cannot be reached or fails meanwhile
 */
export async function measureSharedServer(
  url: string,
  isQuick: boolean,
  progress: (done: number, all: number) => void = () => {},
): Promise<MeasuredSharedServer> {
  const rounds = isQuick ? 3 : 9;
  const parsed = parseRemoteUrl(url);
  const rows: SharedServerRow[] = [];
  let lookupUs = 0;
  for (const [i, blockBytes] of BLOCK_SIZES.entries()) {
    const count = Math.min(BATCH_BLOCKS_MAX, BATCH_BYTES / blockBytes);
    const shape = poolShape(count, blockBytes, [blockBytes]);
    const times = {
      read: [] as number[],
      write: [] as number[],
      one: [] as number[],
      oneWrite: [] as number[],
    };
    const lookups: number[] = [];
    for (let round = 0; round < rounds; round++) {
      progress(i * rounds + round, BLOCK_SIZES.length * rounds);
      // a key of its own for each round: what another round wrote is not there for this one
      await using store = await RemoteStore.open(shape, {
        ...{ url, secretKey: randomBytes(32), layout: 'calibrate', expiryMs: EXPIRY_MS },
        ...{ deadlineMs: DEADLINE_MS, lookupMs: DEADLINE_MS, writeBytesMax: 2 * BATCH_BYTES },
      });
      const items = Array.from({ length: count }, (_, slot) => itemOf(slot, blockBytes));
      const [first, ...rest] = items;
      times.oneWrite.push(await timed(store.write([first])));
      times.write.push(await timed(store.write(rest)));
      times.one.push(await timed(store.read([first])));
      times.read.push(await timed(store.read(rest)));
      const keys = new Uint32Array(4 * LOOKUP_BLOCKS);
      for (const [k, { key }] of items.slice(0, LOOKUP_BLOCKS).entries()) keys.set(key, 4 * k);
      const start = performance.now();
      await store.lookup([{ keys, from: 0, to: LOOKUP_BLOCKS, sizeClass: 0 }]);
      lookups.push(performance.now() - start);
    }
    const rate = (ms: number): number => ((count - 1) * blockBytes) / ms / 1e6;
    rows.push({
      blockBytes,
      readGbPerS: rate(median(times.read)),
      writeGbPerS: rate(median(times.write)),
      readUs: 1000 * median(times.one),
      writeUs: 1000 * median(times.oneWrite),
    });
    if (i === 0) lookupUs = 1000 * median(lookups);
  }
  progress(1, 1);
  const best = (of: 'readGbPerS' | 'writeGbPerS'): number => Math.max(...rows.map((row) => row[of]));
  const [smallest] = rows;
  const read = best('readGbPerS');
  const delayUs = Math.max(0, smallest.readUs - smallest.blockBytes / (read * 1e3));
  return {
    rows,
    figures: {
      schema: sharedServerSchema,
      date: new Date().toISOString(),
      server: parsed.shown,
      capacity_bytes: await capacityOf(url),
      read_gb_per_s: round(read, 3),
      write_gb_per_s: round(best('writeGbPerS'), 3),
      lookup_us: round(lookupUs, 0),
      delay_us: round(delayUs, 0),
    },
  };
}

/** The rows as a table, and what the server holds. */
export function renderSharedServer(figures: SharedServerFigures, rows: readonly SharedServerRow[]): string {
  const ms = (us: number): string => `${(us / 1000).toFixed(2)} ms`;
  const table = renderTable(
    ['block', 'read GB/s', 'write GB/s', 'one read', 'one write'].map((title) => ({ title })),
    rows.map(({ blockBytes, readGbPerS, writeGbPerS, readUs, writeUs }) => [
      formatBytes(blockBytes),
      readGbPerS.toFixed(2),
      writeGbPerS.toFixed(2),
      ms(readUs),
      ms(writeUs),
    ]),
  );
  const { server, capacity_bytes: bytes, lookup_us: us } = figures;
  return `${table}\n${server}: holds ${formatBytes(bytes)}, a lookup takes ${ms(us)}\n`;
}

async function capacityOf(url: string): Promise<number> {
  const client = await connectRemote({
    url: parseRemoteUrl(url),
    connectMs: DEADLINE_MS,
    callMs: DEADLINE_MS,
  });
  try {
    return await client.memoryBytes();
  } finally {
    client.close();
  }
}

function itemOf(slot: number, blockBytes: number): StoreItem {
  const bytes = randomBytes(blockBytes);
  const key = Uint32Array.of(slot, 1, 2, 3);
  return { slot, sizeClass: 0, generation: 1, key, digest: digestBytes(bytes), bytes };
}

/** @returns milliseconds. @throws TKV_IO unless all went well */
async function timed(work: Promise<readonly StoreResult[]>): Promise<number> {
  const start = performance.now();
  const ends = await work;
  const ms = performance.now() - start;
  const failed = ends.find(({ outcome }) => outcome !== Outcome.LOADED);
  if (failed === undefined) return ms;
  throw new TierKVError(
    'TKV_IO',
    `The server did not do what was measured: ${failed.reason}. See that it runs and has memory for 64 MiB of blocks, and try again.`,
    { field: 'server' },
  );
}

function round(value: number, digits: number): number {
  return Number(value.toFixed(digits));
}
