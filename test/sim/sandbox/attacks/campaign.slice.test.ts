/** A slice of random programs in each language: `npm run campaign -- sandbox` tries more. */

import { expect, test } from 'vitest';
import { runCampaign } from './campaign.ts';

test('random programs of each language end in a decision or a typed error, within their budget', async () => {
  const report = await runCampaign({ seed: 1, first: 0, programs: 900 });
  expect(report.findings).toEqual([]);
  for (const language of ['starlark', 'wasm', 'javascript']) {
    for (const kind of ['compile', 'decided', 'step_limit', 'policy_runtime']) {
      expect(report.ends[`${language} ${kind}`], `${language} ${kind}`).toBeGreaterThan(0);
    }
  }
  const again = await runCampaign({ seed: 1, first: 0, programs: 90 });
  expect(again.digest).toBe((await runCampaign({ seed: 1, first: 0, programs: 90 })).digest);
});
