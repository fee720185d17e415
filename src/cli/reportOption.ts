/** `--report FILE` of the commands that have one. */

import { printable } from '../io/printing/text.ts';
import type { Report } from '../observe/report/model.ts';
import { commandText } from '../observe/report/origin.ts';
import { requireReportTarget, writeReport } from '../observe/report/writeReport.ts';

export const reportFlags = '--report <file.html>';
export const reportAbout = 'write an HTML report';

/** Before a long run. @throws TKV_IO or TKV_CONFIG where no report can be written there */
export async function checkReport(target: unknown): Promise<void> {
  if (typeof target === 'string') await requireReportTarget(target, '--report');
}

/** Writes the report, and says so. @param make gets the command line as it was typed */
export async function reportTo(target: string, make: (command: string) => Report): Promise<void> {
  await writeReport(make(typedCommand()), target);
  if (target !== '-') process.stderr.write(`wrote ${printable(target)}\n`);
}

/** The command line as it was typed. */
export function typedCommand(): string {
  return commandText(process.argv.slice(2));
}
