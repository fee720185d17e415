/**
 * Draws the picture of the README, `docs/pictures/tiers.svg`, from a run: `npm start` serves the requests, and its report says
 * what each tier found and what GPU memory alone would have found.
 *
 *     node tools/picture.ts [report.json]     # without a report, the run is made: minutes
 */

import { execFileSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { renderSvg } from '../src/io/printing/chart.ts';
import type { ReplayReport } from '../src/studies/replay/report.ts';

const root = resolve(import.meta.dirname, '..');
const folder = mkdtempSync(join(tmpdir(), 'tierkv-picture-'));
const [given] = process.argv.slice(2);
const file = given ?? join(folder, 'report.json');
if (given === undefined) {
  const trace = join(root, 'data/mooncake-conversation-excerpt.jsonl.gz');
  const args = [join(root, 'src/cli/main.ts'), 'replay', trace, '--json', file];
  execFileSync(process.execPath, args, { stdio: ['ignore', 'ignore', 'inherit'] });
}
const report = JSON.parse(readFileSync(file, 'utf8')) as ReplayReport;
rmSync(folder, { recursive: true });
const { hits, blockLookups, hbmAloneHits, requests } = report;
if (hbmAloneHits === undefined) throw new Error(`${file} is of a run without tiers below HBM`);

const share = (blocks: number): number => blocks / blockLookups;
const found = [
  { setup: 'GPU memory alone', tier: 'GPU memory', rank: 0, share: share(hbmAloneHits) },
  { setup: 'with host memory and disk', tier: 'GPU memory', rank: 0, share: share(hits.hbm) },
  { setup: 'with host memory and disk', tier: 'host memory', rank: 1, share: share(hits.ddr) },
  { setup: 'with host memory and disk', tier: 'disk', rank: 2, share: share(hits.nvme) },
];
const totals = ['GPU memory alone', 'with host memory and disk'].map((setup) => ({
  setup,
  share: found.filter((each) => each.setup === setup).reduce((sum, each) => sum + each.share, 0),
}));
const y = {
  field: 'setup',
  type: 'nominal',
  title: null,
  sort: null,
  axis: { labelFontSize: 13, labelLimit: 260 },
};
const svg = await renderSvg({
  $schema: 'https://vega.github.io/schema/vega-lite/v6.json',
  title: `Prompt blocks found, of ${requests.toLocaleString('en')} requests of real chat traffic`,
  background: 'white',
  width: 560,
  height: 110,
  layer: [
    {
      data: { values: found },
      mark: { type: 'bar' },
      encoding: {
        y,
        x: {
          field: 'share',
          type: 'quantitative',
          stack: 'zero',
          title: 'share of all blocks of prompts: not computed again',
          axis: { format: '.0%' },
          scale: { domain: [0, 0.35] },
        },
        // blue, orange and green that the colour-blind tell apart, and print as three greys
        color: {
          field: 'tier',
          type: 'nominal',
          title: 'found in',
          sort: { field: 'rank' },
          scale: { domain: ['GPU memory', 'host memory', 'disk'], range: ['#0b3c5d', '#328cc1', '#d9b310'] },
        },
        order: { field: 'rank' },
      },
    },
    {
      data: { values: totals },
      mark: { type: 'text', align: 'left', dx: 6, fontSize: 14, fontWeight: 'bold' },
      encoding: {
        y,
        x: { field: 'share', type: 'quantitative' },
        text: { field: 'share', type: 'quantitative', format: '.0%' },
      },
    },
  ],
});
const target = join(root, 'docs/pictures/tiers.svg');
mkdirSync(join(root, 'docs/pictures'), { recursive: true });
const about = `${Math.round(100 * totals[0].share)} % of prompt blocks are found in GPU memory alone, ${Math.round(100 * totals[1].share)} % with host memory and disk`;
writeFileSync(target, svg.replace(/^(<svg[^>]*>)/, `$1<title>${about}</title>`));
console.log(`wrote ${target}`);
