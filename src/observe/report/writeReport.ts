/**
 * Writes a report as one page that needs no network: its style, its script, the drawing library and all data are in it. A
 * long run asks first whether its report can be written.
 */

import { statfsSync } from 'node:fs';
import path from 'node:path';
import { requireWritableTarget, writeResults } from '../../io/files/results.ts';
import { formatBytes } from '../../io/printing/text.ts';
import { TierKVError } from '../../runtime/errors.ts';
import * as is from '../../runtime/kinds.ts';
import { checkInputs } from '../../runtime/options.ts';
import type { Report } from './model.ts';
import { reportPage, requireDrawing } from './page.ts';

/** Most that a page takes. */
export const reportBytesMost: number = 5 * 1024 * 1024;

/**
 * Checks, before a long run, that a report can be written there at its end.
 * @param option what named the file, for the error
 * @throws TKV_IO for a folder, a place that cannot be written and a disk without room; TKV_CONFIG where the packages that
 * draw are not installed
 */
export async function requireReportTarget(target: string, option?: string): Promise<void> {
  checkInputs({ target }, { target: is.name() });
  requireWritableTarget(target, option);
  await requireDrawing();
  if (target === '-') return;
  const folder = path.dirname(path.resolve(target));
  const { bavail, bsize, blocks } = statfsSync(folder);
  const free = bavail * bsize;
  if (blocks === 0 || free >= reportBytesMost) return; // without blocks it does not say
  throw new TierKVError(
    'TKV_IO',
    `${target} may take ${formatBytes(reportBytesMost)}, and its disk has ${formatBytes(free)} left. Name a file on another disk.`,
    { path: target },
  );
}

/**
 * Writes a report as one HTML page.
 * @param target a file, which keeps what it held where writing fails; `-` for standard output
 * @throws TKV_INPUT with the place of what is wrong in the report, TKV_IO with the path, TKV_CONFIG where vega or vega-lite is not installed
 */
export async function writeReport(report: Report, target: string): Promise<void> {
  checkInputs({ target }, { target: is.name() });
  writeResults([{ target, parts: [await reportPage(report)] }]);
}
