import type { PoolShape } from '../../runtime/pool/shape.ts';
import type { Tier } from '../../runtime/tier.ts';
import type { StoreItem, StoreResult, TierStore } from '../../runtime/transfer/tierStore.ts';
import type { FileStoreOptions } from './fileStoreOptions.ts';

export declare class FileStore implements TierStore {
  readonly tier: Tier;
  readonly capacityBytes: number;
  readonly verifies: TierStore['verifies'];
  /** @throws TierKVError with field `dir`: TKV_IO, TKV_LOCKED, TKV_MISMATCH, or TKV_CONFIG for an option. */
  static open(dir: string, shape: PoolShape, options?: FileStoreOptions): Promise<FileStore>;
  describe(): Record<string, string | number | boolean>;
  write(items: readonly StoreItem[]): Promise<readonly StoreResult[]>;
  read(items: readonly StoreItem[]): Promise<readonly StoreResult[]>;
  [Symbol.asyncDispose](): Promise<void>;
}
