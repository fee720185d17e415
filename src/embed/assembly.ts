/**
 * The parts of a runtime, made in the order in which they need each other: the manager and its log, the
 * stores under it, what carries jobs between them, and what requests work with. In the end the blocks that
 * files hold since an earlier run are made known.
 */

import { tableMemory } from '../backends/arena/index.ts';
import { guarded } from '../backends/guarded.ts';
import { BlockMoves, ComputePace, KVManager, SharingGroups, tierName } from '../runtime/index.ts';
import { checkRuntimeConfig, type KVRuntimeConfig, managerConfigOf } from './config.ts';
import { inConfigNames } from './configNames.ts';
import { groupUnits } from './layerGroups.ts';
import { ManagerLoop } from './managerLoop.ts';
import { runtimeMigration } from './migration/runtimeMigration.ts';
import { type DecisionLogFile, openDecisionLog } from './outputs/decisionLog.ts';
import { CacheEvents } from './outputs/events.ts';
import { TenantChains } from './prompts/tenantChains.ts';
import { TenantOwners } from './prompts/tenantOwners.ts';
import { ComputingBlocks } from './requests/computing.ts';
import type { RequestContext } from './requests/context.ts';
import { AdmissionQueue } from './requests/room/admissionQueue.ts';
import { DeviceKeeper } from './stores/deviceKeeper.ts';
import { requireMachineHolds } from './stores/machine.ts';
import { type OpenStores, openStores } from './stores/openStores.ts';
import { adoptRecovered, warmNvme } from './stores/warm.ts';

export interface RuntimeParts {
  readonly config: KVRuntimeConfig;
  readonly stores: OpenStores;
  readonly context: RequestContext;
  readonly events: CacheEvents;
  /** Null where none is written. */
  readonly log: DecisionLogFile | null;
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
  const chains = new TenantChains({ secretKey, epoch, model, layout, extras }, units.groups, sharing);
  try {
    await requireMachineHolds(managerConfig, config.nvme?.dir);
  } catch (error) {
    throw inConfigNames(error);
  }
  const memory = await tableMemory();
  const log = config.log === undefined ? null : openDecisionLog(config.log, managerConfig);
  let manager: KVManager;
  let stores: OpenStores;
  try {
    manager = new KVManager({ ...managerConfig, tableMemory: memory }, log?.sink ?? null);
    const { adapter, wait, wrapStores } = config;
    stores = await openStores({ adapter, wait, wrapStores, notice, nvme: warmNvme(config) }, manager);
  } catch (error) {
    log?.close();
    throw inConfigNames(error);
  }
  const events = new CacheEvents(
    manager.tiers.map((tier) => tierName(tier)),
    (content) => manager.contentKey(content),
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
    pace: new ComputePace(),
    scrubs: config.scrub ?? true,
    hbm: () => stores.hbm,
    device: () => stores.device,
    deviceErrors: () => stores.deviceErrors,
    closing: closing.signal,
    nowUs,
    moves,
    migration,
  };
  if (stores.nvme !== undefined) adoptRecovered(manager, stores.nvme, context.nowUs());
  return { config, stores, context, events, log, closing };
}
