/**
 * The parts of a runtime, made in the order in which they need each other: the manager and its log, the
 * stores under it, what carries jobs between them, and what requests work with. In the end the blocks that
 * files hold since an earlier run are made known.
 */

import type { FileStore } from '../backends/file/fileStore.ts';
import type { StoreIdentity } from '../backends/file/record.ts';
import { guarded } from '../backends/guarded.ts';
import { tableMemory } from '../backends/host/hostArena.ts';
import type { RemoteStoreOptions } from '../backends/remote/remoteStore.ts';
import { blake2s, ComputePace, KVManager, layoutFingerprint, Tier, tierName } from '../runtime/index.ts';
import { BlockMoves, SharingGroups } from '../views/index.ts';
import { BlockBook, keyFromHex } from './blockBook.ts';
import { BlockNotes, noteFrom, readNotes } from './blockNotes.ts';
import { checkRuntimeConfig, inConfigNames, type KVRuntimeConfig, managerConfigOf } from './config.ts';
import { AdmissionQueue, bytesOf, type RequestContext } from './context.ts';
import { DeviceKeeper } from './deviceKeeper.ts';
import { type GroupUnits, groupUnits } from './layerGroups.ts';
import { ManagerLoop } from './managerLoop.ts';
import { runtimeMigration } from './migration.ts';
import { CacheEvents, type DecisionLogFile, openDecisionLog } from './observability.ts';
import { RequestObservers } from './requestObserver.ts';
import { ComputingBlocks } from './sequenceState.ts';
import { type OpenStores, openStores, requireMachineHolds, type StoreConfig } from './stores.ts';
import { TenantChains, TenantOwners } from './tenancy.ts';

export interface RuntimeParts {
  readonly config: KVRuntimeConfig;
  readonly stores: OpenStores;
  readonly context: RequestContext;
  readonly events: CacheEvents;
  /** Null where none is written. */
  readonly log: DecisionLogFile | null;
  /** Fulfilled when the token ids of an earlier run's blocks are read. */
  readonly restored: Promise<void>;
  /** What raises the context's signal. */
  readonly closing: AbortController;
}

/** @throws {TierKVError} naming the field, when a device, the memory or the directory is not to be had */
export async function assembleRuntime(config: KVRuntimeConfig): Promise<RuntimeParts> {
  checkRuntimeConfig(config);
  const { layout, layerGroups, secretKey, epoch = 0, model, extras = {} } = config;
  const notice = guarded(config.notice);
  const units = groupUnits(layout, layerGroups);
  const managerConfig = managerConfigOf(config, units);
  const sharing = new SharingGroups(config.sharingGroups);
  let manager: KVManager;
  const isOnItsWay = (key: string): boolean => manager.digestOf(keyFromHex(key)) !== undefined;
  const book = config.tokenIds === true ? new BlockBook(isOnItsWay) : undefined;
  const chains = new TenantChains({ secretKey, epoch, model, layout, extras }, units.groups, sharing, book);
  try {
    await requireMachineHolds(managerConfig, config.nvme?.dir);
  } catch (error) {
    throw inConfigNames(error);
  }
  const pace = new ComputePace();
  const memory = await tableMemory();
  const notes = new BlockNotes(secretKey);
  const noteOf = book === undefined ? undefined : noteFrom(book, notes);
  const log = config.log === undefined ? null : openDecisionLog(config.log, managerConfig);
  let stores: OpenStores;
  try {
    manager = new KVManager({ ...managerConfig, tableMemory: memory }, log?.sink ?? null);
    const { adapter, wait, wrapStores } = config;
    const remote = remoteOptions(config, units, () => pace);
    const nvme = warmNvme(config, noteOf);
    stores = await openStores({ adapter, wait, wrapStores, notice, nvme, remote }, manager);
  } catch (error) {
    log?.close();
    throw inConfigNames(error);
  }
  const events = new CacheEvents(
    manager.tiers.map((tier) => tierName(tier)),
    (content) => manager.contentKey(content),
    book,
  );
  const nowUs = (): number => stores.engine.nowUs();
  const moves = new BlockMoves(manager);
  const migration = runtimeMigration(config.migration, manager, moves, nowUs);
  const loop = new ManagerLoop(manager, stores.engine, {
    also: {
      ...events.listener,
      ...migration?.listener,
      moved: (position, key, outcome) => moves.moved(position, key, outcome),
    },
  });
  const closing = new AbortController();
  const admission = new AdmissionQueue();
  loop.onRoom(() => admission.roomFreed());
  const context: RequestContext = {
    manager,
    loop,
    keeper: new DeviceKeeper(manager, stores, loop, notice),
    chains,
    units,
    blockTokens: layout.blockTokens,
    admission,
    sharing,
    owners: new TenantOwners(sharing),
    computing: new ComputingBlocks(),
    remote: stores.remote,
    pace,
    scrubs: config.scrub ?? true,
    hbm: () => stores.hbm,
    device: () => stores.device,
    deviceErrors: () => stores.deviceErrors,
    closing: closing.signal,
    nowUs,
    moves,
    migration,
    observers: new RequestObservers(),
  };
  let restored = Promise.resolve();
  if (stores.nvme !== undefined) {
    adoptRecovered(manager, stores.nvme, context.nowUs());
    if (book !== undefined && stores.nvme.hasNotes) {
      restored = readNotes(
        stores.nvme,
        notes,
        closing.signal,
        (key, text) => events.restored(key, text),
        notice,
      );
    } else if (book !== undefined) {
      notice(
        `nvme.dir ${config.nvme?.dir} was made by an older tierkv, and its records carry no token ids: blocks of ` +
          'this directory are not announced after a restart. Remove it to begin with one that does.',
      );
    }
  }
  return { config, stores, context, events, log, restored, closing };
}

// Warm restarts: what a file store must know of the runtime to go on with an earlier run's blocks, how they
// come back, and how all that is cached gets into the files before a planned end.

/** Bytes of the secret key's fingerprint: enough to tell keys apart, of no use for guessing one. */
const FINGERPRINT_BYTES = 16;
/** Blocks that are sent down at a time: few enough that all of them find jobs. */
const SAVE_BLOCKS = 256;

/** Tokens of a step for which the time of computing is asked. */
const STEP_TOKENS = 512;

/** What the shared tier must know of the runtime: whose records it takes, and how long computing would take. */
function remoteOptions(
  { remote, secretKey, layout, epoch = 0 }: KVRuntimeConfig,
  units: GroupUnits,
  pace: () => ComputePace,
): RemoteStoreOptions | undefined {
  if (remote === undefined) return undefined;
  const { bytes: _bytes, writeBudget: _writeBudget, ...options } = remote;
  const tokensPerByte = layout.blockTokens / bytesOf(units, 1);
  return {
    ...options,
    secretKey,
    layout: layoutFingerprint(layout),
    generation: epoch,
    computeMs: (bytes) => {
      const estimate = pace().estimate(STEP_TOKENS);
      return estimate === undefined ? undefined : (estimate.usPerToken * tokensPerByte * bytes) / 1000;
    },
  };
}

export function warmNvme(
  config: KVRuntimeConfig,
  noteOf?: (key: Uint32Array) => Uint8Array | undefined,
): StoreConfig['nvme'] {
  const { nvme } = config;
  if (nvme === undefined) return undefined;
  const { dir, restart = 'warm', allocation = 'whole' } = nvme;
  const noted = noteOf === undefined ? {} : { noteOf };
  return { dir, options: { restart, allocation, identity: nvmeIdentity(config), ...noted } };
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
  const last = manager.tiers.indexOf(Tier.NVME);
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
