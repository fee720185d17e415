/**
 * What it costs to bring blocks up, in whole microseconds (ticks). Two link models: tokens per tick, as the
 * original notes have it, and bytes per second. Both are `base + ceil(size / bandwidth)` for the blocks of
 * one transfer together.
 */

export type LinkUnits =
  | { unit: 'tokensPerTick'; bandwidth: number; baseLatency: number; blockTokens: number }
  | { unit: 'bytesPerSecond'; bandwidth: number; baseLatency: number; blockBytes: number };

/** Microseconds that a transfer of `blocks` blocks takes; 0 for none. */
export type TransferCost = (blocks: number) => number;

export function transferCost(link: LinkUnits): TransferCost {
  const { bandwidth, baseLatency } = link;
  const perTick = link.unit === 'tokensPerTick' ? bandwidth : bandwidth / 1e6;
  const perBlock = link.unit === 'tokensPerTick' ? link.blockTokens : link.blockBytes;
  return (blocks) => (blocks === 0 ? 0 : baseLatency + Math.ceil((blocks * perBlock) / perTick));
}
