/** fio's direct I/O on the same disk, for comparison, where it is installed. */

import { spawnSync } from 'node:child_process';
import path from 'node:path';
import { configError } from '../../../runtime/errors.ts';

const SECONDS = 1;

export type FioSpeed = (operation: 'read' | 'write', unitBytes: number, depth: number) => number;

/** @throws {TierKVError} TKV_CONFIG on --against when fio is not installed. */
export function fioIn(dir: string, totalBytes: number): FioSpeed {
  const { error, status } = spawnSync('fio', ['--version']);
  if (error !== undefined || status !== 0) {
    throw configError('--against', 'is fio, which is not installed', 'Install fio, or leave --against out.');
  }
  const measured = new Map<string, number>();
  return (operation, unitBytes, depth) => {
    const name = `${operation} ${unitBytes} ${depth}`;
    let gbps = measured.get(name);
    if (gbps === undefined) {
      gbps = run(dir, totalBytes, operation, unitBytes, depth);
      measured.set(name, gbps);
    }
    return gbps;
  };
}

function run(
  dir: string,
  totalBytes: number,
  operation: 'read' | 'write',
  unitBytes: number,
  depth: number,
): number {
  const { stdout, stderr } = spawnSync(
    'fio',
    [
      '--name=tierkv',
      `--filename=${path.join(dir, 'bench.fio')}`,
      `--rw=${operation}`,
      `--bs=${unitBytes}`,
      `--iodepth=${depth}`,
      `--size=${Math.max(totalBytes, unitBytes)}`,
      '--direct=1',
      '--ioengine=libaio',
      '--time_based',
      `--runtime=${SECONDS}`,
      '--output-format=json',
    ],
    { encoding: 'utf8' },
  );
  try {
    const report = JSON.parse(stdout.slice(stdout.indexOf('{'))) as {
      readonly jobs: readonly [{ readonly read: { bw_bytes: number }; readonly write: { bw_bytes: number } }];
    };
    return report.jobs[0][operation].bw_bytes / 1e9;
  } catch {
    throw configError(
      '--against',
      `is fio, which did not measure (${stderr.trim().split('\n')[0] ?? 'no output'})`,
      'Leave --against out.',
    );
  }
}
