/** `npm run campaign -- tabs --mutations 200 --kills 50 --seed 1`: files of an origin under damage and under tabs that die. */

import { parseArgs } from 'node:util';
import { openProfile } from './browser.ts';
import { filesCampaign } from './killedTabs.ts';
import { workerPages } from './workerPage.ts';

const { values } = parseArgs({
  options: {
    mutations: { type: 'string', default: '200' },
    kills: { type: 'string', default: '50' },
    seed: { type: 'string', default: '1' },
  },
});
const pages = await workerPages('storeWorker');
const profile = await openProfile();
try {
  const [mutations, kills, seed] = [values.mutations, values.kills, values.seed].map(Number);
  const found = await filesCampaign(pages, profile.context, { mutations, kills, seed });
  console.log(JSON.stringify({ mutations, kills, seed, ...found }, null, 2));
  const { damaged, killed, control } = found;
  const isRight = damaged.wrong === 0 && killed.wrong === 0 && killed.lost === 0;
  if (control.wrong === 0) console.log('the control found nothing wrong: the damage was too small');
  console.log(isRight ? '0 wrong, 0 lost' : `WRONG: seed ${seed}`);
  process.exitCode = isRight && control.wrong > 0 ? 0 : 1;
} finally {
  await profile.close();
  await pages[Symbol.asyncDispose]();
}
