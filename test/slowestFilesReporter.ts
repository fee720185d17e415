/** Says at the end of a run of many files which of them took longest: there the next minute of a run is to be found. */

import type { Reporter, TestModule } from 'vitest/node';

/** A run of fewer files is looked at as it is. */
const fewFiles = 20;
const listed = 15;

export default class SlowestFilesReporter implements Reporter {
  onTestRunEnd(modules: readonly TestModule[]): void {
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
