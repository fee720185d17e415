/**
 * Notes how much processor time each test file takes of its process, imports included. Unlike seconds on the wall it is nearly
 * the same on a busy machine, so `quick` is drawn up by it.
 */

import { type RunnerTestFile, type RunnerTestSuite, TestRunner } from 'vitest';

/** What a file's `meta` has from this runner. */
export interface ProcessorTime {
  processorMs?: number;
}

export default class ProcessorTimeRunner extends TestRunner {
  #before: NodeJS.CpuUsage = process.cpuUsage();

  override onCollectStart(file: RunnerTestFile): void {
    this.#before = process.cpuUsage();
    super.onCollectStart(file);
  }

  override async onAfterRunSuite(suite: RunnerTestSuite): Promise<void> {
    await super.onAfterRunSuite(suite);
    if (!('filepath' in suite)) return;
    const { user, system } = process.cpuUsage(this.#before);
    (suite.meta as ProcessorTime).processorMs = (user + system) / 1000;
  }
}
