/**
 * `tierkv simulate [WORKLOAD]`: what a deployment does to a workload, on virtual time. This file turns the
 * command line into a run and its results into output; the simulator is loaded only once it is asked for.
 */

import { Command } from 'commander';
import { requireWritableTargets } from '../../io/files/results.ts';
import { get } from '../../sim/description/settings.ts';
import type { OptionValues } from '../flags.ts';
import { notes } from '../help.ts';
import { addSimulateOptions, askedOf } from '../optionRows.ts';
import { traceStem } from '../output.ts';
import { checkReport } from '../reportOption.ts';

const helpEnd = `
Sizes take units (64GiB, 2TB) or count blocks; times take units (500ms, 10m). Names of BLIS (inference-sim) for
these options work too, and --as-upstream has its defaults and its text.
`;

export function simulateCommand(): Command {
  const command = new Command('simulate')
    .description('Simulate the serving of a workload on instances with tiered KV caches.')
    .argument('[workload]', 'specification or recorded trace (default: a preset, see --workload)');
  return addSimulateOptions(command)
    .addHelpText('after', notes(helpEnd))
    .action(async (workload: string | undefined, _given: OptionValues, self: Command) => {
      const asked = askedOf(self, workload);
      const { deployment, outputs } = asked;
      const read = { WORKLOAD: workload, '--deployment': get(deployment, 'file') };
      const written = {
        '--json': outputs.json,
        '--metrics-path': outputs.metricsPath,
        '--requests': outputs.requests,
        '--results-path': outputs.resultsPath,
        '--decisions': outputs.decisions,
        '--chrome-trace': outputs.chromeTrace,
        '--plot': outputs.plot,
        '--report': outputs.report,
      };
      requireWritableTargets(written, read);
      await checkReport(outputs.report);
      if (typeof outputs.traceOutput === 'string') {
        const stem = traceStem('--trace-output', outputs.traceOutput);
        for (const end of ['.yaml', '.csv']) {
          requireWritableTargets({ '--trace-output': `${stem}${end}` }, { ...read, ...written });
        }
      }
      const { runSimulate } = await import('./run.ts');
      await runSimulate(asked);
    });
}
