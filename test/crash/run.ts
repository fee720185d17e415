/** The kill -9 campaign at any size: `npm run campaign -- crash --kills 500 --seed 1`. */

import { parseArgs } from 'node:util';
import { type CampaignReport, killCampaign } from './campaign.ts';

const { values } = parseArgs({
  options: {
    kills: { type: 'string', default: '500' },
    seed: { type: 'string', default: '1' },
    store: { type: 'string', default: '0' },
  },
});
const kills = Number(values.kills);
const seed = Number(values.seed);
console.log(`kill -9 campaign: ${kills} kills, seed ${seed}`);
let shown = 0;
const progress = ({ kills: done }: CampaignReport): void => {
  if (done - shown < 50) return;
  shown = done;
  console.log(`  ${done} kills, every recovery clean`);
};
const firstStore = Number(values.store);
const report = await killCampaign(kills, seed, progress, Number.POSITIVE_INFINITY, firstStore);
for (const [point, count] of [...report.byPoint].sort())
  console.log(`  ${String(count).padStart(5)}  ${point}`);
const rate = report.expected === 0 ? 0 : (100 * report.found) / report.expected;
console.log(
  `kills ${report.kills}, at distinct points ${report.distinct}, while opening ${report.whileOpening}, lives that survived ${report.survived}`,
);
console.log(
  `leftovers of crashes ${report.leftovers}, listed after a loss of power but refused when read ${report.stale}`,
);
console.log(
  `recovered ${report.found} of ${report.expected} records that had to be (${rate.toFixed(2)} %), wrong ${report.wrong}`,
);
