/** Says at the very end of a test run which data were not there, so that nothing is skipped unseen. */

import type { Reporter } from 'vitest/node';
import { leftOut } from './extras.ts';

const mark = 'SKIPPED:';

export default class AbsentDataReporter implements Reporter {
  readonly #absent: Set<string> = new Set(leftOut);

  onUserConsoleLog(log: { readonly content: string }): void {
    for (const line of log.content.split('\n')) if (line.startsWith(mark)) this.#absent.add(line);
  }

  onTestRunEnd(): void {
    if (this.#absent.size === 0) return;
    process.stdout.write(
      `\n${this.#absent.size} checks did not run, because data or packages are not here:\n`,
    );
    for (const line of this.#absent) process.stdout.write(`  ${line}\n`);
  }
}
