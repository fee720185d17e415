/**
 * Makes docs/reference/accuracy.md: `npm run accuracy [-- --runs DIR]...`. With `--out FILE` the page goes there, as pages with
 * runs of one's own do.
 */

import { writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { latencyDataFile, readText } from '../src/sim/build/dataFiles.ts';
import { accuracyOf, accuracyPage, capacityRows, runsOf, stepRows } from './accuracyPage.ts';
import { loggedFigures, servedTokens } from './publicFigures.ts';

const { values } = parseArgs({
  options: { runs: { type: 'string', multiple: true, default: [] }, out: { type: 'string' } },
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
const page = accuracyPage({
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
