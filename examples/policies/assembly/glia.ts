/** Glia's head-room allocator (arXiv 2510.27176): the most room in HBM after the request, if it fits at all. */

import { field } from './memory';

export { alloc } from './memory';

export let request_promptTokens: i32 = 0;
export let instances_row: i32 = 0;
export let instances_load: i32 = 0;
export let instances_freeBlocks: i32 = 0;
export let instances_capacityBlocks: i32 = 0;

const BLOCK_TOKENS: f64 = 16;

export function score(request: usize, cluster: usize, instances: usize, count: i32, results: usize): void {
  const tokens = load<f64>(request + request_promptTokens);
  const needed = (tokens * 1.6 + BLOCK_TOKENS - 1) / BLOCK_TOKENS;
  for (let i = 0; i < count; i++) {
    const capacity = field(instances, i, instances_row, instances_capacityBlocks);
    const total = max<f64>(1, capacity);
    const free = capacity > 0 ? field(instances, i, instances_row, instances_freeBlocks) : 0;
    const used = total - free + needed;
    const base = -used / total - 0.001 * field(instances, i, instances_row, instances_load);
    store<f64>(results + 8 * i, total - used >= total * 0.03 ? base : base - 10);
  }
}
