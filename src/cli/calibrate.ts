/** `tierkv calibrate`: measures the links of this machine and writes them as a profile for the simulator. */

import { Command } from 'commander';
import type { MeasuredProfile } from './bench/links/index.ts';
import { formatBytes, renderTable, requireWritableTarget, writeJsonFile } from './output/index.ts';

interface CalibrateOptions {
  readonly out: string;
  readonly dir?: string;
  readonly adapter?: string;
  readonly quick: boolean;
}

const helpEnd = `
The profile holds, for each of the six links: what a transfer of each size takes of the link in a batch, how much longer one
takes that travels alone, and the share of its bandwidth that a direction keeps while the opposite one is busy; beside it
adapter, driver and date, and whether the adapter is software, whose times say nothing about a GPU's.

Use it with: tierkv replay TRACE --driver modeled --links FILE
`;

export function calibrateCommand(): Command {
  return new Command('calibrate')
    .description('Measure the links between GPU memory, host memory and disk, and write them as a profile.')
    .requiredOption('--out <file>', 'where to write the profile')
    .option('--dir <dir>', 'directory on the disk to measure (default: a temporary one)')
    .option('--adapter <name>', 'hardware, software, or a part of the name of the adapter to measure')
    .option('--quick', 'fewer sizes and rounds', false)
    .addHelpText('after', helpEnd)
    .action(async ({ out, dir, adapter, quick }: CalibrateOptions) => {
      requireWritableTarget(out);
      const { calibrateLinks } = await import('./bench/links/index.ts');
      const say = (line: string): void => void process.stderr.write(`${line}\n`);
      const profile = await calibrateLinks({ dir, adapter, quick, say });
      writeJsonFile(out, profile);
      process.stdout.write(renderProfile(profile));
    });
}

function renderProfile({ device, software, links }: MeasuredProfile): string {
  const [first] = Object.values(links);
  const right = (title: string) => ({ title, align: 'right' as const });
  const table = renderTable(
    [
      { title: 'link, GB/s at' },
      ...first.sizes.map(({ bytes }) => right(formatBytes(bytes))),
      right('alone: + µs'),
      right('both ways: share'),
    ],
    Object.entries(links).map(([link, { sizes, delayUs, bothWaysShare }]) => [
      link,
      ...sizes.map(({ bytes, latencyUs }) => (bytes / latencyUs / 1e3).toFixed(2)),
      delayUs.toFixed(0),
      bothWaysShare.toFixed(2),
    ]),
  );
  return `${device}${software ? ', a SOFTWARE device' : ''}\n${table}`;
}
