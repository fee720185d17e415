/**
 * The campaign of the shared tier: blocks that one store writes are loaded by another one through the fault proxy,
 * while the way between them and the server changes at random, and every block that is called loaded is compared.
 *
 *     npm run campaign -- remote --blocks 1000000 --seed 1
 *
 * It ends with an error for one wrong byte, a call that did not end within its deadlines, or where the control found
 * nothing wrong. The control reads plain records as a tier without authenticators would, and compares their bytes: what
 * it calls wrong is what verification keeps out.
 */

import { parseArgs } from 'node:util';
import { connectRemote, RemoteFault } from '../../../src/backends/remote/remoteClient.ts';
import { RemoteStore } from '../../../src/backends/remote/remoteStore.ts';
import { parseRemoteUrl } from '../../../src/backends/remote/remoteUrl.ts';
import { HEADER_BYTES, RecordCodec } from '../../../src/backends/remote/sealedRecord.ts';
import { poolShape } from '../../../src/runtime/tables/slotPool.ts';
import { Outcome, outcomeNames } from '../../../src/runtime/tier/tier.ts';
import type { StoreItem } from '../../../src/runtime/tier/tierStore.ts';
import { emptyItem, mismatchedWords, patternItem, SeededRandom } from '../../../src/testing/index.ts';
import { FaultProxy, type ProxyWay, proxyWays } from './faultProxy.ts';
import { hasRedis, startRedis } from './redisServer.ts';

const { values: options } = parseArgs({
  options: { blocks: { type: 'string', default: '1000000' }, seed: { type: 'string', default: '1' } },
});
const [blocks, seed] = [Number(options.blocks), Number(options.seed)];
if (!hasRedis) throw new Error('no redis-server here. Install it: apt-get install redis-server');

/** Blocks of a batch, and their size: small, so that a million of them are compared in minutes. */
const BATCH = 64;
const BLOCK_BYTES = 2048;
/** Blocks that lie on the server at a time. */
const LIVE = 1024;
/** Milliseconds beyond the deadlines after which a call counts as hung. */
const HUNG_MS = 60_000;

const random = new SeededRandom(seed);
const shape = poolShape(LIVE, BLOCK_BYTES, [BLOCK_BYTES]);
const identity = { secretKey: new Uint8Array(32).fill(7), layout: 'campaign', generation: 0 };
await using server = await startRedis('--maxmemory', '4mb', '--maxmemory-policy', 'allkeys-lru');
await using proxy = await FaultProxy.open(server.port, random);
const limits = { deadlineMs: 400, lookupMs: 200, connectMs: 1000 };
const open = { url: proxy.url, ...identity, ...limits };
await using sealing = await RemoteStore.open(shape, open);
await using plain = await RemoteStore.open(shape, { ...open, encrypt: false });
await using reader = await RemoteStore.open(shape, open);
const bare = await connectRemote({ url: parseRemoteUrl(proxy.url), connectMs: 1000, callMs: 400 });
const codec = new RecordCodec(identity);

const ends: Record<string, number> = {};
const ways: Record<string, number> = {};
let [compared, wrong, unverified, unverifiedWrong, generation] = [0, 0, 0, 0, 0];
const started = performance.now();
let saidAt = started;
for (let batch = 0; compared < blocks; batch++) {
  if (batch % 8 === 0) {
    const isCalm = random.chance(0.8);
    const way: ProxyWay = isCalm ? 'pass' : proxyWays[random.below(proxyWays.length)];
    proxy.way = way;
    ways[way] = (ways[way] ?? 0) + 1;
    if (!isCalm && random.chance(0.1)) await server.restart();
    if (!isCalm && random.chance(0.2)) await server.ask('FLUSHALL');
  }
  generation++;
  const isPlain = batch % 2 === 1;
  const writer = isPlain ? plain : sealing;
  const first = random.below(LIVE - BATCH);
  const items = Array.from({ length: BATCH }, (_, i) => patternItem(shape, first + i, 0, generation));
  await unhung(writer.write(items), 'write');
  if (random.chance(0.02)) {
    // a stranger swaps two records behind our back
    const [one, two] = [codec.nameOf(items[0].key), codec.nameOf(items[1].key)];
    const other = await server.ask('GET', two);
    if (other.length > 64) await server.ask('SET', one, other);
  }
  for (const item of items) reader.believe(item, item.key);
  for (let turn = 0; turn < 4; turn++) {
    const targets = items.map((item) => emptyItem(item));
    const results = await unhung(reader.read(targets), 'read');
    results.forEach(({ outcome }, i) => {
      ends[outcomeNames[outcome]] = (ends[outcomeNames[outcome]] ?? 0) + 1;
      if (outcome !== Outcome.LOADED) return;
      compared++;
      if (mismatchedWords(targets[i]) > 0) wrong++;
    });
  }
  if (isPlain && batch % 4 === 1) {
    const found = await Promise.all(items.slice(0, 8).map((item) => unverifiedBytes(item)));
    for (const [i, bytes] of found.entries()) {
      if (bytes === undefined) continue;
      unverified++;
      if (mismatchedWords({ ...items[i], bytes }) > 0) unverifiedWrong++;
    }
  }
  if (performance.now() - saidAt > 30_000) {
    saidAt = performance.now();
    console.log(JSON.stringify({ compared, wrong, unverified, unverifiedWrong }));
  }
}
bare.close();
const seconds = (performance.now() - started) / 1000;
console.log(JSON.stringify({ seed, compared, wrong, ends, ways, unverified, unverifiedWrong, seconds }));
console.log(
  JSON.stringify({ reader: reader.describe(), sealing: sealing.describe(), plain: plain.describe() }),
);
if (wrong > 0) throw new Error(`${wrong} of ${compared} blocks were wrong (seed ${seed})`);
if (unverifiedWrong === 0 && blocks >= 100_000) {
  throw new Error(`the control found nothing wrong: the proxy did nothing (seed ${seed})`);
}

/** What a tier without authenticators would take for the block of a plain record. */
async function unverifiedBytes({ key }: StoreItem): Promise<Uint8Array | undefined> {
  try {
    const record = await bare.first(codec.nameOf(key), HEADER_BYTES + BLOCK_BYTES);
    if (record.length < HEADER_BYTES + BLOCK_BYTES) return undefined;
    return new Uint8Array(record.subarray(HEADER_BYTES, HEADER_BYTES + BLOCK_BYTES));
  } catch (error) {
    if (error instanceof RemoteFault) return undefined;
    throw error;
  }
}

async function unhung<Result>(call: Promise<Result>, what: string): Promise<Result> {
  let timer: NodeJS.Timeout | undefined;
  const hung = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error(`a ${what} hung (seed ${seed})`)), HUNG_MS);
  });
  try {
    return await Promise.race([call, hung]);
  } finally {
    clearTimeout(timer);
  }
}
