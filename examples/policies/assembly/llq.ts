/** LLQ: the fewest queued requests, by the last report of each instance. */

import { field } from './memory';

export { alloc } from './memory';

export let instances_row: i32 = 0;
export let instances_queueDepth: i32 = 0;

export function score(request: usize, cluster: usize, instances: usize, count: i32, results: usize): void {
  for (let i = 0; i < count; i++) {
    store<f64>(results + 8 * i, -field(instances, i, instances_row, instances_queueDepth));
  }
}
