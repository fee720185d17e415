/**
 * The evolved rule: 1:1, but prefix affinity lets go of the instance with the best prefix the more requests
 * it has in flight above the least busy one; full caches cost, and idle instances gain a little.
 */

import { field } from './memory';

export { alloc } from './memory';

export let instances_row: i32 = 0;
export let instances_prefixAffinity: i32 = 0;
export let instances_load: i32 = 0;
export let instances_inFlight: i32 = 0;
export let instances_kvUtilization: i32 = 0;

export function score(request: usize, cluster: usize, instances: usize, count: i32, results: usize): void {
  let best: f64 = -1;
  let busy: f64 = 0;
  let least: f64 = Infinity;
  for (let i = 0; i < count; i++) {
    const prefix = field(instances, i, instances_row, instances_prefixAffinity);
    const inFlight = field(instances, i, instances_row, instances_inFlight);
    if (prefix > best) {
      best = prefix;
      busy = inFlight;
    }
    least = min<f64>(least, inFlight);
  }
  let weight: f64 = 0.5;
  if (best > 0.1 && busy > least) weight = 0.5 * (1 / (1 + 0.6 * (busy - least)));
  for (let i = 0; i < count; i++) {
    const prefix = field(instances, i, instances_row, instances_prefixAffinity);
    const balance = 1 / (1 + field(instances, i, instances_row, instances_load));
    const utilization = field(instances, i, instances_row, instances_kvUtilization);
    let sum = prefix * weight + balance * (1 - weight);
    if (utilization > 0.9) sum -= (0.5 * (utilization - 0.9)) / 0.1;
    sum += 0.01 / (1 + field(instances, i, instances_row, instances_inFlight));
    store<f64>(results + 8 * i, sum);
  }
}
