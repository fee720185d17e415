/**
 * `npm run campaign -- soak tenants --minutes 10 --seed 1`: tenants at every door, calls in any order (campaign.ts). `--without-scrub`
 * is the control: it must find words of others.
 */

import { parseArgs } from 'node:util';
import { watchEventLoop } from '../losses/watchdog.ts';
import { failuresOf, lastLine, soakTenants } from './campaign.ts';

export async function main(args: string[]): Promise<number> {
  const { values } = parseArgs({
    args,
    options: {
      minutes: { type: 'string', default: '10' },
      seed: { type: 'string', default: '1' },
      'without-scrub': { type: 'boolean', default: false },
    },
  });
  const minutes = Number(values.minutes);
  const seed = Number(values.seed);
  if (!(minutes > 0) || !Number.isSafeInteger(seed)) {
    throw new RangeError('--minutes must be above 0, --seed a whole number');
  }
  const withoutScrub = values['without-scrub'];
  console.log(
    `soak of tenants: ${minutes} minutes, seed ${seed}${withoutScrub ? ', without scrubbing' : ''}`,
  );
  const endWatch = watchEventLoop();
  const untilMs = performance.now() + minutes * 60_000;
  let toldMs = performance.now();
  const report = await soakTenants({
    seed,
    goesOn: (rounds) => rounds < 3 || performance.now() < untilMs,
    callsPerRound: 2000,
    withoutScrub,
    progress: (so) => {
      if (performance.now() - toldMs < 30_000) return;
      toldMs = performance.now();
      console.log(`  ${lastLine(so)}`);
    },
  });
  await endWatch();
  const ends = [...report.ends].sort(([a], [b]) => (a < b ? -1 : 1));
  console.log(ends.map(([end, times]) => `${end} ${times}`).join(', '));
  const failures = failuresOf(report);
  for (const failure of failures.slice(0, 20)) console.log(`FAILED ${failure}`);
  console.log(lastLine(report));
  return failures.length === 0 ? 0 : 1;
}
