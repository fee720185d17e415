/**
 * Warm restarts: what a file store must know of the runtime to go on with an earlier run's blocks, how they
 * come back, and how all that is cached gets into the files before a planned end.
 */

import type { FileStore, StoreIdentity } from '../../backends/file/index.ts';
import { blake2s, type KVManager, layoutFingerprint, Tier } from '../../runtime/index.ts';
import type { KVRuntimeConfig } from '../config.ts';
import { inConfigNames } from '../configNames.ts';
import type { RequestContext } from '../requests/context.ts';
import type { StoreConfig } from './openStores.ts';

/** Bytes of the secret key's fingerprint: enough to tell keys apart, of no use for guessing one. */
const FINGERPRINT_BYTES = 16;
/** Blocks that are sent down at a time: few enough that all of them find jobs. */
const SAVE_BLOCKS = 256;

export function warmNvme(config: KVRuntimeConfig): StoreConfig['nvme'] {
  const { nvme } = config;
  if (nvme === undefined) return undefined;
  const { dir, restart = 'warm', allocation = 'whole' } = nvme;
  return { dir, options: { restart, allocation, identity: nvmeIdentity(config) } };
}

/** What gives the blocks in the files their meaning. The secret key itself is not written down. */
export function nvmeIdentity({
  model,
  layout,
  secretKey,
  extras = {},
  epoch = 0,
}: Pick<KVRuntimeConfig, 'model' | 'layout' | 'secretKey' | 'extras' | 'epoch'>): StoreIdentity {
  const fingerprint = blake2s(
    new TextEncoder().encode('tierkv secret key fingerprint'),
    FINGERPRINT_BYTES,
    secretKey,
  );
  const sorted = Object.keys(extras)
    .sort()
    .map((name) => [name, extras[name]]);
  return {
    model,
    layout: layoutFingerprint(layout),
    secretKey: Buffer.from(fingerprint).toString('hex'),
    extras: JSON.stringify(sorted),
    epoch,
  };
}

/**
 * Makes the blocks that the files hold since an earlier run findable again. @returns blocks that were taken
 */
export function adoptRecovered(manager: KVManager, nvme: FileStore, nowUs: number): number {
  const position = manager.config.tiers.findIndex(({ tier }) => tier === Tier.NVME);
  const blocks = nvme.records();
  const { unitBytes } = manager.config;
  // The files can hold more than the tier may: those used longest ago come last, and find no room.
  let room = manager.usage(position).capacityBytes;
  let first = blocks.length;
  while (first > 0 && room >= unitBytes[blocks[first - 1].sizeClass]) {
    room -= unitBytes[blocks[--first].sizeClass];
  }
  const ordered = [...blocks.slice(first), ...blocks.slice(0, first)];
  return ordered.filter((block) => manager.adopt(position, block, nowUs)).length;
}

/** @returns blocks that the files hold durably then */
export async function saveToFiles(
  { manager, loop, nowUs }: Pick<RequestContext, 'manager' | 'loop' | 'nowUs'>,
  nvme: FileStore,
): Promise<number> {
  const last = manager.tiers.length - 1;
  for (let position = 0; position < last; position++) {
    while (manager.evict(position, SAVE_BLOCKS, nowUs()).evicted > 0) await loop.idle();
  }
  try {
    await nvme.sync();
    nvme.requireInPlace();
  } catch (error) {
    throw inConfigNames(error);
  }
  return manager.usage(last).slots.ready;
}
