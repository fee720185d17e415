/**
 * `tierkv parity [TRACE]`: how far the simulator is from the real runtime, on this machine. This file turns
 * the command line into a run and the report into output.
 */

import { Command } from 'commander';
import {
  formatSeconds,
  printText,
  renderSvg,
  startProgressBar,
  writeJsonFile,
  writeText,
} from '../output/index.ts';
import { interruptible, temporaryDirectory } from '../process/index.ts';
import { textOption } from '../simulate/input/numbers.ts';
import type { Options } from '../simulate/input/options.ts';
import { addParityOptions, parseParityOptions } from './options.ts';
import { loadEngine } from './serving/engine.ts';

const helpEnd = `
The traffic is served on real tiers, by the runtime's scheduler, as it arrives; a stand-in for the model takes
the times of steps from a latency model. Then the recorded inputs are given to the simulator's manager and
scheduler: the log has to come out byte for byte. Then the simulator serves the same traffic free, with the
links as tierkv calibrate measures them.

With --engine an engine that computes serves instead, and the times of its steps are fitted to those that it
made. Its blocks have its own size, so --block-bytes and --block-tokens stay as they are, and so does the
model.

Each block has --block-bytes whatever the model; a block of a trace with block ids has their tokens.
Without a trace and without --workload the traffic is conversations that come back, half a minute of them.

Exit code: 0 when the replay is identical and no block came back wrong, 1 when not, 2 for a mistake in the
call.
Last line: exact replay: identical (...)
`;

export function parityCommand(): Command {
  const command = new Command('parity')
    .description('Serve traffic on the real runtime, and compare it with its replay and its simulation.')
    .argument('[trace]', 'recorded trace or workload specification (default: conversations)');
  return addParityOptions(command)
    .addHelpText('after', helpEnd)
    .action(async (trace: string | undefined, given: Options) => {
      const named = textOption(given, 'engine');
      const engine = named === undefined ? undefined : await loadEngine(named);
      const options = parseParityOptions(trace, given, engine);
      const { runParity, runnersOf } = await import('./run.ts');
      const { renderParity } = await import('./report/index.ts');
      using scratch = temporaryDirectory('tierkv-parity-', options.dir);
      using bar = startProgressBar('requests');
      const startMs = performance.now();
      const { expected } = options.traffic;
      const { report, chart } = await interruptible((signal) =>
        runParity(options, runnersOf(options, engine), scratch.path, {
          signal,
          notice: (line) => bar.notice(line),
          stage: (name) =>
            bar.say(`tierkv: ${name} (${formatSeconds((performance.now() - startMs) / 1000)})`),
          progress: (done) => bar.update({ share: expected === 0 ? 0 : done / expected, done }),
        }),
      );
      if (options.jsonPath !== undefined) writeJsonFile(options.jsonPath, report);
      if (options.plotPath !== undefined) writeText(options.plotPath, await renderSvg(chart));
      printText(renderParity(report));
      if (!report.exact.identical || report.wrongBlocks > 0) process.exitCode = 1;
    });
}
