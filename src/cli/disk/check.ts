/** `tierkv disk fsck`: everything in the store read and compared. */

import { type StoreReport, StoreView } from '../../backends/file/index.ts';
import { formatBytes, formatCount } from '../output/index.ts';

export interface CheckReport extends StoreReport {
  readonly dir: string;
  readonly closed: boolean;
}

/** @throws {TierKVError} TKV_LOCKED, TKV_MISMATCH or TKV_IO */
export async function checkStore(dir: string): Promise<CheckReport> {
  await using view = await StoreView.open(dir);
  return { dir, closed: view.recovered.closed, ...(await view.check()) };
}

export function renderCheck(report: CheckReport): string {
  const lines = [
    `${report.dir}: ${formatCount(report.recordsChecked)} records checked, ${formatBytes(report.bytesRead)} read`,
    ...(report.closed ? [] : ['it was not closed: what a crash interrupted is listed as leftovers']),
    ...report.leftovers.map(({ where, problem }) => `leftover  ${where}: ${problem}`),
    ...report.faults.map(({ where, problem }) => `fault     ${where}: ${problem}`),
    `leftovers ${report.leftovers.length}`,
    `faults ${report.faults.length}`,
  ];
  return `${lines.join('\n')}\n`;
}
