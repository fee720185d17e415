/**
 * Whether this machine can hold what a configuration asks for, before a table is made or a byte is taken: host
 * memory, room on the disk, and the tables that grow with the number of blocks.
 */

import { statfs } from 'node:fs/promises';
import { configError } from '../../runtime/errors.ts';
import type { ManagerConfig, TierSize } from '../../runtime/index.ts';

/** Of a slot, in the manager's tables and those of its store: measured at 190 and rounded up. */
const TABLE_BYTES_OF_SLOT = 256;
/** Share of the memory that is there which tables and host memory may take. */
const MEMORY_SHARE = 0.95;

/** @throws TKV_CONFIG naming `hbm.capacityBytes` and the like, as stores do */
export async function requireMachineHolds(manager: ManagerConfig, dir?: string): Promise<void> {
  const availableBytes = process.availableMemory();
  const smallest = Math.min(...manager.unitBytes);
  const bytesOf = ({ capacityBytes, landingBytes = 0 }: TierSize): number => capacityBytes + landingBytes;
  let tables = 0;
  for (const name of ['hbm', 'ddr', 'nvme'] as const) {
    const size = manager[name];
    if (size === undefined) continue;
    const slots = Math.floor(bytesOf(size) / smallest);
    tables += slots * TABLE_BYTES_OF_SLOT;
    if (tables > availableBytes * MEMORY_SHARE) {
      throw configError(
        `${name}.capacityBytes`,
        `is room for ${slots} blocks of ${smallest} bytes, whose tables take ${slots * TABLE_BYTES_OF_SLOT} ` +
          `bytes of host memory where ${availableBytes} are available`,
        `Lower ${name}.capacityBytes, or use larger blocks.`,
      );
    }
  }
  const ddrBytes = manager.ddr === undefined ? 0 : bytesOf(manager.ddr);
  if (ddrBytes + tables > availableBytes * MEMORY_SHARE) {
    throw configError(
      'ddr.capacityBytes',
      `asks for ${ddrBytes} bytes of host memory, and ${tables} go to tables, where ${availableBytes} are ` +
        'available',
      'Lower ddr.capacityBytes.',
    );
  }
  if (dir !== undefined && manager.nvme !== undefined) await requireDiskHolds(bytesOf(manager.nvme), dir);
}

/**
 * No file is larger than its disk. Whether that much is free is for the store to see, which knows its own
 * files; and what is wrong with a directory that cannot be looked at.
 */
async function requireDiskHolds(bytes: number, dir: string): Promise<void> {
  const disk = await statfs(dir).catch(() => undefined);
  if (disk === undefined || disk.blocks === 0) return;
  const diskBytes = disk.blocks * disk.bsize;
  if (bytes <= diskBytes) return;
  throw configError(
    'nvme.capacityBytes',
    `asks for ${bytes} bytes in ${dir}, on a disk of ${diskBytes}`,
    'Lower nvme.capacityBytes, or name a directory on a larger disk.',
  );
}
