/**
 * Tiers below GPU memory, from their sizes alone (options with the names of tiers) or from upstream's file of offloading.
 */

import { readText } from '../../io/files/inputs.ts';
import { formatBytes, formatCount } from '../../io/printing/text.ts';
import { parseBlocks } from '../../runtime/sizes.ts';
import { type TierName, TOP, tierNames } from '../../runtime/tier/tier.ts';
import { readYaml, type SpecNode } from '../description/fields.ts';
import { type Deployment, fault, get } from '../description/settings.ts';
import type { LoadTiming, LowerTier } from '../instance/engine.ts';
import {
  deviceClasses,
  hostTier,
  linksDown,
  linksOfClass,
  linksUp,
  pcie,
  type SizedTierName,
  secondaryTiers,
  sizedTierRows,
  usualDisk,
} from '../links/machineTiers.ts';
import type { LinkProfile } from '../links/modeledDriver.ts';
import type { SharedServerConfig } from '../links/sharedServer.ts';
import { shownPlain } from '../workload/traceLines.ts';

/** Most blocks of a tier. */
export const BLOCKS_MAX: number = 2 ** 24;

export interface Tiers {
  readonly lowerTiers: readonly LowerTier[];
  readonly loads: LoadTiming;
  /** The tier that instances share. */
  readonly shared?: SharedServerConfig;
}

/** Settings that are the size of a tier. */
type SizePath = 'engine.kvBlocks' | `tiers.${SizedTierName}`;

/**
 * The size of a tier in blocks; undefined where it was not given.
 * @param bytesPerBlock of an instance, which a size in bytes is divided by
 */
export function blocksOf(
  deployment: Deployment,
  path: SizePath,
  bytesPerBlock: number,
  min: number,
): number | undefined {
  const text = get(deployment, path);
  if (text === undefined) return undefined;
  const blocks = parseBlocks(text, bytesPerBlock);
  if (blocks >= min && blocks <= BLOCKS_MAX) return blocks;
  const each = `${formatCount(blocks)} blocks of ${formatBytes(bytesPerBlock)}`;
  throw fault(
    deployment,
    path,
    `is ${text}${String(blocks) === text.trim() ? '' : `, which is ${each}`}`,
    `Set it to an integer from ${min} to ${BLOCKS_MAX} blocks, or to as many bytes.`,
  );
}

/** Tiers that have only a size, over the links of a usual machine. */
export function sizedTiers(deployment: Deployment, bytesPerBlock: number): Tiers | undefined {
  const lowerTiers: LowerTier[] = [];
  const links: Record<string, LinkProfile> = {};
  let isAsked = false;
  for (const { tier, read, write } of sizedTierRows) {
    const blocks = blocksOf(deployment, `tiers.${tier}`, bytesPerBlock, 0);
    isAsked ||= blocks !== undefined;
    if (blocks !== undefined && blocks > 0) addTier(lowerTiers, links, { tier, blocks }, { read, write });
  }
  return isAsked ? { lowerTiers, loads: { kind: 'deferred', links, prefetch: true } } : undefined;
}

/** Adds a tier below the others: it takes blocks from the last tier, and loads go straight to the top. */
function addTier(
  lowerTiers: LowerTier[],
  links: Record<string, LinkProfile>,
  added: LowerTier,
  { read, write }: { readonly read: LinkProfile; readonly write: LinkProfile },
): void {
  const above: TierName = lowerTiers.at(-1)?.tier ?? tierNames[TOP];
  lowerTiers.push(added);
  Object.assign(links, linksDown([above], added.tier, write), linksUp(added.tier, read));
}

/** The tiers with the links of the devices that settings name, whatever said the tiers. */
export function withDevices(deployment: Deployment, tiers: Tiers): Tiers {
  const { lowerTiers, loads } = tiers;
  if (loads.kind !== 'deferred') return tiers;
  const links: Record<string, LinkProfile> = { ...loads.links };
  for (const { tier, read: usualRead, write: usualWrite } of sizedTierRows) {
    const at = lowerTiers.findIndex((lower) => lower.tier === tier);
    const name = get(deployment, `tiers.${tier}Class`);
    const gbps = get(deployment, `tiers.${tier}Gbps`);
    if (at < 0 || (name === undefined && gbps === undefined)) continue;
    const above = lowerTiers[at - 1]?.tier ?? tierNames[TOP];
    const ofClass = name === undefined ? { read: usualRead, write: usualWrite } : linksOfClass(name);
    const rate = gbps === undefined ? {} : { bandwidthBytesPerS: gbps * 1e9 };
    Object.assign(
      links,
      linksDown([above], tier, { ...ofClass.write, ...rate }),
      linksUp(tier, { ...ofClass.read, ...rate }),
    );
  }
  return { ...tiers, loads: { ...loads, links } };
}

// Upstream's file of offloading: host memory and disk tiers in YAML, under its keys. Disk tiers are
// bounded here, so a tier may say `capacity_bytes`, which upstream has not. A tier of size 0 is left out.

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

/** @param node the section `kv_offload` of a file */
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
    addTier(lowerTiers, links, { tier: hostTier, blocks: cpuBlocks }, { read: pcie, write: pcie });
  }
  const tiers = node.list('secondary_tiers');
  for (const [i, tier] of tiers.entries()) {
    if (i >= secondaryTiers.length) {
      throw node.error('secondary_tiers', `has ${tiers.length} tiers`, 'At most two lie below host memory');
    }
    const { read, write, blocks } = secondaryTier(tier, blockBytes);
    if (blocks === 0) continue;
    addTier(lowerTiers, links, { tier: secondaryTiers[i], blocks }, { read, write });
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
  const [read, write, base] = deviceClasses[isNamed ? node.choice('device_class', names) : usualDisk];
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
