/**
 * The six links, and for each what runs on it: tierkv's engine, the best single transfer with the same checks, the naive way,
 * and the steps from which its limit follows (limit.ts). A both-ways route is a pair of links that carry half of the bytes
 * each.
 */

import type { DeviceRuns } from './deviceRuns.ts';
import type { DiskRuns } from './diskRuns.ts';
import type { Arrangement, LinkJobs, LinkRig, PlaceName } from './rig.ts';
import type { Verification } from './row.ts';

/** What is done to each byte of a way; `arrival check` is that of what arrived in HBM, however that is done here. */
export type Step =
  | `device copy ${'up' | 'down'}`
  | `memcpy ${'up' | 'down'}`
  | 'digest'
  | DiskStep
  | 'arrival check';

/** Reads go to the host tier, or to the staging of what goes on to the device. */
export type DiskStep = 'disk read' | 'disk read to staging' | 'disk write';

/** What routes run on. `disk` is there for routes that touch the disk. */
export interface Machine {
  readonly rig: LinkRig;
  readonly device: DeviceRuns;
  readonly disk: DiskRuns | undefined;
}

export interface Route {
  readonly link: string;
  readonly bothWays: boolean;
  readonly verify: Verification;
  readonly source: PlaceName;
  readonly target: PlaceName;
  /** For each direction, what is done to a byte of it. */
  readonly work: readonly (readonly Step[])[];
  readonly touchesHbm: boolean;
  single(machine: Machine, bytes: number): Promise<void>;
  /** @param slots where the units lie */
  naive(machine: Machine, slots: readonly number[]): Promise<void>;
}

type Plain = Pick<Route, 'single' | 'naive'>;

const hbmToDdr: Plain = {
  single: ({ device }, bytes) => device.singleReadback(bytes),
  naive: ({ device }, slots) => device.naiveReadback(slots),
};
const ddrToHbm: Plain = {
  single: ({ device }, bytes) => device.singleUpload(bytes),
  naive: ({ device }, slots) => device.naiveUpload(slots),
};
const ddrToHbmChecked: Plain = {
  ...ddrToHbm,
  single: ({ device, rig }, bytes) =>
    rig.arrivalCheck === 'readback' ? device.singleVerifiedUpload(bytes) : device.singleUpload(bytes),
};
const ddrToNvme: Plain = {
  single: ({ disk }, bytes) => disk!.single('write', bytes),
  naive: ({ disk }, slots) => disk!.naiveWrite(slots),
};
async function readAndDigest(disk: DiskRuns, bytes: number): Promise<void> {
  await disk.single('read', bytes);
  disk.digest(bytes);
}

const nvmeToDdr: Plain = {
  single: ({ disk }, bytes) => readAndDigest(disk!, bytes),
  async naive({ disk }, slots) {
    for (const [i, slot] of slots.entries()) await disk!.bufferedVerifiedRead(slot, disk!.unit(i));
  },
};
const nvmeToDdrUnverified: Plain = {
  single: ({ disk }, bytes) => disk!.single('read', bytes),
  async naive({ disk }, slots) {
    for (const [i, slot] of slots.entries()) await disk!.bufferedUnit('read', slot, disk!.unit(i));
  },
};
const hbmToNvme: Plain = {
  async single({ device, disk }, bytes) {
    await device.singleReadback(bytes);
    await disk!.single('write', bytes);
  },
  async naive({ device, disk }, slots) {
    for (const [i, slot] of slots.entries()) {
      await disk!.bufferedUnit('write', slot, await device.readUnit(slot, i));
    }
    await disk!.sync();
  },
};
/** One after the other. */
const nvmeToHbm = (
  read: typeof readAndDigest,
  readUnit: (disk: DiskRuns, slot: number, unit: Uint8Array) => Promise<void>,
  upload: Plain,
): Plain => ({
  async single(machine, bytes) {
    await read(machine.disk!, bytes);
    await upload.single(machine, bytes);
  },
  async naive({ device, disk }, slots) {
    for (const [i, slot] of slots.entries()) {
      const unit = disk!.unit(i);
      await readUnit(disk!, slot, unit);
      device.writeUnit(slot, unit);
    }
    await device.settled();
  },
});

