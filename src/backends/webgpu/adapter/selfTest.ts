/**
 * What an adapter must do before it is accepted: copy, compute and hand back bytes that are not zero. Some
 * devices validate every call and move nothing (Dawn's null backend, broken drivers); on them a cache would
 * serve zeros. The test is the pool's own path over a few slots, so what passes here is what runs later.
 */

import { digestWords } from '../../../runtime/digest.ts';
import { fillPattern } from '../../../runtime/pattern.ts';
import { poolShape } from '../../../runtime/pool/shape.ts';
import { Outcome } from '../../../runtime/transfer/outcome.ts';
import type { LiveDevice } from '../device/liveDevice.ts';
import { HbmStore } from '../hbmStore.ts';

const SLOT_BYTES = 4100;
const SLOTS = 3;
const SEED = 0x7e57;

/** What is wrong with the device; empty when it works. */
export async function deviceFault(live: LiveDevice): Promise<string> {
  const shape = poolShape(1, SLOTS * SLOT_BYTES, [SLOT_BYTES]);
  const store = await HbmStore.open(live, shape, {
    label: 'tierkv.selfTest',
    stagingBytes: 8192,
    stagingBuffers: 2,
    verifyWrites: 'kernel',
  }).catch((error: Error) => error);
  if (store instanceof Error) return store.message;
  try {
    return await poolFault(store);
  } finally {
    await store[Symbol.asyncDispose]();
  }
}

async function poolFault(store: HbmStore): Promise<string> {
  const words = new Uint32Array(SLOT_BYTES / 4);
  fillPattern(words, SEED, 0);
  const digest = digestWords(words);
  const uploaded = { slot: 0, sizeClass: 0, generation: 1, seedLo: SEED, seedHi: 0 };
  const generated = { ...uploaded, slot: 2 };

  const item = { ...uploaded, key: new Uint32Array(4), digest, bytes: new Uint8Array(words.buffer) };
  const [write] = await store.write([item]);
  if (write.outcome !== Outcome.LOADED) return `an upload does not arrive (${write.reason})`;

  const [fill] = await store.fillPattern([generated]);
  const [check] = await store.countMismatches([generated]);
  const [seal] = await store.seal([generated]);
  if (fill.outcome !== Outcome.LOADED || check.mismatchedWords !== 0) return 'its kernels do not compute';
  if (seal.digest.lo !== digest.lo || seal.digest.hi !== digest.hi) return 'its kernels compute wrong sums';

  const landed = new Uint32Array(words.length);
  const [read] = await store.read([{ ...item, ...generated, bytes: new Uint8Array(landed.buffer) }]);
  if (read.outcome !== Outcome.LOADED) return `a readback does not arrive (${read.reason})`;
  if (landed.some((word, index) => word !== words[index]))
    return 'a readback brings other bytes than lie there';
  return '';
}
