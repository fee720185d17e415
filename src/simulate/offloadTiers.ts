/**
 * Tiers below GPU memory, from their sizes alone (`--ddr`, `--nvme`) or from upstream's `--kv-offload-config`.
 */

import { readText } from '../files/inputs.ts';
import { parseBlocks } from '../printing/text.ts';
import { readYaml, type SpecNode } from '../sim/description/fields.ts';
import type { LoadTiming, LowerTier } from '../sim/instance/engine.ts';
import type { LinkProfile } from '../sim/links/modeledDriver.ts';
import type { SharedServerConfig } from '../sim/links/sharedServer.ts';
import { shownPlain } from '../sim/workload/traceLines.ts';
import { blocksOption } from './options.ts';
import type { OptionValues } from './optionTable.ts';

/** Most blocks of a tier. */
export const BLOCKS_MAX: number = 2 ** 24;

export interface Tiers {
  readonly lowerTiers: readonly LowerTier[];
  readonly loads: LoadTiming;
  /** The tier that instances share. */
  readonly shared?: SharedServerConfig;
}

/** Host memory and disk by their sizes alone, over the links of a usual machine. */
export function sizedTiers(options: OptionValues, bytesPerBlock: number): Tiers | undefined {
  const ddr = blocksOption(options, 'ddr', bytesPerBlock, 0, BLOCKS_MAX);
  const nvme = blocksOption(options, 'nvme', bytesPerBlock, 0, BLOCKS_MAX);
  if (ddr === undefined && nvme === undefined) return undefined;
  const [readRate, writeRate, baseLatencyUs] = deviceClasses.nvme_gen4;
  const link = (rate: number): LinkProfile => ({ baseLatencyUs, bandwidthBytesPerS: rate * 1e6 });
  const [read, write] = [link(readRate), link(writeRate)];
  const hasDdr = (ddr ?? 0) > 0;
  const hasNvme = (nvme ?? 0) > 0;
  const lowerTiers: LowerTier[] = [
    ...(hasDdr ? [{ tier: 'ddr' as const, blocks: ddr ?? 0 }] : []),
    ...(hasNvme ? [{ tier: 'nvme' as const, blocks: nvme ?? 0 }] : []),
  ];
  const links = {
    ...(hasDdr ? { hbmToDdr: pcie, ddrToHbm: pcie } : {}),
    ...(hasNvme ? { [hasDdr ? 'ddrToNvme' : 'hbmToNvme']: write, nvmeToHbm: read, nvmeToDdr: read } : {}),
  };
  return { lowerTiers, loads: { kind: 'deferred', links, prefetch: true } };
}

// Upstream's `--kv-offload-config`: host memory and disk tiers in YAML, under its keys. Disk tiers are
// bounded here, so a tier may say `capacity_bytes`, which upstream has not. A tier of size 0 is left out.

/** Read and write bandwidth in bytes a microsecond and latency in microseconds, by upstream's names. */
const deviceClasses: Readonly<Record<string, readonly [read: number, write: number, base: number]>> = {
  nvme_gen4: [7000, 5000, 80],
  nvme_gen3: [3500, 3000, 100],
  sata_ssd: [550, 500, 150],
  cpu_dram: [20_000, 20_000, 1],
  s3: [1000, 1000, 30_000],
};

/** Between host memory and the GPU: PCIe 4.0 x16 at 80 % of its 31.5 GB/s. */
export const pcie: LinkProfile = { baseLatencyUs: 10, bandwidthBytesPerS: 25e9 };

/** Blocks of a disk tier that names no capacity. */
const DISK_BLOCKS = 2 ** 20;

export function offloadTiers(
  file: string,
  blockBytes: number,
): { lowerTiers: LowerTier[]; loads: LoadTiming } {
  const root = readYaml(readText(file), file);
  const node = root.section('kv_offload');
  if (node === undefined) throw root.error('kv_offload', 'is missing', 'Put the tiers under it');
  const tiers = offloadTiersOf(node, blockBytes);
  root.close();
  return tiers;
}

/** A number of bytes, plain or with a unit. */
function bytesIn(node: SpecNode, key: string): number {
  const text = node.has(key) ? node.plain(key) : undefined;
  if (typeof text !== 'string') return node.integer(key, { min: 0 }, 0);
  const bytes = parseBlocks(text, 1);
  if (Number.isSafeInteger(bytes)) return bytes;
  throw node.error(key, `is "${shownPlain(text)}", not a size`, 'Write bytes, or 64GiB');
}

