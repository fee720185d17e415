/**
 * `npm run campaign -- loads --deployments 40 --seed 1`: mean TTFT of a random family of deployments under
 * `when-faster`, under `always`, and without tiers. The last line has the distribution of `when-faster` over the better
 * of the other two.
 */

import { parseArgs } from 'node:util';
import { draw, meanTtftMs } from './loadFamily.ts';

const { values } = parseArgs({
  options: { deployments: { type: 'string', default: '40' }, seed: { type: 'string', default: '1' } },
});
const count = Number(values.deployments);
const first = Number(values.seed) * 1000;
const ratios: number[] = [];
for (let i = 0; i < count; i++) {
  const drawn = draw(first + i);
  const [faster, always, without] = (['when-faster', 'always', 'without'] as const).map((load) =>
    meanTtftMs(drawn, load),
  );
  const ratio = faster / Math.min(always, without);
  ratios.push(ratio);
  const figures = [faster, always, without].map((ms) => ms.toFixed(0).padStart(7)).join('');
  console.log(`${String(first + i).padStart(6)} ${ratio.toFixed(3)} ${figures} ms  ${drawn.about}`);
}
ratios.sort((a, b) => a - b);
const at = (share: number): string => ratios[Math.min(count - 1, Math.floor(share * count))].toFixed(3);
const geometric = Math.exp(ratios.reduce((sum, ratio) => sum + Math.log(ratio), 0) / count);
console.log(
  `${count} deployments, when-faster over the better of always and no tiers: least ${at(0)}, half ${at(0.5)}, ` +
    `three quarters ${at(0.75)}, nine tenths ${at(0.9)}, most ${at(1)}, geometric mean ${geometric.toFixed(3)}`,
);
