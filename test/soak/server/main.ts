/**
 * `npm run campaign -- soak server --minutes 10 --seed 1`: the server's soak, first for a fifth of the time
 * without a disk, as the measure of `begin`, then over the slow one.
 */

import { parseArgs } from 'node:util';
import { requireWritableTarget, writeJsonFile } from '../../../src/io/files/results.ts';
import { type ServerSoakReport, soakServer } from './campaign.ts';
import {
  diskLine,
  failuresOf,
  growthsOf,
  growthTable,
  lastLine,
  RATIO_MAX,
  ratiosOf,
  timesTable,
  workLines,
} from './report.ts';

const MIB = 1024 * 1024;
const WITHOUT_SHARE = 0.2;
const told = { seed: 'a whole number', minutes: 'above 0' };

export async function main(args: string[]): Promise<number> {
  const { values } = parseArgs({
    args,
    options: {
      minutes: { type: 'string', default: '10' },
      seed: { type: 'string', default: '1' },
      json: { type: 'string' },
    },
  });
  const minutes = Number(values.minutes);
  const seed = Number(values.seed);
  if (!(minutes > 0) || !Number.isSafeInteger(seed)) {
    throw new RangeError(`--minutes must be ${told.minutes}, --seed ${told.seed}`);
  }
  if (values.json !== undefined) requireWritableTarget(values.json);
  console.log(`soak of a server: ${minutes} minutes over a disk of 1 MiB/s, seed ${seed}`);
  console.log(`without a disk, for ${(minutes * WITHOUT_SHARE).toFixed(1)} minutes:`);
  const without = await soakFor(minutes * WITHOUT_SHARE, seed, 0);
  console.log(workLines(without));
  console.log('over the slow disk:');
  const over = await soakFor(minutes, seed, MIB);
  console.log(`on the ${over.adapter}\n${workLines(over)}`);
  console.log(growthTable(over.samples));
  console.log(timesTable(over.times, without.times));
  console.log(diskLine(over.times));
  const ratios = ratiosOf(over.times, without.times);
  console.log(
    `begin that hits DDR: p99 is ${ratios.atOnce.toFixed(2)} times that without a disk, ` +
      `${ratios.all.toFixed(2)} times with the wait for room (at most ${RATIO_MAX})`,
  );
  const failures = [...failuresOf(without), ...failuresOf(over)];
  for (const ratio of [ratios.atOnce, ratios.all]) {
    if (!(ratio <= RATIO_MAX))
      failures.push(`begin over the slow disk takes ${ratio.toFixed(2)} times as long`);
  }
  for (const failure of failures.slice(0, 20)) console.log(`FAILED ${failure}`);
  if (values.json !== undefined) {
    writeJsonFile(values.json, { minutes, seed, ratios, over, without, growths: growthsOf(over.samples) });
  }
  console.log(lastLine(over));
  return failures.length === 0 ? 0 : 1;
}

function soakFor(minutes: number, seed: number, diskBytesPerS: number): Promise<ServerSoakReport> {
  const untilMs = performance.now() + minutes * 60_000;
  let toldMs = performance.now();
  return soakServer({
    seed,
    goesOn: (rounds) => rounds === 0 || performance.now() < untilMs,
    requestsPerRound: 400,
    lossShare: 0.5,
    diskBytesPerS,
    progress: (report) => {
      if (performance.now() - toldMs < 30_000) return;
      toldMs = performance.now();
      const { devicesLost, rounds } = report;
      console.log(`  round ${rounds}, ${devicesLost} devices lost, ${lastLine(report)}`);
    },
  });
}