/** @param node what a file has under `kv_offload` */
export function offloadTiersOf(
  node: SpecNode,
  blockBytes: number,
): { lowerTiers: LowerTier[]; loads: LoadTiming } {
  if (!node.has('cpu_bytes_to_use')) {
    throw node.error('cpu_bytes_to_use', 'is missing', 'Give bytes of host memory, 0 for none');
  }
  const cpuBytes = bytesIn(node, 'cpu_bytes_to_use');
  const cpuBlocks = Math.floor(cpuBytes / blockBytes);
  if (cpuBytes > 0 && cpuBlocks < 1) {
    const problem = `is ${cpuBytes}, less than a block of ${blockBytes} bytes`;
    throw node.error('cpu_bytes_to_use', problem, 'Give it room for a block or more, or 0 for no such tier');
  }
  readRecorded(node);
  const lowerTiers: LowerTier[] = [];
  const links: Record<string, LinkProfile> = {};
  if (cpuBlocks > 0) {
    lowerTiers.push({ tier: 'ddr', blocks: cpuBlocks });
    Object.assign(links, { hbmToDdr: pcie, ddrToHbm: pcie });
  }
  const tiers = node.list('secondary_tiers');
  for (const [i, tier] of tiers.entries()) {
    if (i > 1)
      throw node.error('secondary_tiers', `has ${tiers.length} tiers`, 'At most two lie below host memory');
    const name = i === 0 ? 'nvme' : 'remote';
    const { read, write, blocks } = secondaryTier(tier, blockBytes);
    if (blocks === 0) continue;
    const target = i === 0 ? 'Nvme' : 'Remote';
    const above = lowerTiers.at(-1)?.tier ?? 'hbm';
    lowerTiers.push({ tier: name, blocks });
    Object.assign(links, {
      [`${above}To${target}`]: write,
      [`${name}ToHbm`]: read,
      [`${name}ToDdr`]: read,
    });
  }
  node.close();
  return { lowerTiers, loads: { kind: 'deferred', links, prefetch: true } };
}

/** Keys that describe vLLM's connector and change nothing here. */
function readRecorded(node: SpecNode): void {
  node.choice('eviction_policy', ['lru'], 'lru');
  for (const key of ['block_size', 'blocks_per_chunk', 'tokens_per_hash']) node.integer(key, { min: 0 }, 0);
  for (const key of ['offload_prompt_only', 'self_describing_kv_events']) node.has(key);
}

function secondaryTier(
  node: SpecNode,
  blockBytes: number,
): { read: LinkProfile; write: LinkProfile; blocks: number } {
  node.choice('type', ['fs'], 'fs');
  for (const key of ['root_dir', 'locality', 'enable_kv_events', 'direct_io']) node.has(key);
  node.integer('n_read_threads', { min: 1 }, 16);
  node.integer('n_write_threads', { min: 1 }, 16);
  const names = Object.keys(deviceClasses);
  const isNamed = node.has('device_class');
  const [read, write, base] = deviceClasses[isNamed ? node.choice('device_class', names) : 'nvme_gen4'];
  const figure = (key: string, known: number): number => {
    const value = node.optionalNumber(key, { above: 0, max: 1e9 });
    if (value === undefined && !isNamed) throw node.error(key, 'is missing', 'Give it, or a device_class');
    return value ?? known;
  };
  const readBandwidth = figure('read_bandwidth', read);
  const writeBandwidth = figure('write_bandwidth', write);
  const baseLatencyUs = node.optionalNumber('base_latency', { min: 0, max: 1e9 }) ?? base;
  const isSized = node.has('capacity_bytes');
  const capacity = bytesIn(node, 'capacity_bytes');
  node.close();
  return {
    read: { baseLatencyUs, bandwidthBytesPerS: readBandwidth * 1e6 },
    write: { baseLatencyUs, bandwidthBytesPerS: writeBandwidth * 1e6 },
    blocks: !isSized ? DISK_BLOCKS : capacity === 0 ? 0 : Math.max(1, Math.floor(capacity / blockBytes)),
  };
}
