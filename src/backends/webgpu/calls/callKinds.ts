/**
 * What each call of the store asks of its items and their slots, and the work that it begins for them.
 * Everything else about a call (locks, ends) is the same for all and stands in storeCalls.ts.
 */

import { refused, type SlotLedger, type SlotPlace } from '../../../runtime/tier/slotLedger.ts';
import type { SlotUse } from '../../../runtime/tier/slotLocks.ts';
import type {
  CopyItem,
  SealItem,
  SealResult,
  StoreItem,
  StoreResult,
} from '../../../runtime/tier/tierStore.ts';
import { Outcome } from '../../../runtime/transfer/outcome.ts';
import { bytesFault } from '../device/hostBytes.ts';
import type { BoxItem, MismatchResult, PatternItem } from '../types.ts';
import type { PoolWork } from './poolWork.ts';
import type { CallKind, SlotNeed } from './storeCalls.ts';

export interface CallKinds {
  readonly write: CallKind<StoreItem, StoreResult>;
  readonly read: CallKind<StoreItem, StoreResult>;
  readonly seal: CallKind<SealItem, SealResult>;
  readonly clear: CallKind<SealItem, StoreResult>;
  readonly fillPattern: CallKind<PatternItem, StoreResult>;
  readonly countMismatches: CallKind<PatternItem, MismatchResult>;
  readonly copy: CallKind<CopyItem, StoreResult>;
  readonly readBoxes: CallKind<BoxItem, StoreResult>;
  readonly writeBoxes: CallKind<BoxItem, StoreResult>;
}

/** @param verifies whether what `write` brings is compared with the item's digest */
export function callKinds(ledger: SlotLedger, work: PoolWork, verifies: boolean): CallKinds {
  const { slotBytes } = ledger.shape;
  const same = (end: StoreResult): StoreResult => end;
  const misplaced = (item: SlotPlace): StoreResult | undefined => ledger.misplaced(item);
  const readable = (item: SlotPlace): StoreResult | undefined => ledger.refuseRead(item);
  const misfit = (item: StoreItem): StoreResult | undefined => {
    const wrongPlace = ledger.misplaced(item);
    if (wrongPlace !== undefined) return wrongPlace;
    const fault = bytesFault(item.bytes, slotBytes[item.sizeClass]);
    return fault === '' ? undefined : refused(fault);
  };
  /** The slot takes the generation. */
  const renew = (item: SlotPlace): StoreResult | undefined => {
    const refusal = ledger.refuseWrite(item);
    if (refusal === undefined) ledger.take(item);
    return refusal;
  };
  /** The slot takes a generation whose bytes the device puts there itself, in the order of the calls. */
  const renewFilled = (item: SlotPlace): StoreResult | undefined => {
    const refusal = renew(item);
    if (refusal === undefined) ledger.fill(item);
    return refusal;
  };
  const boxMisfit = (item: BoxItem): StoreResult | undefined => {
    const wrongPlace = ledger.misplaced(item);
    if (wrongPlace !== undefined) return wrongPlace;
    const { containerBytes, boxBytes } = item.plan;
    if (containerBytes > slotBytes[item.sizeClass]) {
      return refused(`a slot of ${slotBytes[item.sizeClass]} bytes holds no unit of ${containerBytes}`);
    }
    const fault = bytesFault(item.bytes, boxBytes, 'box');
    return fault === '' ? undefined : refused(fault);
  };
  /**
   * A box write keeps the rest of what lies in the slot, if that is of its generation: whole reads go on
   * finding it. A newer generation takes the slot, and whole reads find nothing until `seal` says that all of
   * it is there.
   */
  const admitBoxWrite = (item: BoxItem): StoreResult | undefined => {
    const refusal = ledger.refuseWrite(item);
    if (refusal !== undefined) return refusal;
    const absent = ledger.refuseRead(item);
    if (absent === undefined) return undefined;
    const sameGeneration = item.generation === ledger.generationOf(item.slot);
    if (absent.outcome === Outcome.CORRUPT && sameGeneration) return absent; // of another size class
    ledger.take(item);
    return undefined;
  };

  const filling = { misfit: misplaced, slots: needing('device'), admit: renewFilled, refusal: same };
  return {
    write: {
      misfit,
      slots: needing('write'),
      admit: renew,
      refusal: same,
      begin: (item, end) => {
        work.write(item, item.bytes, verifies ? item.digest : undefined, (result) => {
          if (result.outcome === Outcome.LOADED) ledger.fill(item);
          end(result);
        });
      },
    },
    read: {
      misfit,
      slots: needing('read'),
      admit: readable,
      refusal: same,
      begin: (item, end) => work.read(item, item.bytes, end),
    },
    seal: {
      ...filling,
      refusal: (end) => ({ ...end, digest: { lo: 0, hi: 0 } }),
      begin: (item, end) => work.seal(item, end),
    },
    clear: { ...filling, begin: (item, end) => work.clear(item, end) },
    fillPattern: { ...filling, begin: (item, end) => work.fill(item, end) },
    countMismatches: {
      misfit: misplaced,
      slots: needing('read'),
      admit: readable,
      refusal: (end) => ({ ...end, mismatchedWords: 0 }),
      begin: (item, end) => work.check(item, end),
    },
    copy: {
      misfit: (item) =>
        item.fromSlot === item.toSlot
          ? refused(`slot ${item.fromSlot} cannot be copied onto itself`)
          : (ledger.misplaced(sourceOf(item)) ?? ledger.misplaced(targetOf(item))),
      slots: ({ fromSlot, toSlot }) => [
        { slot: fromSlot, use: 'source' },
        { slot: toSlot, use: 'device' },
      ],
      admit: (item) => {
        const source = sourceOf(item);
        // An unsealed source may be newer than what the store knows of, but not older.
        const refusal = item.unsealed === true ? ledger.refuseWrite(source) : ledger.refuseRead(source);
        return refusal ?? renewFilled(targetOf(item));
      },
      refusal: same,
      begin: (item, end) => work.copy(sourceOf(item), targetOf(item), end),
    },
    readBoxes: {
      misfit: boxMisfit,
      slots: needing('read'),
      admit: readable,
      refusal: same,
      begin: (item, end, items) => work.readBox(item, item.plan, item.bytes, items, end),
    },
    writeBoxes: {
      misfit: boxMisfit,
      slots: needing('write'),
      sharesSlots: true,
      admit: admitBoxWrite,
      refusal: same,
      begin: (item, end, items) => work.writeBox(item, item.plan, item.bytes, items, end),
    },
  };
}

function needing(use: SlotUse): (item: SlotPlace) => readonly SlotNeed[] {
  return ({ slot }) => [{ slot, use }];
}

function sourceOf(item: CopyItem): SlotPlace {
  return { slot: item.fromSlot, sizeClass: item.sizeClass, generation: item.fromGeneration };
}

function targetOf(item: CopyItem): SlotPlace {
  return { slot: item.toSlot, sizeClass: item.sizeClass, generation: item.toGeneration };
}
