/**
 * The parts of a runtime, made in the order in which they need each other: the manager and its log, the
 * stores under it, what carries jobs between them, and what requests work with. In the end the blocks that
 * files hold since an earlier run are made known.
 */

import type { StoreIdentity } from '../backends/file/record.ts';
import { guarded } from '../backends/guarded.ts';
import { tableMemory } from '../backends/host/hostArena.ts';
import type { TierFacts } from '../backends/tierRow.ts';
import { type TierOptions, tierRows } from '../backends/tierRows.ts';
import { blake2s, ComputePace, KVManager, layoutFingerprint, tierName } from '../runtime/index.ts';
import { BlockBook, type BlockText, keyFromHex } from './blockBook.ts';
import { BlockNotes, noteFrom, readNotes } from './blockNotes.ts';
import { checkedRuntimeConfig, inConfigNames, type KVRuntimeConfig, managerConfigOf } from './config.ts';
import { AdmissionQueue, bytesOf, type RequestContext } from './context.ts';
import { DeviceKeeper } from './deviceKeeper.ts';
import { BlockMoves, runtimeMigration } from './kvMigrator.ts';
import { type GroupUnits, groupUnits } from './layerGroups.ts';
import { ManagerLoop, processAlarm } from './managerLoop.ts';
import { CacheEvents, type DecisionLogFile, openDecisionLog, RequestObservers } from './observability.ts';
import { releaseSequence } from './partialPrefill.ts';
import { ComputingBlocks } from './sequenceState.ts';
import { OpenParts, type OpenStores, openStores, requireMachineHolds, type StoreConfig } from './stores.ts';
import { SharingGroups, TenantChains, TenantOwners } from './tenancy.ts';

export interface RuntimeParts {
  readonly config: KVRuntimeConfig;
  readonly stores: OpenStores;
  readonly context: RequestContext;
  readonly events: CacheEvents;
  /** Null where none is written. */
  readonly log: DecisionLogFile | null;
  /** Fulfilled when the token ids of an earlier run's blocks are read. */
  readonly restored: Promise<void>;
  /** Raises the context's signal. */
  readonly closing: AbortController;
}

/**
 * @param make makes the runtime, which closes the parts from then on. Whatever fails before, what was opened is closed
 * @throws {TierKVError} naming the field, when a device, the memory or the directory is not to be had
 */
export async function assembleRuntime<Runtime>(
  given: KVRuntimeConfig,
  make: (parts: RuntimeParts) => Runtime,
): Promise<Runtime> {
  const config = checkedRuntimeConfig(given);
  const { layout, layerGroups, secretKey, epoch = 0, model, extras = {} } = config;
  const notice = guarded(config.notice);
  const units = groupUnits(layout, layerGroups);
  const managerConfig = managerConfigOf(config, units);
  const sharing = new SharingGroups(config.sharingGroups);
  let manager: KVManager;
  const isOnItsWay = (key: string): boolean => manager.inspect.digestOf(keyFromHex(key)) !== undefined;
  const book = config.tokenIds === true ? new BlockBook(isOnItsWay) : undefined;
  const chains = new TenantChains({ secretKey, epoch, model, layout, extras }, units.groups, sharing, book);
  try {
    await requireMachineHolds(managerConfig, config);
  } catch (error) {
    throw inConfigNames(error);
  }
  const pace = new ComputePace();
  const memory = await tableMemory();
  const notes = new BlockNotes(secretKey);
  const noteOf = book === undefined ? undefined : noteFrom(book, notes);
  await using opened = new OpenParts();
  const log = config.log === undefined ? null : openDecisionLog(config.log, managerConfig, notice);
  opened.defer(() => log?.close());
  let stores: OpenStores;
  try {
    manager = new KVManager({ ...managerConfig, tableMemory: memory }, log?.sink ?? null);
    const facts = factsOf(config, units, pace, noteOf);
    stores = opened.use(await openStores({ ...tierOptionsOf(config), facts, notice }, manager));
  } catch (error) {
    throw inConfigNames(error);
  }
  const events = new CacheEvents(
    manager.inspect.tiers.map((tier) => tierName(tier)),
    (content) => manager.inspect.contentKey(content),
    book,
  );
  const { engine } = stores;
  const nowUs = engine.nowUs.bind(engine);
  const moves = new BlockMoves(manager);
  const migration = runtimeMigration(config.migration, manager, moves, nowUs, processAlarm);
  opened.defer(() => migration?.stop());
  const loop = new ManagerLoop(manager, engine, {
    also: { ...events.listener, ...migration?.listener, ...moves.listener },
  });
  const keeper = new DeviceKeeper(manager, stores, loop, notice, config.scrub ?? true);
  opened.defer(() => keeper.close());
  const recovered = adoptRecovered(manager, stores, nowUs());
  const closing = new AbortController();
  opened.defer(() => closing.abort());
  const admission = new AdmissionQueue();
  loop.onRoom(() => admission.roomFreed());
  const context: RequestContext = {
    manager,
    loop,
    keeper,
    chains,
    units,
    blockTokens: layout.blockTokens,
    admission,
    sharing,
    owners: new TenantOwners(sharing),
    computing: new ComputingBlocks(),
    shared: stores.shared,
    stateBlocks: recovered === 0 ? new Set() : undefined,
    pace,
    stores,
    pool: () => stores.pool,
    device: () => stores.device,
    closing: closing.signal,
    nowUs,
    moves,
    migration,
    observers: new RequestObservers(),
    release: (sequence) => releaseSequence(context, sequence),
  };
  const durable = stores.durable;
  let restored = Promise.resolve();
  if (book !== undefined && durable !== undefined) {
    if (durable.notes.missing === undefined) {
      const told = (key: string, text: BlockText): void => events.restored(key, text);
      restored = readNotes(durable, notes, closing.signal, told, notice);
    } else {
      notice(
        `${durable.notes.missing}: blocks of this directory are not announced after a restart. Remove it to begin ` +
          'with one that does.',
      );
    }
  }
  const runtime = make({ config, stores, context, events, log, restored, closing });
  opened.move();
  return runtime;
}

