/** How the control plane reads an instance. */

import type { BlockKeys } from '../../runtime/keys/index.ts';
import type { InstanceProbe, InstanceReport } from '../control/index.ts';
import type { Instance } from '../instance/index.ts';

export function probeOf(instance: Instance): InstanceProbe {
  const { engine } = instance;
  return {
    instance: instance.number,
    id: instance.id,
    role: instance.role,
    model: instance.model,
    configId: instance.configId,
    capacityBlocks: engine.tiers().map(({ capacityBlocks }) => capacityBlocks),
    changes: (): number => instance.changes,
    report: (into: InstanceReport): void => report(instance, into),
    cachedBlocks: (keys: BlockKeys, blocks: number): number => engine.cachedBlocks(keys, blocks),
  };
}

function report(instance: Instance, into: InstanceReport): void {
  const { engine, recent } = instance;
  const { hits, openedBlocks, preemptions, offloads, reloads } = engine.counters;
  const tiers = engine.tiers();
  into.queueDepth = engine.waitingCount;
  into.batchSize = engine.runningCount;
  into.maxBatch = instance.limits.maxSequences;
  into.preemptions = preemptions;
  into.usedBlocks = tiers.map(({ usedBlocks }) => usedBlocks);
  into.freeBlocks = tiers.map(({ freeBlocks }) => freeBlocks);
  into.hitBlocks = hits.reduce((sum, count) => sum + count, 0);
  into.lookupBlocks = into.hitBlocks + openedBlocks;
  into.offloadedBlocks = offloads;
  into.reloadedBlocks = reloads;
  into.recentTtftUs = recent.ttftUs;
  into.recentTpotUs = recent.tpotUs;
  into.adapters = [];
}
