/** `tierkv disk fsck`: everything in the store read and compared. */

import { type StoreReport, StoreView } from '../../backends/file/index.ts';
import { printable } from '../../backends/file/record/printable.ts';
import { formatBytes, formatCounted } from '../output/index.ts';

export interface CheckReport extends StoreReport {
  readonly dir: string;
  readonly closed: boolean;
  /**
   * False for a store whose restarts begin empty: it notes neither what lies where nor whether it was closed.
   */
  readonly keepsIndex: boolean;
}

/** @throws {TierKVError} TKV_LOCKED, TKV_MISMATCH or TKV_IO */
export async function checkStore(dir: string): Promise<CheckReport> {
  await using view = await StoreView.open(dir);
  return { dir, closed: view.recovered.closed, keepsIndex: view.keepsIndex, ...(await view.check()) };
}

export function renderCheck(report: CheckReport): string {
  const lines = [
    `${report.dir}: ${formatCounted(report.recordsChecked, 'records')} checked, ` +
      `${formatBytes(report.bytesRead)} read`,
    ...stateLines(report),
    ...report.leftovers.map(({ where, problem }) => `leftover  ${where}: ${problem}`),
    ...report.faults.map(({ where, problem }) => `fault     ${where}: ${problem}`),
    `leftovers ${report.leftovers.length}`,
    `faults ${report.faults.length}`,
  ];
  return `${lines.map(printable).join('\n')}\n`;
}

function stateLines({ closed, keepsIndex }: CheckReport): string[] {
  if (!keepsIndex)
    return ['it keeps no index: its next start begins empty, and records that are not whole are leftovers'];
  return closed ? [] : ['it was not closed: what a crash interrupted is listed as leftovers'];
}