/** Half of the bytes each way, at once. */
function together(a: Plain, b: Plain): Plain {
  return {
    async single(machine, bytes) {
      await Promise.all([a.single(machine, bytes / 2), b.single(machine, bytes / 2)]);
    },
    async naive(machine, slots) {
      const half = slots.length >> 1;
      await Promise.all([a.naive(machine, slots.slice(0, half)), b.naive(machine, slots.slice(half))]);
    },
  };
}

const outOfHbm: readonly Step[] = ['device copy down', 'memcpy down'];
const intoHbm: readonly Step[] = ['memcpy up', 'device copy up'];
const fromDisk: readonly Step[] = ['disk read', 'digest'];
const toDisk: readonly Step[] = ['disk write'];
const checked: readonly Step[] = ['arrival check'];

function oneWay(
  link: string,
  source: PlaceName,
  target: PlaceName,
  verify: Verification,
  work: readonly Step[],
  plain: Plain,
): Route {
  const touchesHbm = source.startsWith('hbm') || target.startsWith('hbm');
  return { link, bothWays: false, verify, source, target, work: [work], touchesHbm, ...plain };
}

/** The verification is that of the way back, where there is more of it. */
function bothWays(there: Route, back: Route): Route {
  const link = `${there.link}+${back.link}`;
  const work = [...there.work, ...back.work];
  return { ...there, ...together(there, back), link, bothWays: true, verify: back.verify, work };
}

const down = oneWay('hbmToDdr', 'hbm', 'ddr', 'none', outOfHbm, hbmToDdr);
const up = oneWay('ddrToHbm', 'ddr', 'hbm', 'hbm', [...intoHbm, ...checked], ddrToHbmChecked);
const downUnverified: Route = { ...down, source: 'hbmUnverified' };
const upUnverified = oneWay('ddrToHbm', 'ddr', 'hbmUnverified', 'none', intoHbm, ddrToHbm);

/** Between GPU memory and host memory. */
export const transferRoutes: readonly Route[] = [
  down,
  up,
  upUnverified,
  bothWays(down, up),
  bothWays(downUnverified, upUnverified),
];

const write = oneWay('ddrToNvme', 'ddr', 'nvme', 'none', toDisk, ddrToNvme);
const read = oneWay('nvmeToDdr', 'nvme', 'ddr', 'host', fromDisk, nvmeToDdr);
const readUnverified = oneWay(
  'nvmeToDdr',
  'nvmeUnverified',
  'ddr',
  'none',
  ['disk read'],
  nvmeToDdrUnverified,
);
const writeFromHbm = oneWay('hbmToNvme', 'hbm', 'nvme', 'none', [...outOfHbm, ...toDisk], hbmToNvme);
const readToHbm = oneWay(
  'nvmeToHbm',
  'nvme',
  'hbm',
  'hbm',
  ['disk read to staging', ...intoHbm, ...checked],
  nvmeToHbm(
    (disk, bytes) => disk.single('read', bytes),
    (disk, slot, unit) => disk.bufferedUnit('read', slot, unit),
    ddrToHbmChecked,
  ),
);
const readToHbmUnverified = oneWay(
  'nvmeToHbm',
  'nvme',
  'hbmUnverified',
  'host',
  ['disk read to staging', 'digest', ...intoHbm],
  nvmeToHbm(readAndDigest, (disk, slot, unit) => disk.bufferedVerifiedRead(slot, unit), ddrToHbm),
);

/** To and from files. What is read from a file is checked by the host, unless it is where it arrives in HBM, or nowhere. */
export const diskRoutes: readonly Route[] = [
  write,
  read,
  readUnverified,
  bothWays(write, read),
  writeFromHbm,
  readToHbm,
  readToHbmUnverified,
  bothWays(writeFromHbm, readToHbm),
];

/** What tierkv's engine does when contents [from, to) go over the route. */
export function jobsOver(
  { rig }: Machine,
  { source, target, bothWays: both }: Route,
  arrangement: Arrangement,
  from?: number,
  to?: number,
): LinkJobs {
  return both
    ? rig.jobsBothWays(source, target, arrangement, from, to)
    : rig.jobs(source, target, arrangement, from, to);
}
