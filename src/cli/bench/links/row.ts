/** What one line of `tierkv bench transfers|disk|all` says, as JSON and as a table. */

import type { VerificationName } from '../../../backends/webgpu/arrivals.ts';
import type { UploadPathName } from '../../../backends/webgpu/uploadPath.ts';
import { formatBytes, renderTable } from '../../output/index.ts';

/** Where a transfer compares its bytes with their digest: on the host, where they arrive in HBM, or nowhere. */
export type Verification = 'none' | 'host' | 'hbm';

export interface LinkRow {
  readonly link: string;
  /** Size of one unit; a round moves many of them in one batch. */
  readonly bytes: number;
  readonly pattern: string;
  readonly verify: Verification;
  /** tierkv's engine, in 10^9 bytes a second. Both ways: the sum of the two directions. */
  readonly gbps: number;
  /** The best single transfer of the same total bytes, with the checks that the row has. */
  readonly singleGbps: number;
  /** One plain call a unit: one writeBuffer, one map, one buffered file call; its digest where the host verifies. */
  readonly naiveGbps: number;
  /** The slowest stage of the link, checks of arrivals included, alone and at its best, in the same rounds: see limit.ts. */
  readonly limitGbps: number;
  /** That stage. */
  readonly limitStage: string;
  /** All stages of the link at once, nobody waiting for anybody's bytes: see together.ts. One way only. */
  readonly togetherGbps?: number;
  /** gbps / limitGbps. */
  readonly ratio: number;
  /** Of a unit that travels alone, from its submission to its end. */
  readonly p50Us: number;
  readonly p99Us: number;
  /** Cores busy in this process, a software device's included. */
  readonly cpuCores: number;
  readonly naiveCpuCores: number;
  /** fio's direct I/O at this size, where it was asked for. */
  readonly fioGbps?: number;
  /** How bytes go up to HBM, as measured at the start. Of rows in which they do. */
  readonly uploadPath?: UploadPathName;
  /** How they are verified there, as measured. Of rows that verify them. */
  readonly arrivalCheck?: VerificationName;
  /** Whether a software device is part of the link. */
  readonly software: boolean;
  readonly adapter: string;
  readonly rounds: number;
  /** Of how many of them, for tierkv's part, the host of a virtual machine took core time. */
  readonly disturbedRounds: number;
}

const digits = (value: number, count: number): string => value.toFixed(count);

const percent = (share: number): string => `${digits(share * 100, 0)} %`;

export function renderRows(rows: readonly LinkRow[]): string {
  const right = (title: string) => ({ title, align: 'right' as const });
  const withFio = rows.some((row) => row.fioGbps !== undefined);
  return renderTable(
    [
      { title: 'link' },
      right('unit'),
      { title: 'pattern' },
      { title: 'verified' },
      right('GB/s'),
      right('single'),
      right('naive'),
      right('limit'),
      { title: 'by' },
      right('of limit'),
      right('together'),
      right('p50 µs'),
      right('p99 µs'),
      right('cores'),
      right('naive c.'),
      ...(withFio ? [right('fio')] : []),
    ],
    rows.map((row) => [
      row.link,
      formatBytes(row.bytes),
      row.pattern,
      row.verify,
      digits(row.gbps, 2),
      digits(row.singleGbps, 2),
      digits(row.naiveGbps, 2),
      digits(row.limitGbps, 2),
      row.limitStage,
      percent(row.ratio),
      row.togetherGbps === undefined ? '-' : digits(row.togetherGbps, 2),
      digits(row.p50Us, 0),
      digits(row.p99Us, 0),
      digits(row.cpuCores, 2),
      digits(row.naiveCpuCores, 2),
      ...(withFio ? [row.fioGbps === undefined ? '-' : digits(row.fioGbps, 2)] : []),
    ]),
  );
}
