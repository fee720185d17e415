/** What kernels do to whole slots of a pool, and how each end of it is told. */

import { loaded, type SlotLedger } from '../../runtime/transfer/slotLedger.ts';
import type { SealItem, SealResult, StoreResult } from '../../runtime/transfer/tierStore.ts';
import type { KernelItem, KernelTask } from './kernelCalls.ts';
import type { MismatchResult, PatternItem } from './types.ts';

export interface StoreTasks {
  readonly seal: KernelTask<SealItem, SealResult>;
  readonly fill: KernelTask<PatternItem, StoreResult>;
  readonly check: KernelTask<PatternItem, MismatchResult>;
}

export function storeTasks(ledger: SlotLedger): StoreTasks {
  const renew = (item: KernelItem): StoreResult | undefined => {
    const refusal = ledger.refuseWrite(item);
    if (refusal !== undefined) return refusal;
    ledger.take(item);
    ledger.fill(item);
    return undefined;
  };
  return {
    seal: {
      kernel: 'digest',
      admit: renew,
      refuse: (end) => ({ ...end, digest: { lo: 0, hi: 0 } }),
      end: (_, lo, hi) => ({ ...loaded, digest: { lo, hi } }),
    },
    fill: { kernel: 'fill', admit: renew, refuse: (end) => end, end: () => loaded },
    check: {
      kernel: 'check',
      admit: (item) => ledger.refuseRead(item),
      refuse: (end) => ({ ...end, mismatchedWords: 0 }),
      end: (_, count) => ({ ...loaded, mismatchedWords: count }),
    },
  };
}
