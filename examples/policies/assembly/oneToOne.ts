/** 1:1: prefix affinity and load balance, half each. */

import { field } from './memory';

export { alloc } from './memory';

export let instances_row: i32 = 0;
export let instances_prefixAffinity: i32 = 0;
export let instances_load: i32 = 0;

export function score(request: usize, cluster: usize, instances: usize, count: i32, results: usize): void {
  for (let i = 0; i < count; i++) {
    const prefix = field(instances, i, instances_row, instances_prefixAffinity);
    const balance = 1 / (1 + field(instances, i, instances_row, instances_load));
    store<f64>(results + 8 * i, prefix * 0.5 + balance * 0.5);
  }
}
