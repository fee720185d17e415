/**
 * The campaign of prefill and decode in two processes, at any length:
 *
 *     npm run campaign -- pair --conversations 500 --seed 1 [--kills 20] [--at-once 16] [--timed 20] [--shared] [--out FILE]
 *
 * It ends with an error for an answer that is not the one of a single server, where no hand-off or no kill happened, where a log of
 * the two processes does not lead to its decisions again, and where wrong blocks, sent on purpose, changed no answer.
 */

import { writeFileSync } from 'node:fs';
import { parseArgs } from 'node:util';
import { hasRedis, RedisServer } from '../redisServer.ts';
import { type PairReport, pairCampaign } from './campaign.ts';

const { values } = parseArgs({
  options: {
    conversations: { type: 'string', default: '500' },
    seed: { type: 'string', default: '1' },
    kills: { type: 'string', default: '20' },
    'at-once': { type: 'string', default: '16' },
    timed: { type: 'string', default: '20' },
    shared: { type: 'boolean', default: false },
    out: { type: 'string' },
  },
});
if (values.shared && !hasRedis)
  throw new Error('no redis-server here. Install it: apt-get install redis-server');
const redis = values.shared ? await RedisServer.start() : undefined;
const seed = Number(values.seed);
const report = await pairCampaign({
  seed,
  conversations: Number(values.conversations),
  kills: Number(values.kills),
  atOnce: Number(values['at-once']),
  timed: Number(values.timed),
  say: (line) => console.log(line),
  onBatch: (so) => {
    console.log(linesOf(so)[0]);
    if (values.out !== undefined) writeFileSync(values.out, `${linesOf(so).join('\n')}\n`);
  },
  ...(redis === undefined ? {} : { remoteUrl: redis.url }),
}).finally(() => redis?.kill());
console.log(linesOf(report).join('\n'));
const problems = [
  report.wrong > 0 ? `${report.wrong} answers are not what one server says` : '',
  report.received.taken === 0 ? 'no hand-off came to its end' : '',
  // two that fall on one moment are one
  report.kills === 0 && Number(values.kills) > 0 ? 'the process was never killed' : '',
  report.replayed < 2 ? 'a log of the two processes does not lead to its decisions again' : '',
  report.controlWrong === 0 ? 'wrong blocks changed no answer: the comparison compares nothing' : '',
].filter((problem) => problem !== '');
for (const problem of problems) console.error(problem);
process.exit(problems.length === 0 ? 0 : 1);

function linesOf({ firstToken, ...counts }: PairReport): string[] {
  const median = (times: readonly number[]): string =>
    [...times].sort((a, b) => a - b)[times.length >> 1]?.toFixed(0) ?? '-';
  return [
    `seed ${seed}: ${JSON.stringify(counts)}`,
    `time to first token, median of ${firstToken.single.length}: one server ${median(firstToken.single)} ms, ` +
      `the pair ${median(firstToken.pair)} ms`,
  ];
}
