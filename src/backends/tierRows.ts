/**
 * The registration of tiers: one line in each list below. Everything that goes over tiers goes over `tierRows`, in the
 * order of `tierNames`.
 */

import * as is from '../runtime/kinds.ts';
import { checkInputs } from '../runtime/options.ts';
import { addTierName, type TierName, tierNames } from '../runtime/tier/tier.ts';
import type { HostTierStore, TierStore, TopTierStore } from '../runtime/tier/tierStore.ts';
import type { FileStore } from './file/fileStore.ts';
import { type NvmeOptions, nvmeTier } from './file/fileTier.ts';
import type { MemoryStore } from './host/memoryStore.ts';
import { type DdrOptions, ddrTier } from './host/memoryTier.ts';
import type { RemoteStore } from './remote/remoteStore.ts';
import { type RemoteOptions, remoteTier } from './remote/remoteTier.ts';
import type { TierRow } from './tierRow.ts';
import { type HbmOptions, hbmTier } from './webgpu/deviceTier.ts';
import type { DevicePool } from './webgpu/types.ts';

/** Options of a configuration for the tiers. */
export interface TierOptions extends HbmOptions, DdrOptions, NvmeOptions, RemoteOptions {}

/** The stores as they were opened, by the name of their tier; undefined for a tier that is off. */
export interface TierStores {
  /** @throws TKV_STATE in a runtime without a device */
  readonly hbm: DevicePool;
  readonly ddr: MemoryStore | undefined;
  readonly nvme: FileStore | undefined;
  readonly remote: RemoteStore | undefined;
}

/** Stores of the engine, as `wrapStores` gets them: a tier that is off is absent. */
export interface EngineStores {
  readonly hbm?: TopTierStore | undefined;
  readonly ddr?: (HostTierStore & TopTierStore) | undefined;
  readonly nvme?: TierStore | undefined;
  readonly remote?: TierStore | undefined;
}

const rows: TierRow<TierOptions>[] = [hbmTier, ddrTier, nvmeTier, remoteTier];

/** Every tier that can be opened, from fast to slow. */
export const tierRows: readonly TierRow<TierOptions>[] = rows;

/**
 * Adds a tier of an embedder's own, behind all others unless its name is known already. Call it before a runtime is
 * opened. Its options join `KVRuntimeConfig`, and its name `TierTitles`, by module augmentation of `tierkv`.
 * @returns takes it back, for tests
 */
export function registerTier<Options extends TierOptions>(row: TierRow<Options>): () => void {
  checkInputs({ row }, { row: is.fields({ check: is.func() }) });
  addTierName(row.name, row.title);
  const place = (name: TierName): number => tierNames.indexOf(name);
  const at = rows.findIndex(({ name }) => place(name) >= place(row.name));
  const replaced = at !== -1 && rows[at].name === row.name ? 1 : 0;
  const old = rows.splice(at === -1 ? rows.length : at, replaced, row as TierRow<TierOptions>);
  return () => void rows.splice(rows.indexOf(row as TierRow<TierOptions>), 1, ...old);
}
