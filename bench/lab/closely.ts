/**
 * The link bench, repeated until its ratios are known closely: medians over few rounds of a pipeline on
 * shared cores vary by 5 to 10 %. Prints after each repeat, for each row, the median ratio so far and the 95
 * % confidence interval of that median between two of the sorted values (Campbell and Gardner, "Calculating
 * confidence intervals for some non-parametric analyses", BMJ 296, 1988), which holds for any distribution.
 * Ends when all intervals are narrow, or after --repeats.
 *
 *     UV_THREADPOOL_SIZE=8 node bench/lab/closely.ts --kib 2048 [--mib 256] [--link ddrToHbm]
 */

import { parseArgs } from 'node:util';
import { benchLinks, fullSizes } from '../../src/studies/measure/links.ts';
import { median } from '../../src/studies/measure/manager.ts';

const { values: options } = parseArgs({
  options: {
    kib: { type: 'string', default: '2048' },
    mib: { type: 'string', default: '256' },
    link: { type: 'string' },
    width: { type: 'string', default: '0.1' },
    repeats: { type: 'string', default: '40' },
    dir: { type: 'string' },
    adapter: { type: 'string' },
  },
});
const NORMAL_95 = 1.96;
const runBytes = Number(options.mib) * 2 ** 20;
const sizes = { ...fullSizes, unitsOfKib: [Number(options.kib)], runBytes, rounds: 1 };
const ratios = new Map<string, number[]>();

/** The interval's ends; of few values it is all of them. */
function interval(values: readonly number[]): [number, number] {
  const sorted = values.toSorted((a, b) => a - b);
  const half = sorted.length / 2;
  const reach = NORMAL_95 * Math.sqrt(half / 2);
  const low = Math.max(0, Math.round(half - reach) - 1);
  const high = Math.min(sorted.length - 1, Math.round(half + reach));
  return [sorted[low], sorted[high]];
}

for (let repeat = 1; repeat <= Number(options.repeats); repeat++) {
  const { rows } = await benchLinks(sizes, options.dir, options.adapter, () => {});
  for (const { link, pattern, verified, ratio } of rows) {
    if (options.link !== undefined && link !== options.link) continue;
    const name = `${link}, ${pattern}${verified ? ', verified' : ''}`;
    ratios.set(name, [...(ratios.get(name) ?? []), ratio]);
  }
  let close = repeat >= 5;
  console.log(`\nafter ${repeat} repeats, of the limit`);
  for (const [name, values] of ratios) {
    const [low, high] = interval(values);
    const middle = median(values);
    close &&= high - low <= Number(options.width) * middle;
    const percent = [middle, low, high].map((ratio) => (ratio * 100).toFixed(0));
    console.log(`${name.padEnd(48)} ${percent[0].padStart(4)} %   (${percent[1]} to ${percent[2]} %)`);
  }
  if (close) break;
}
