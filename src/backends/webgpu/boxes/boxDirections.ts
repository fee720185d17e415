/**
 * The two ways in which boxes move, and what the ledger has to say to each.
 *
 * A read finds the bytes of its generation, or ends as any read would. A write changes part of what lies in the slot: for
 * the generation that lies there, the rest stays and a whole read goes on finding it; a newer generation takes the slot as
 * `write` and `seal` do, and whole reads find nothing until `seal` says that all of it is there.
 */

import { Outcome } from '../../../runtime/transfer/outcome.ts';
import type { SlotLedger } from '../../../runtime/transfer/slotLedger.ts';
import type { StoreResult } from '../../../runtime/transfer/tierStore.ts';
import type { ReadbackRing } from '../readbackRing.ts';
import type { BoxItem } from '../types.ts';
import type { UploadRing } from '../uploadRing.ts';
import type { BoxDirection } from './boxCalls.ts';

/** Slabs --> staging: the host's copies happen as a buffer lands. */
export function boxReads(ledger: SlotLedger, ring: ReadbackRing): BoxDirection {
  return {
    bufferBytes: ring.bufferBytes,
    admit: (item) => ledger.refuseRead(item),
    acquire: () => ring.acquire(),
    pack: () => {},
    encode: (encoder, batch, staging) => batch.encodeGather(encoder, staging),
    land: (staging, bytes, arrived) => ring.land(staging, bytes, arrived),
  };
}

/** Staging --> slabs: the host's copies happen as items are packed. */
export function boxWrites(ledger: SlotLedger, ring: UploadRing): BoxDirection {
  // The view of the buffer that was acquired last, which is the open one; dropped when it is sealed.
  let view: Uint8Array | undefined;
  return {
    bufferBytes: ring.bufferBytes,
    admit: (item) => refuseBoxWrite(ledger, item),
    acquire: () => ring.acquire(),
    pack: (staging, item, from, { stagingOffset, length }) => {
      view ??= ring.bytes(staging);
      const whole = length === item.bytes.byteLength;
      view.set(whole ? item.bytes : item.bytes.subarray(from, from + length), stagingOffset);
    },
    encode: (encoder, batch, staging) => {
      view = undefined;
      ring.seal(staging);
      batch.encodeScatter(encoder, staging);
    },
    land: async (staging, _, arrived) => {
      const done = await ring.recycle(staging);
      if (done) arrived();
      return done;
    },
  };
}

function refuseBoxWrite(ledger: SlotLedger, item: BoxItem): StoreResult | undefined {
  const refusal = ledger.refuseWrite(item);
  if (refusal !== undefined) return refusal;
  const absent = ledger.refuseRead(item);
  if (absent === undefined) return undefined;
  const otherSizeClass =
    absent.outcome === Outcome.CORRUPT && item.generation === ledger.generationOf(item.slot);
  if (otherSizeClass) return absent;
  ledger.take(item);
  return undefined;
}
