/** `tierkv bench`: what this machine's links and the manager give. One file a bench under `bench/`. */

import { Command } from 'commander';
import { configError } from '../runtime/errors.ts';
import { renderTable, writeJsonFile } from './output/index.ts';

interface BenchOptions {
  readonly json?: string;
  readonly quick: boolean;
}

export function benchCommand(): Command {
  return new Command('bench')
    .description('Measure the manager, beside the limit where there is one.')
    .argument('<what>', 'manager')
    .option('--json <file>', 'write the rows as JSON')
    .option('--quick', 'fewer rounds and smaller sizes', false)
    .action(async (what: string, options: BenchOptions) => {
      if (what !== 'manager') throw configError('<what>', `is "${what}"`, 'Use manager.');
      const { benchManager } = await import('./bench/manager.ts');
      const rows = benchManager({
        quick: options.quick,
        say: (line) => process.stderr.write(`tierkv: ${line}\n`),
      });
      if (options.json !== undefined) writeJsonFile(options.json, rows);
      process.stdout.write(
        renderTable(
          [{ title: 'manager' }, { title: 'value', align: 'right' }, { title: 'unit' }],
          rows.map((row) => [
            row.what,
            row.value.toLocaleString('en-US', { maximumSignificantDigits: 4 }),
            row.unit,
          ]),
        ),
      );
    });
}
