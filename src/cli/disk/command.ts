/**
 * `tierkv disk`: a disk tier looked at offline, while no process owns it. Nothing in the directory is
 * changed. This file turns command lines into calls and reports into output.
 */

import { Command } from 'commander';
import { writeResultJson } from '../../io/files/results.ts';
import { notes } from '../help.ts';
import { jsonOption } from '../optionRows.ts';
import { printText } from '../output.ts';

export function diskCommand(): Command {
  const command = new Command('disk').description(
    'Inspect the directory of a disk tier, offline and without changing it.',
  );
  command
    .command('stat')
    .description('Say what the store is, how full it is, and what a start would find.')
    .argument('<dir>', 'directory of the disk tier')
    .addOption(jsonOption())
    .action(async (dir: string, { json }: { json?: string }) => {
      const { describeStore, renderDescription, requireOutputs } = await import('./run.ts');
      requireOutputs(dir, { '--json': json });
      const description = await describeStore(dir);
      if (json !== undefined) writeResultJson(json, 'disk stat', description);
      printText(renderDescription(description));
    });
  command
    .command('fsck')
    .description('Read every record and the whole index, and list what is wrong.')
    .argument('<dir>', 'directory of the disk tier')
    .addOption(jsonOption())
    .addHelpText(
      'after',
      notes(`
A fault is something that should be right and is not. Leftovers are what a crash leaves of writes that were
under way: the next start does not take them up, and they are no faults.

Exit code: 0 without faults, 1 with any, 2 when the directory cannot be checked at all.

Last line: faults N`),
    )
    .action(async (dir: string, { json }: { json?: string }) => {
      const { checkStore, renderCheck, requireOutputs } = await import('./run.ts');
      requireOutputs(dir, { '--json': json });
      const { startProgressBar } = await import('../../io/printing/progress.ts');
      using bar = startProgressBar('records');
      const report = await checkStore(dir, (done, all) =>
        bar.update({ share: all === 0 ? 0 : done / all, done }),
      );
      if (json !== undefined) writeResultJson(json, 'disk fsck', report);
      printText(renderCheck(report));
      if (report.faults.length > 0) process.exitCode = 1;
    });
  command
    .command('export')
    .description('Write what a start would find as JSON lines, one record a line, to stdout.')
    .argument('<dir>', 'directory of the disk tier')
    .option('--out <file>', 'write the lines to a file')
    .option(
      '--payloads <dir>',
      'write the bytes of each record to a file of this directory, which must exist',
    )
    .action(async (dir: string, options: { out?: string; payloads?: string }) => {
      const { exportStore } = await import('./run.ts');
      await exportStore(dir, options);
    });
  return command;
}
