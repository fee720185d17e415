/**
 * The soak at any length: `npm run campaign -- soak --equivalent-minutes 60 --seed 1`. Its last line is the
 * count. `npm run campaign -- soak server --minutes 10 --seed 1` soaks a whole server (server/main.ts),
 * `npm run campaign -- soak losses --minutes 30 --seed 1` loses devices meanwhile (losses/main.ts). It runs in a process of its own (ownProcess.ts).
 */

import { writeFileSync } from 'node:fs';
import { parseArgs } from 'node:util';
import { requireWritableTarget, writeJsonFile } from '../../src/io/files/results.ts';
import { renderSvg } from '../../src/io/printing/chart.ts';
import { startProgressBar } from '../../src/io/printing/progress.ts';
import { formatCount, formatSeconds } from '../../src/io/printing/text.ts';
import { soak } from './campaign.ts';
import { busyHour } from './hour.ts';
import { verdictOf } from './judging/verdict.ts';
import { inOwnProcess } from './ownProcess.ts';
import { growthTable, lastLine, plotOf, sampleTable, workLines } from './render.ts';

process.exitCode = (await inOwnProcess(import.meta.filename)) ?? (await soakAsAsked());

async function soakAsAsked(): Promise<number> {
  // an exit, unlike a signal's own end, lets the soak take its folder away
  process.once('SIGINT', () => process.exit(130));
  process.once('SIGTERM', () => process.exit(143));
  const [, , which, ...args] = process.argv;
  if (which === 'server') return (await import('./server/main.ts')).main(args);
  if (which === 'losses') return (await import('./losses/main.ts')).main(args);
  if (which === 'tenants') return (await import('./tenants/main.ts')).main(args);
  if (which === 'quotas') return (await import('./quotas/main.ts')).main(args);
  return main();
}

async function main(): Promise<number> {
  const { values } = parseArgs({
    options: {
      'equivalent-minutes': { type: 'string', default: '60' },
      seed: { type: 'string', default: '1' },
      json: { type: 'string' },
      svg: { type: 'string' },
    },
  });
  const minutes = Number(values['equivalent-minutes']);
  const seed = Number(values.seed);
  if (!(minutes > 0) || !Number.isSafeInteger(seed)) {
    throw new RangeError('--equivalent-minutes must be above 0, --seed a whole number');
  }
  for (const target of [values.json, values.svg]) if (target !== undefined) requireWritableTarget(target);

  const hour = await busyHour();
  console.log(
    `soak: ${minutes} minutes of the conversation trace, seed ${seed}. Its excerpt's ${hour.promptBlocks.length} requests in ` +
      `${hour.spanSeconds} s make ${formatCount(Math.round(hour.requestsPerHour))} requests and ` +
      `${formatCount(Math.round(hour.blocksPerHour))} blocks of prompts an hour`,
  );
  const startMs = performance.now();
  const bar = startProgressBar('requests');
  let told = 0;
  const report = await soak({
    hour,
    minutes,
    seed,
    roundsPerMinute: 2,
    roundsPerLife: 10,
    lossShare: 0.12,
    idleMs: 5000,
    progress: ({ tally, restarts }, share) => {
      bar.update({ share, done: tally.requests, note: `wrong blocks ${tally.wrongBlocks}` });
      if (process.stderr.isTTY || Math.floor(share * 10) <= told) return;
      told = Math.floor(share * 10);
      bar.say(
        `  ${told * 10} %: ${formatCount(tally.requests)} requests, ${restarts} restarts, wrong blocks ${tally.wrongBlocks}, ` +
          formatSeconds((performance.now() - startMs) / 1000),
      );
    },
  });
  bar[Symbol.dispose]();

  const verdict = verdictOf(report);
  console.log(workLines(report));
  console.log(sampleTable(report.samples));
  console.log(growthTable(verdict));
  for (const failure of verdict.failures.slice(0, 20)) console.log(`FAILED ${failure}`);
  if (values.json !== undefined) {
    const { totals } = report;
    const moved = Object.fromEntries(totals.moved);
    writeJsonFile(values.json, { minutes, seed, ...report, totals: { ...totals, moved }, verdict });
  }
  if (values.svg !== undefined) writeFileSync(values.svg, await renderSvg(plotOf(report, verdict)));
  console.log(`took ${formatSeconds((performance.now() - startMs) / 1000)}`);
  console.log(lastLine(report, verdict));
  return verdict.failures.length === 0 ? 0 : 1;
}
