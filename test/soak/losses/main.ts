/**
 * `npm run campaign -- soak losses --minutes 30 --seed 1`: everything that can be done with sequences while
 * devices are lost (campaign.ts). `--without-rule` is the control: it must find wrong blocks.
 */

import { parseArgs } from 'node:util';
import { failuresOf, type LossSoakReport, lastLine, soakLosses } from './campaign.ts';
import { watchEventLoop } from './watchdog.ts';

export async function main(args: string[]): Promise<number> {
  const { values } = parseArgs({
    args,
    options: {
      minutes: { type: 'string', default: '30' },
      seed: { type: 'string', default: '1' },
      'without-rule': { type: 'boolean', default: false },
    },
  });
  const minutes = Number(values.minutes);
  const seed = Number(values.seed);
  if (!(minutes > 0) || !Number.isSafeInteger(seed)) {
    throw new RangeError('--minutes must be above 0, --seed a whole number');
  }
  const withoutTheRule = values['without-rule'];
  console.log(
    `soak under losses: ${minutes} minutes, seed ${seed}${withoutTheRule ? ', without the rule' : ''}`,
  );
  const endWatch = watchEventLoop();
  const untilMs = performance.now() + minutes * 60_000;
  let toldMs = performance.now();
  const report = await soakLosses({
    seed,
    goesOn: (rounds) => rounds === 0 || performance.now() < untilMs,
    requestsPerRound: 600,
    callsPerDevice: 120,
    withoutTheRule,
    progress: (so: LossSoakReport) => {
      if (performance.now() - toldMs < 30_000) return;
      toldMs = performance.now();
      console.log(`  round ${so.rounds}: ${lastLine(so)}`);
    },
  });
  await endWatch();
  const ends = [...report.served.ends].sort(([a], [b]) => (a < b ? -1 : 1));
  console.log(ends.map(([end, times]) => `${end} ${times}`).join(', '));
  const failures = failuresOf(report);
  for (const failure of failures.slice(0, 20)) console.log(`FAILED ${failure}`);
  console.log(lastLine(report));
  return failures.length === 0 ? 0 : 1;
}
