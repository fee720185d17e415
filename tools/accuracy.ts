/**
 * Makes docs/reference/accuracy.md: `npm run accuracy [-- --runs DIR]...`. With `--out FILE` the page goes there, as pages with
 * runs of one's own do. `--silicon FILE` predicts the served points of `silicon_sample.csv` anew, `--rows N` the first N of them.
 */

import { writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { latencyDataFile, readText } from '../src/sim/build/dataFiles.ts';
import { accuracyOf, accuracyPage, capacityRows, runsOf, stepRows } from './accuracyPage.ts';
import { loggedFigures, servedTokens } from './publicFigures.ts';
import { siliconRows, siliconText } from './silicon.ts';

const { values } = parseArgs({
  options: {
    runs: { type: 'string', multiple: true, default: [] },
    out: { type: 'string' },
    silicon: { type: 'string' },
    rows: { type: 'string', default: '10000' },
  },
});
const shipped = {
  maxSequences: 128,
  maxBatchedTokens: 2048,
  memoryUtilization: 0.9,
  blockTokens: 16,
  tp: 1,
  dp: 1,
};
const file = fileURLToPath(latencyDataFile('rtx-pro-6000-run.csv'));
const model = 'llama-3.1-8b-instruct';
const own = accuracyOf(
  'vLLM 0.19, 300 of ShareGPT at 10 a second',
  file,
  { ...shipped, gpu: 'RTX-PRO-6000', model },
  true,
);
const given = runsOf(values.runs);
// served points take hours, so their tables are kept beside this tool until they are made anew
const kept = new URL('servedPoints.md', import.meta.url);
if (values.silicon !== undefined) {
  const predicted = await siliconRows(values.silicon, Number(values.rows), 'kernels', ({ id, tpotMs }) => {
    process.stderr.write(`${id} ${tpotMs?.toFixed(1) ?? 'not predicted'}\n`);
  });
  writeFileSync(kept, siliconText(predicted, 'kernels'));
}
const page = accuracyPage({
  served: readText(fileURLToPath(kept)),
  rows: [...own, ...given.rows],
  steps: stepRows(readText(latencyDataFile('splitwise-steps.csv'))),
  skipped: given.skipped,
  capacity: [...capacityRows(readText(latencyDataFile('vllm-memory.csv'))), ...given.capacity],
  logged: loggedFigures(readText(latencyDataFile('vllm-logs.csv'))),
  tokens: servedTokens(readText(latencyDataFile('served-tokens.csv'))),
});
const out = values.out ?? fileURLToPath(new URL('../docs/reference/accuracy.md', import.meta.url));
writeFileSync(out, page);
process.stdout.write(page);
