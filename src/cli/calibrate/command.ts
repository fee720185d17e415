/** `tierkv calibrate`: its options and their help; run.ts measures and writes. */

import { Command } from 'commander';
import { notes } from '../help.ts';

const helpEnd = `
The profile holds, for each of the six links: what a transfer of each size takes of the link in a batch, how
much longer one takes that travels alone (µs), and the share of its bandwidth that a direction keeps while the
opposite one is busy. Every sample lasts a second, so that a disk shows what it gives under load; --quick takes
short bursts, and the profile says so. It also says whether the adapter is software, whose times say nothing about a GPU's.

Use it with: tierkv replay TRACE --driver modeled --links FILE, or tierkv parity --links FILE

With --handoffs it is the link between prefill and decode servers instead, from what a decode server says at
http://HOST:PORT/handoffs of the hand-offs that it took. Hand prompts of several lengths off before, and let each be
computed before it is fetched. --out gets the section "handoff" of a deployment file.

With --trace-data, --sim-results and --report it is upstream's calibrate instead: a recorded trace beside a
simulation of it, request by request.
`;

export function calibrateCommand(): Command {
  return new Command('calibrate')
    .description('Measure the links between GPU memory, host memory and disk, and write them as a profile.')
    .option('--out <file>', 'where to write the profile')
    .option('--dir <dir>', 'directory on the disk to measure (default: a temporary one)')
    .option('--adapter <name>', 'hardware, software, or a part of the name of the adapter to measure')
    .option('--remote <url>', 'measure a Valkey or Redis instead, for --shared-tier of a simulation')
    .option('--quick', 'fewer sizes and rounds', false)
    .option('--handoffs <file|url>', "a decode server's /handoffs, for the link between prefill and decode")
    .option('--trace-data <file>', "rows of a recorded TraceV2, for upstream's report instead of a profile")
    .option('--trace-header <file>', 'its header')
    .option('--sim-results <file>', 'what --results-path of a simulation of the trace wrote')
    .option('--report <file>', 'where to write the report, as JSON')
    .addHelpText('after', notes(helpEnd))
    .action(async (given) => (await import('./run.ts')).calibrate(given));
}
