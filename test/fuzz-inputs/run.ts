/**
 * Fuzzes the inputs of the command line: `npm run campaign -- inputs --seconds 600 --seed 1`. Every finding is
 * printed with its number; `--only N` makes that input alone once more, `--keep DIR` keeps the inputs of
 * findings.
 */

import { parseArgs } from 'node:util';
import { fuzzInputs } from './campaign.ts';

const { values } = parseArgs({
  options: {
    seconds: { type: 'string', default: '60' },
    seed: { type: 'string', default: '1' },
    only: { type: 'string' },
    keep: { type: 'string' },
    'limit-seconds': { type: 'string', default: '20' },
  },
});
const [seconds, seed] = [Number(values.seconds), Number(values.seed)];
const only = values.only === undefined ? undefined : Number(values.only);
console.log(`inputs of the command line, seed ${seed}, ${seconds} s`);

const endMs = performance.now() + seconds * 1000;
let findings = 0;
const report = await fuzzInputs({
  seed,
  first: only ?? 0,
  limitS: Number(values['limit-seconds']),
  goOn: (done) => (only === undefined ? performance.now() < endMs : done === 0),
  onFinding: ({ input, kind, args, problem, kept }) => {
    findings++;
    console.log(
      `FOUND ${input} (${kind}): ${problem}\n  tierkv ${args.join(' ')}${kept === undefined ? '' : `\n  ${kept}`}`,
    );
  },
  ...(values.keep === undefined ? {} : { keepIn: values.keep }),
});
console.log(
  `${report.inputs} inputs, ${report.accepted} of them right, ${findings} findings, ` +
    `at most ${Math.round(report.largestMib)} MiB and ${report.slowestS.toFixed(1)} s, seed ${seed}`,
);
process.exitCode = findings > 0 ? 1 : 0;
