/** `--report FILE` of the commands that have one. */

import { commandText } from '../report/origin.ts';
import { requireReportTarget } from '../report/writeReport.ts';

export const reportFlags = '--report <file.html>';
export const reportAbout = 'write a page for people who decide';

/** Before a long run. @throws TKV_IO or TKV_CONFIG where no report can be written there */
export async function checkReport(target: unknown): Promise<void> {
  if (typeof target === 'string') await requireReportTarget(target);
}

/** The command line as it was typed. */
export function typedCommand(): string {
  return commandText(process.argv.slice(2));
}
