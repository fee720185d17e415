/**
 * Says at the end of a run of many files which of them took longest: there the next minute of a run is to be found. Files of
 * `quick` that take more than its limit of processor time are named with the place where they belong.
 */

import type { Reporter, TestModule } from 'vitest/node';
import type { ProcessorTime } from './processorTimeRunner.ts';

/** A run of fewer files is looked at as it is. */
const fewFiles = 20;
const listed = 15;
/** Of `quick`: milliseconds of processor time that a file may take, the modules included that it is the first to load. */
const quickMs = 2000;
/** A file of this many times the limit is not quick on any machine, and fails the run. The same work takes up to twice as long beside others. */
const surely = 4;

export default class SlowestFilesReporter implements Reporter {
  onTestRunEnd(modules: readonly TestModule[]): void {
    tellQuickFiles(modules);
    if (modules.length < fewFiles) return;
    const files = modules
      .map((module) => {
        const { prepareDuration, environmentSetupDuration, collectDuration, setupDuration, duration } =
          module.diagnostic();
        const aroundMs = prepareDuration + environmentSetupDuration + collectDuration + setupDuration;
        return { name: module.relativeModuleId, testsMs: duration, aroundMs };
      })
      .sort((a, b) => b.testsMs + b.aroundMs - a.testsMs - a.aroundMs);
    const seconds = (ms: number): string => (ms / 1000).toFixed(1);
    const sum = (of: 'testsMs' | 'aroundMs'): string =>
      seconds(files.reduce((total, file) => total + file[of], 0));
    process.stdout.write(
      `\nSeconds of one worker: ${sum('testsMs')} of tests, ${sum('aroundMs')} around them. Longest files:\n`,
    );
    for (const { name, testsMs, aroundMs } of files.slice(0, listed)) {
      process.stdout.write(`${seconds(testsMs + aroundMs).padStart(8)}  ${name}\n`);
    }
  }
}

/** Names files of `quick` that are above its limit. */
function tellQuickFiles(modules: readonly TestModule[]): void {
  const above = modules
    .filter(({ project }) => project.name === 'quick')
    .map((module) => ({
      name: module.relativeModuleId,
      ms: (module.meta() as ProcessorTime).processorMs ?? 0,
    }))
    .filter(({ ms }) => ms > quickMs)
    .sort((a, b) => b.ms - a.ms);
  if (above.length === 0) return;
  process.stdout.write(
    `\nQuick files above ${quickMs / 1000} s of processor time. Make them shorter, or name them in \`long\` of vitest.config.ts:\n`,
  );
  for (const { name, ms } of above) process.stdout.write(`${(ms / 1000).toFixed(1).padStart(8)}  ${name}\n`);
  if (above[0].ms > surely * quickMs) process.exitCode = 1;
}