// Warm restarts: what a file store must know of the runtime to go on with an earlier run's blocks, and how they come back.

/** Bytes of the secret key's fingerprint: enough to tell keys apart, of no use for guessing one. */
const FINGERPRINT_BYTES = 16;

/** Tokens of a step for which the time of computing is asked. */
const STEP_TOKENS = 512;

/** Options of the configuration that the rows of the tiers take. */
function tierOptionsOf(config: KVRuntimeConfig): Omit<StoreConfig, 'facts' | 'notice'> {
  const names = tierRows.flatMap(({ optionNames }) => optionNames);
  const options: TierOptions = Object.fromEntries(names.map((name) => [name, Reflect.get(config, name)]));
  return { ...options, wrapStores: config.wrapStores };
}

function factsOf(
  config: KVRuntimeConfig,
  units: GroupUnits,
  pace: ComputePace,
  noteOf: TierFacts['noteOf'],
): TierFacts {
  const tokensPerByte = config.layout.blockTokens / bytesOf(units, 1);
  return {
    identity: storeIdentity(config),
    secretKey: config.secretKey,
    noteOf,
    computeUs(bytes) {
      const estimate = pace.estimate(STEP_TOKENS);
      return estimate === undefined ? undefined : estimate.usPerToken * tokensPerByte * bytes;
    },
  };
}

/** The facts that give stored blocks their meaning. The secret key itself is not written down. */
export function storeIdentity({
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
    secretKey: hexOf(fingerprint),
    extras: JSON.stringify(sorted),
    epoch,
  };
}

export function hexOf(bytes: Uint8Array): string {
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, '0')).join('');
}

/**
 * Makes the blocks that the tiers hold since an earlier run findable again. @returns blocks that were taken
 */
export function adoptRecovered(
  manager: KVManager,
  { tiers }: Pick<OpenStores, 'tiers'>,
  nowUs: number,
): number {
  const { unitBytes } = manager.config;
  let taken = 0;
  for (const [position, tier] of manager.inspect.tiers.entries()) {
    const blocks = tiers.get(tierName(tier))?.durable?.records() ?? [];
    // A store can hold more than the tier may: the blocks used longest ago come last, and find no room.
    let room = manager.inspect.usage(position).capacityBytes;
    let first = blocks.length;
    while (first > 0 && room >= unitBytes[blocks[first - 1].sizeClass]) {
      room -= unitBytes[blocks[--first].sizeClass];
    }
    const ordered = [...blocks.slice(first), ...blocks.slice(0, first)];
    taken += ordered.filter((block) => manager.adopt(position, block, nowUs)).length;
  }
  return taken;
}
