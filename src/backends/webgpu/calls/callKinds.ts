/**
 * What each call of the store asks of its items and slots, and the work that it begins for them. Everything
 * else about a call (locks, order, ends) is the same for all and stands in storeCalls.ts and workLine.ts.
 */

import type { Digest } from '../../../runtime/digest.ts';
import { Outcome } from '../../../runtime/transfer/outcome.ts';
import {
  corrupt,
  loaded,
  refused,
  type SlotLedger,
  type SlotPlace,
} from '../../../runtime/transfer/slotLedger.ts';
import type { SlotUse } from '../../../runtime/transfer/slotLocks.ts';
import type {
  CopyItem,
  SealItem,
  SealResult,
  StoreItem,
  StoreResult,
} from '../../../runtime/transfer/tierStore.ts';
import { hostDigest } from '../../digest/index.ts';
import { type BoxPlan, wholePlan } from '../boxes/boxPlan.ts';
import { bytesFault } from '../device/hostBytes.ts';
import type { KernelRuns } from '../kernels/kernelBatch.ts';
import type { Slabs } from '../pool/slabs.ts';
import type { CallKind, SlotNeed } from '../pool/storeCalls.ts';
import type { BoxItem, BoxPath, MismatchResult, PatternItem } from '../types.ts';
import type { PoolWork } from './poolWork.ts';

type End = (result: StoreResult) => void;
const NO_DIGEST: Digest = { lo: 0, hi: 0 };

export class CallKinds {
  readonly write: CallKind<StoreItem, StoreResult>;
  readonly read: CallKind<StoreItem, StoreResult>;
  readonly seal: CallKind<SealItem, SealResult>;
  readonly copy: CallKind<CopyItem, StoreResult>;
  readonly clear: CallKind<SealItem, StoreResult>;
  readonly fillPattern: CallKind<PatternItem, StoreResult>;
  readonly countMismatches: CallKind<PatternItem, MismatchResult>;
  readonly #slabs: Slabs;
  readonly #ledger: SlotLedger;
  readonly #work: PoolWork;
  /** By size class: the whole slot as a box. */
  readonly #whole: readonly BoxPlan[];

