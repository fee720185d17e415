/**
 * `tierkv worker SERVER`: this machine runs cases that `sweep`, `evaluate` and `evolve` of other machines ask for with
 * `--workers SERVER`.
 */

import { availableParallelism } from 'node:os';
import { Command } from 'commander';
import { startProgressBar } from '../io/printing/progress.ts';
import { numberWithin, type OptionValues } from './flags.ts';
import { notes } from './help.ts';
import { interruptible } from './process.ts';

const helpEnd = `
Start a worker on each machine that shall help, and give the same address to tierkv sweep, evaluate or evolve as
--workers. The results are byte for byte those of one machine. A worker that is killed loses nothing: its cases go to
another one after ten seconds. All machines need the same tierkv and the same version of Node; workers of another one
are told so and get no case.

Everyone who can write to the server can give work to the workers: use a password, and a network that you trust.
`;

export function workerCommand(): Command {
  return new Command('worker')
    .description('Run cases that other machines ask for through a Redis server.')
    .argument('<server>', 'redis://host:6379, redis://:password@host:6379, or rediss:// for TLS')
    .option('--threads <n>', 'cases at once (default: one a core)')
    .option('--memory <MiB>', 'heap of each thread', '4096')
    .addHelpText('after', notes(helpEnd))
    .action(async (url: string, options: OptionValues) => {
      const threads = numberWithin(options, 'threads', '--threads', { min: 1, max: 1024, whole: true });
      const heapMiB = numberWithin(options, 'memory', '--memory', { min: 64, max: 1e6, whole: true }) ?? 4096;
      const { serveQueue } = await import('../policy/workers/remoteWorker.ts');
      using bar = startProgressBar('cases');
      await interruptible((signal) =>
        serveQueue(
          {
            url,
            threads: threads ?? availableParallelism(),
            heapMiB,
            say: (line) => bar.notice(line),
            progress: (done, running) => bar.update({ share: 0, done, note: `${running} running` }),
          },
          signal,
        ),
      );
    });
}
