/**
 * The temperature of one block over its life, as docs/guide/managing.md shows it: used three times a second for a
 * minute, then three times in ten seconds up to second 150, then no more.
 *
 *     node bench/kv/classifier/lifeOfABlock.ts
 */

import { BlockUse, useRates } from '../../../src/runtime/tables/contentTable.ts';
import { HotColdClassifier } from '../../../src/views/index.ts';

const use = new BlockUse(useRates());
const classifier = new HotColdClassifier();
const uses = [
  ...Array.from({ length: 180 }, (_, i) => i / 3),
  ...Array.from({ length: 27 }, (_, i) => 63 + (10 * i) / 3),
];
let next = 0;
for (let second = 0; second <= 220; second += 10) {
  for (; next < uses.length && uses[next] <= second; next++) use.used(Math.round(uses[next] * 1e6));
  const nowUs = second * 1e6;
  const frequency = use.frequencyAt(nowUs);
  const lifetimeS = classifier.predictLifetime({ use }, nowUs);
  const bar = '#'.repeat(Math.ceil(10 * frequency));
  const temperature = classifier.classify({ use }, nowUs);
  console.log(
    `${String(second).padStart(5)} s ${frequency.toFixed(2).padStart(6)}/s  ${temperature.padEnd(5)}` +
      `${lifetimeS.toFixed(0).padStart(4)} s  ${bar}`,
  );
}
