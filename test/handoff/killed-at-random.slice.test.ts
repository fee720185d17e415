/** A slice of hand-offs with the prefill process killed: `npm run campaign -- pair` holds more conversations. */

import { expect, it } from 'vitest';
import { testSeed } from '../../src/testing/index.ts';
import { hasRedis, RedisServer } from '../redisServer.ts';
import { pairCampaign } from './campaign.ts';

const mib = { hbm: 16, ddr: 16 };

it('answers of a pair are those of one server, bit for bit, with the prefill process killed', async () => {
  const seed = testSeed(1);
  const report = await pairCampaign({ seed, conversations: 4, kills: 1, atOnce: 4, mib });
  const hint = `seed ${seed}: ${JSON.stringify(report)}`;
  expect(report.wrong, hint).toBe(0);
  expect(report.answers, hint).toBe(8);
  expect(report.kills, hint).toBe(1);
  expect(report.replayed, hint).toBe(2);
  expect(report.received.taken, hint).toBeGreaterThan(0);
  // wrong blocks that were sealed on purpose do change answers
  expect(report.controlWrong, hint).toBeGreaterThan(0);
}, 600_000);

if (!hasRedis) {
  console.log(
    'SKIPPED: a pair that hands off by a shared tier: no redis-server here. Install it: apt-get install redis-server',
  );
}
it.skipIf(!hasRedis)(
  'and so are they where blocks go by a tier that both share',
  async () => {
    const seed = testSeed(2);
    const redis = await RedisServer.start();
    try {
      const options = { seed, conversations: 3, kills: 1, atOnce: 3, mib, remoteUrl: redis.url };
      const report = await pairCampaign(options);
      const hint = `seed ${seed}: ${JSON.stringify(report)}`;
      expect(report.wrong, hint).toBe(0);
      expect(report.answers, hint).toBe(6);
      expect(report.kills, hint).toBe(1);
      expect(report.replayed, hint).toBe(2);
      expect(report.received.taken, hint).toBeGreaterThan(0);
      expect(report.controlWrong, hint).toBeGreaterThan(0);
    } finally {
      await redis.kill();
    }
  },
  600_000,
);
