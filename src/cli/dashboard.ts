/** `tierkv serve-dashboard`: the dashboard's page over a decision log, for a browser. */

import { Command } from 'commander';
import { printable } from '../io/printing/text.ts';
import type { Dashboard, DashboardOptions } from '../observe/dashboard/dashboard.ts';
import { requireInteger } from '../runtime/errors.ts';
import { notes } from './help.ts';
import { printText } from './output.ts';
import { interruptible } from './process.ts';

interface DashboardPlace {
  readonly host: string;
  readonly port: string;
  readonly links?: string;
  readonly follow?: boolean;
}

const helpEnd = `
The page replays the log with a slider. It is only read, needs no network, and answers this machine alone unless
--host names another address: then the printed address has a token, and a request without it is refused.

A log is written by KVRuntime.open({ log: FILE }), by the example server with --log FILE, and by tierkv replay --log FILE.
A running process shows itself live: see dashboard(kv) of tierkv/observe in docs/guide/observe.md.`;

export function dashboardCommand(): Command {
  return new Command('serve-dashboard')
    .description('Show in a browser what happened in the run of a decision log.')
    .argument('<log>', 'the decision log of a run')
    .option('--host <name>', 'address to listen at', '127.0.0.1')
    .option('--port <number>', 'port; 0: any that is free', '8081')
    .option('--follow', 'the run still writes the log: show what it adds')
    .option('--links <file>', 'profile of tierkv calibrate, for the limits of the links')
    .addHelpText('after', notes(helpEnd))
    .action(async (log: string, { host, port, links, follow }: DashboardPlace) => {
      const portNumber = requireInteger('--port', Number(port), 0, 65_535);
      const limits = links === undefined ? {} : await limitsIn(links);
      const make = await (follow === true ? followed : whole)(log, limits);
      const { serveDashboard } = await import('../observe/dashboard/dashboard.ts');
      await interruptible(async (signal) => {
        const place = { host, port: portNumber };
        const server = await serveDashboard(make, place);
        printText(`The dashboard of ${log} is at ${server.url} (Ctrl+C ends it)\n`);
        try {
          await new Promise<void>((_, reject) =>
            signal.addEventListener('abort', () => reject(signal.reason)),
          );
        } finally {
          await server.close();
        }
      });
    });
}

type MakeDashboard = (access: Pick<DashboardOptions, 'token' | 'hosts'>) => Promise<Dashboard>;

async function followed(log: string, limits: Readonly<Record<string, number>>): Promise<MakeDashboard> {
  const { followedLogDashboard } = await import('../observe/dashboard/dashboard.ts');
  const onEnd = (error?: unknown): void => {
    const why = error instanceof Error ? `: ${printable(error.message)}` : '';
    process.stderr.write(`${printable(log)} has ended${why}. The page shows what there was.\n`);
  };
  return (access) => followedLogDashboard(log, { ...access, limits, onEnd });
}

/** Reads the log to its end before the page is there. */
async function whole(log: string, limits: Readonly<Record<string, number>>): Promise<MakeDashboard> {
  const { logDashboard } = await import('../observe/dashboard/dashboard.ts');
  const { framesOfLog } = await import('../observe/dashboard/logFrames.ts');
  const { fileLines } = await import('../io/files/inputs.ts');
  const { startProgressBar } = await import('../io/printing/progress.ts');
  let count = 0;
  using bar = startProgressBar('lines');
  const lines = function* (): Generator<string> {
    for (const line of fileLines(log)) {
      if (++count % 20_000 === 0) bar.update({ share: 0, done: count });
      yield line;
    }
  };
  const frames = framesOfLog(lines(), log);
  return (access) => logDashboard(frames, { ...access, limits });
}

/** Limits by link, in bytes a second. */
async function limitsIn(file: string): Promise<Record<string, number>> {
  const { readText } = await import('../io/files/inputs.ts');
  const { parseLinkCalibration } = await import('../sim/latency/capacity.ts');
  const { links } = parseLinkCalibration(readText(file), file);
  return Object.fromEntries(
    Object.entries(links).map(([link, { bandwidthBytesPerS }]) => [link, bandwidthBytesPerS]),
  );
}
