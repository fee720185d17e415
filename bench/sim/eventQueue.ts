/**
 * Schedule-and-pop pairs per second of the event queue at a steady number of pending events (the hold model:
 * every event that leaves schedules one at a later, pseudo-random time). Prints a table, and JSON with
 * --json.
 */

import { EventQueue } from '../../src/sim/kernel/eventQueue.ts';
import { GoRandom } from '../../src/sim/random/goRand.ts';

interface Row {
  pending: number;
  pairs: number;
  seconds: number;
  pairsPerS: number;
}

function hold(pending: number, pairs: number): Row {
  const random = new GoRandom(42n);
  const gaps = Int32Array.from({ length: 65536 }, () => 1 + random.intn(2_000_000));
  const queue = new EventQueue([0, 1, 2, 3, 4, 5, 6], pending + 1);
  for (let i = 0; i < pending; i++) queue.schedule(gaps[i & 65535], i % 7, i);
  const started = performance.now();
  for (let i = 0; i < pairs; i++) {
    queue.pop();
    queue.schedule(queue.timeUs + gaps[i & 65535], queue.type, queue.a, queue.b);
  }
  const seconds = (performance.now() - started) / 1000;
  return { pending, pairs, seconds, pairsPerS: pairs / seconds };
}

const rows: Row[] = [];
for (const pending of [100, 10_000, 100_000, 1_000_000]) {
  hold(pending, 500_000);
  rows.push(hold(pending, 5_000_000));
}
if (process.argv.includes('--json')) {
  console.log(JSON.stringify({ bench: 'event-queue', rows }));
} else {
  console.log('pending     pairs/s');
  for (const row of rows) {
    console.log(
      `${String(row.pending).padStart(9)}  ${Math.round(row.pairsPerS).toLocaleString('en-US').padStart(12)}`,
    );
  }
}
