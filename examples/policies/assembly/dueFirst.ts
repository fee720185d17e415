/**
 * The request whose first token is due first joins the batch first; one that asks for no time comes after all
 * that do. When blocks run out, the request gives way that loses the least: the one with the fewest tokens
 * computed.
 */

import { field } from './memory';

export { alloc } from './memory';

export let requests_row: i32 = 0;
export let requests_nowUs: i32 = 0;
export let requests_waitedUs: i32 = 0;
export let requests_ttftTargetUs: i32 = 0;
export let requests_computedTokens: i32 = 0;

export function make_batch(requests: usize, count: i32, instance: usize, results: usize): void {
  for (let i = 0; i < count; i++) {
    const nowUs = field(requests, i, requests_row, requests_nowUs);
    const waitedUs = field(requests, i, requests_row, requests_waitedUs);
    const ttftTargetUs = field(requests, i, requests_row, requests_ttftTargetUs);
    store<f64>(results + 8 * i, ttftTargetUs == 0 ? 1e300 : nowUs - waitedUs + ttftTargetUs);
  }
}

export function select_preemption_victim(requests: usize, count: i32, instance: usize, results: usize): void {
  for (let i = 0; i < count; i++) {
    store<f64>(results + 8 * i, -field(requests, i, requests_row, requests_computedTokens));
  }
}
