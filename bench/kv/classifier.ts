/**
 * Whether the hot and cold classifier, with the notes' thresholds, says of blocks what hindsight says: as a
 * confusion matrix, beside what always saying the most frequent class would reach.
 *
 *     node bench/kv/classifier.ts [--traces DIR] [--horizon 60] [--every 15] [--cache 10000] [--json]
 *
 * The made load is always there; `--traces` adds the conversation trace.
 */

import { parseArgs } from 'node:util';
import { compareWithHindsight, type Hindsight } from './classifier/hindsight.ts';
import { syntheticUses, usesOf } from './classifier/loads.ts';
import { loadTrace } from './policies/traces.ts';

const { values } = parseArgs({
  options: {
    traces: { type: 'string' },
    horizon: { type: 'string', default: '60' },
    every: { type: 'string', default: '15' },
    cache: { type: 'string', default: '10000' },
    json: { type: 'boolean', default: false },
  },
});
const options = {
  horizonS: Number(values.horizon),
  everyS: Number(values.every),
  cacheBlocks: Number(values.cache),
};
for (const [name, value] of Object.entries(options)) {
  if (Number.isFinite(value) && value > 0) continue;
  console.error(`${name} is ${value}. Give a number above 0.`);
  process.exit(2);
}
const rows: { load: string; result: Hindsight }[] = [];
rows.push({ load: 'made, a third of each class', result: compareWithHindsight(syntheticUses(1), options) });
if (values.traces !== undefined) {
  const trace = loadTrace(values.traces, 'conversation');
  if (trace === undefined) console.error(`conversation: not in ${values.traces}, left out`);
  else rows.push({ load: 'conversation trace', result: compareWithHindsight(usesOf(trace), options) });
}
if (values.json) console.log(JSON.stringify({ bench: 'classifier', options, rows }));
else for (const { load, result } of rows) console.log(render(load, result));

function render(load: string, result: Hindsight): string {
  const percent = (share: number): string => `${(100 * share).toFixed(1)} %`;
  const names = ['hot', 'warm', 'cold'];
  const lines = result.confusion.map(
    (row, said) =>
      `  said ${names[said].padEnd(6)}${row.map((count) => String(count).padStart(10)).join('')}`,
  );
  return [
    `${load}: ${result.samples} samples, horizon ${options.horizonS} s, cache of ${options.cacheBlocks} blocks`,
    `  ${'in truth'.padEnd(11)}${names.map((name) => name.padStart(10)).join('')}`,
    ...lines,
    `  agreement ${percent(result.agreement)}, majority class ${percent(result.majority)}, ` +
      `mean over classes ${percent(result.balanced)}`,
    `  used again within the horizon: ${percent(result.usedAgain)}, majority ${percent(result.usedAgainMajority)}\n`,
  ].join('\n');
}
