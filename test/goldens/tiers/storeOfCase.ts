/** The store of upstream that a whole case's command line asks for. */

import { readFileSync } from 'node:fs';
import { parse } from 'yaml';
import type { EngineConfig } from '../../../src/sim/instance/engine.ts';
import type { UpstreamStore } from '../upstream/upstreamStore.ts';
import { ChainStore } from './chainStore.ts';
import { MirrorStore } from './mirrorStore.ts';

interface OffloadConfig {
  readonly kv_offload: {
    readonly cpu_bytes_to_use: number;
    readonly offload_prompt_only?: boolean;
    readonly secondary_tiers?: readonly {
      readonly n_read_threads: number;
      readonly n_write_threads: number;
      readonly read_bandwidth: number;
      readonly write_bandwidth: number;
      readonly base_latency: number;
    }[];
  };
}

/** @param args of the case, with paths as they lie here */
export function tieredStore(args: readonly string[], config: EngineConfig): UpstreamStore {
  const option = (name: string): string | undefined => args[args.indexOf(name) + 1 || args.length];
  const { topBlocks: hbmBlocks, blockTokens, blockBytes } = config;
  const file = option('--kv-offload-config');
  if (file === undefined) {
    return new MirrorStore(hbmBlocks, blockTokens, {
      cpuBlocks: Number(option('--kv-cpu-blocks')),
      bandwidth: Number(option('--kv-transfer-bandwidth') ?? 100),
      baseTicks: Number(option('--kv-transfer-base-latency') ?? 0),
    });
  }
  const { kv_offload: offload } = parse(readFileSync(file, 'utf8')) as OffloadConfig;
  return new ChainStore(hbmBlocks, blockTokens, {
    cpuBlocks: Math.floor(offload.cpu_bytes_to_use / blockBytes),
    blockBytes,
    promptOnly: offload.offload_prompt_only ?? true,
    tiers: (offload.secondary_tiers ?? []).map((tier) => ({
      NRead: tier.n_read_threads,
      NWrite: tier.n_write_threads,
      ReadBaseTicks: tier.base_latency,
      WriteBaseTicks: tier.base_latency,
      ReadBytesPerTick: tier.read_bandwidth,
      WriteBytesPerTick: tier.write_bandwidth,
      SaturationQueueDepth: 1,
      SingleTransferFraction: 1,
    })),
  });
}