  constructor(slabs: Slabs, ledger: SlotLedger, work: PoolWork) {
    this.#slabs = slabs;
    this.#ledger = ledger;
    this.#work = work;
    this.#whole = slabs.shape.slotBytes.map(wholePlan);
    const misplaced = (item: SlotPlace): StoreResult | undefined => ledger.misplaced(item);
    const readable = (item: SlotPlace): StoreResult | undefined => ledger.refuseRead(item);
    const renew = (item: SlotPlace): StoreResult | undefined => this.#renew(item);
    const misfit = (item: StoreItem): StoreResult | undefined => this.#misfit(item);
    const same = (end: StoreResult): StoreResult => end;

    this.write = {
      misfit,
      slots: needing('write'),
      admit: (item) => {
        const refusal = ledger.refuseWrite(item);
        if (refusal === undefined) ledger.take(item);
        return refusal;
      },
      refusal: same,
      begin: (item, end) => this.#write(item, end),
    };
    this.read = {
      misfit,
      slots: needing('read'),
      admit: readable,
      refusal: same,
      begin: (item, end) => this.#read(item, this.#whole[item.sizeClass], 'copies', end),
    };
    this.seal = {
      misfit: misplaced,
      slots: needing('device'),
      admit: renew,
      refusal: (end) => ({ ...end, digest: NO_DIGEST }),
      begin: (item, end) => this.#digest(item, end),
    };
    this.clear = {
      misfit: misplaced,
      slots: needing('device'),
      admit: renew,
      refusal: same,
      begin: ({ slot, sizeClass }, end) =>
        work.deviceLine.push(work.commands.clear(slabs.bufferOf(slot, sizeClass), end)),
    };
    this.fillPattern = {
      misfit: misplaced,
      slots: needing('device'),
      admit: renew,
      refusal: same,
      begin: (item, end) => this.#run(work.fills, item, () => end(loaded), end),
    };
    this.countMismatches = {
      misfit: misplaced,
      slots: needing('read'),
      admit: readable,
      refusal: (end) => ({ ...end, mismatchedWords: 0 }),
      begin: (item, end) =>
        this.#run(
          work.checks,
          item,
          (mismatchedWords) => end({ ...loaded, mismatchedWords }),
          (refusal) => end({ ...refusal, mismatchedWords: 0 }),
        ),
    };
    this.copy = {
      misfit: (item) =>
        item.fromSlot === item.toSlot
          ? refused(`slot ${item.fromSlot} cannot be copied onto itself`)
          : (ledger.misplaced(sourceOf(item)) ?? ledger.misplaced(targetOf(item))),
      slots: ({ fromSlot, toSlot }) => [
        { slot: fromSlot, use: 'read' },
        { slot: toSlot, use: 'device' },
      ],
      admit: (item) => ledger.refuseRead(sourceOf(item)) ?? this.#renew(targetOf(item)),
      refusal: same,
      begin: ({ fromSlot, toSlot, sizeClass }, end) => {
        const from = slabs.bufferOf(fromSlot, sizeClass);
        work.deviceLine.push(work.commands.copy(from, slabs.bufferOf(toSlot, sizeClass), end));
      },
    };
  }

  readBoxes(items: number): CallKind<BoxItem, StoreResult> {
    return {
      misfit: (item) => this.#boxMisfit(item),
      slots: needing('read'),
      admit: (item) => this.#ledger.refuseRead(item),
      refusal: (end) => end,
      begin: (item, end) => this.#read(item, item.plan, this.#work.boxPath(item.plan, items), end),
    };
  }

  writeBoxes(items: number): CallKind<BoxItem, StoreResult> {
    return {
      misfit: (item) => this.#boxMisfit(item),
      slots: needing('write'),
      sharesSlots: true,
      admit: (item) => this.#admitBoxWrite(item),
      refusal: (end) => end,
      begin: (item, end) => {
        const { plan, bytes } = item;
        const location = this.#slabs.locate(item.slot, item.sizeClass);
        const path = this.#work.boxPath(plan, items);
        const { uploads, upLine } = this.#work;
        upLine.push(uploads.upload({ plan, location, path, bytes, end }));
      },
    };
  }

  /** Writes are verified by a digest of the slot that is submitted right behind the upload. */
  #write(item: StoreItem, end: End): void {
    const { uploads, upLine, verification } = this.#work;
    const arrived = (): void => {
      this.#ledger.fill(item);
      end(loaded);
    };
    const judge = ({ outcome, reason, digest: { lo, hi } }: SealResult): void => {
      if (outcome !== Outcome.LOADED) end({ outcome, reason });
      else if (lo === item.digest.lo && hi === item.digest.hi) arrived();
      else end(corrupt(`slot ${item.slot} received other bytes than its digest says`));
    };
    const verified = verification !== 'none';
    const work = uploads.upload({
      plan: this.#whole[item.sizeClass],
      location: this.#slabs.locate(item.slot, item.sizeClass),
      path: 'copies',
      bytes: item.bytes,
      sent: () => verified && this.#digest(item, judge),
      end: (result) => {
        if (result.outcome !== Outcome.LOADED) end(result);
        else if (!verified) arrived();
      },
    });
    upLine.push(work);
  }

  #read(item: StoreItem | BoxItem, plan: BoxPlan, path: BoxPath, end: End): void {
    const { bytes } = item;
    const { readbacks, downLine } = this.#work;
    const work = readbacks.readback({
      plan,
      path,
      location: this.#slabs.locate(item.slot, item.sizeClass),
      take: (landed, from) => {
        if (bytes.byteLength < from + landed.byteLength) return false;
        bytes.set(landed, from);
        return true;
      },
      end: (failure) => end(failure ?? loaded),
    });
    downLine.push(work);
  }

  /** The digest of what lies in the slot after all work submitted so far. */
  #digest(item: SealItem, end: (result: SealResult) => void): void {
    const { digests, digestReadbacks, deviceLine, sealing } = this.#work;
    const refuse = (refusal: StoreResult): void => end({ ...refusal, digest: NO_DIGEST });
    if (sealing === 'kernel') {
      const { slot, sizeClass, generation } = item;
      const unseeded = { slot, sizeClass, generation, seedLo: 0, seedHi: 0 };
      this.#run(digests, unseeded, (lo, hi) => end({ ...loaded, digest: { lo, hi } }), refuse);
      return;
    }
    let lo = 0;
    let hi = 0;
    const work = digestReadbacks.readback({
      plan: this.#whole[item.sizeClass],
      path: 'copies',
      location: this.#slabs.locate(item.slot, item.sizeClass),
      take: (landed, from) => {
        const part = hostDigest(landed, from / 4);
        lo = (lo + part.lo) >>> 0;
        hi = (hi + part.hi) >>> 0;
        return true;
      },
      end: (failure) => (failure === undefined ? end({ ...loaded, digest: { lo, hi } }) : refuse(failure)),
    });
    deviceLine.push(work);
  }

  #run(
    runs: KernelRuns,
    { slot, sizeClass, seedLo, seedHi }: PatternItem,
    end: (first: number, second: number) => void,
    refuse: End,
  ): void {
    const location = this.#slabs.locate(slot, sizeClass);
    const bytes = this.#slabs.shape.slotBytes[sizeClass];
    this.#work.deviceLine.push(runs.run({ location, bytes, seedLo, seedHi, end, refuse }));
  }

  /** The slot takes a generation whose bytes the device itself puts there, in the order of the calls. */
  #renew(item: SlotPlace): StoreResult | undefined {
    const refusal = this.#ledger.refuseWrite(item);
    if (refusal !== undefined) return refusal;
    this.#ledger.take(item);
    this.#ledger.fill(item);
    return undefined;
  }

  #misfit(item: StoreItem): StoreResult | undefined {
    const misplaced = this.#ledger.misplaced(item);
    if (misplaced !== undefined) return misplaced;
    const fault = bytesFault(item.bytes, this.#slabs.shape.slotBytes[item.sizeClass]);
    return fault === '' ? undefined : refused(fault);
  }

  #boxMisfit({ plan, bytes, ...item }: BoxItem): StoreResult | undefined {
    const misplaced = this.#ledger.misplaced(item);
    if (misplaced !== undefined) return misplaced;
    const slotBytes = this.#slabs.shape.slotBytes[item.sizeClass];
    if (plan.containerBytes > slotBytes) {
      return refused(`a slot of ${slotBytes} bytes holds no unit of ${plan.containerBytes}`);
    }
    const fault = bytesFault(bytes, plan.boxBytes, 'box');
    return fault === '' ? undefined : refused(fault);
  }

  /**
   * A box write keeps the rest of what lies in the slot, if that is of its generation: whole reads go on
   * finding it. A newer generation takes the slot, and whole reads find nothing until `seal` says that all of
   * it is there.
   */
  #admitBoxWrite(item: BoxItem): StoreResult | undefined {
    const refusal = this.#ledger.refuseWrite(item);
    if (refusal !== undefined) return refusal;
    const absent = this.#ledger.refuseRead(item);
    if (absent === undefined) return undefined;
    const otherSizeClass =
      absent.outcome === Outcome.CORRUPT && item.generation === this.#ledger.generationOf(item.slot);
    if (otherSizeClass) return absent;
    this.#ledger.take(item);
    return undefined;
  }
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
