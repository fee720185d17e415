/**
 * Who runs in the same rounds, on the same blocks: each stage alone, and for each row tierkv, a lone block of
 * tierkv's, and the peers, which do one thing after the other with plain calls of WebGPU and Node.
 */

import { hostDigest } from '../../../backends/digest/index.ts';
import { Tier } from '../../../runtime/index.ts';
import type { PlainDevice } from './plainDevice.ts';
import type { PlainDisk } from './plainDisk.ts';
import type { LinkRig } from './rig.ts';
import type { Contestant, Run } from './rounds.ts';
import { linkOf, type Route, routes, type Stage } from './routes.ts';

export interface Bench {
  readonly rig: LinkRig;
  /** The same blocks under an HBM that verifies nothing. */
  readonly unverifiedRig: LinkRig;
  /** Whether arrivals in HBM are verified by readback: see `stagesOf`. */
  readonly readback: boolean;
  readonly device: PlainDevice;
  readonly disk: PlainDisk;
  /** All blocks, one behind the other, in memory like that of the DDR tier. Nobody writes there. */
  readonly host: Uint8Array;
  /** Memory like it, for what stages and peers read. */
  readonly scratch: Uint8Array;
}

/** tierkv; a lone block of its; block after block by plain calls; all in one plain transfer. */
export function nameOf(who: 'tierkv' | 'alone' | 'single' | 'bulk', route: Route): string {
  return `${who} ${linkOf(route)} ${route.verified}`;
}

/** @param of the routes that run @param peers whether plain calls run beside them */
export function contestantsOf(
  bench: Bench,
  of: readonly Route[] = routes,
  peers: boolean = true,
): Contestant[] {
  const { length: units } = bench.rig.slots;
  const unitBytes = bench.host.byteLength / units;
  const all = stagesAlone(bench, unitBytes);
  for (const route of of) {
    const { ways, verified } = route;
    const rig = verified || ways[0][1] !== Tier.HBM ? bench.rig : bench.unverifiedRig;
    const bytes = (units - (units % ways.length)) * unitBytes;
    let next = -1;
    const lone = (): Run => rig.move(ways, ++next % units, (next % units) + 1);
    all.push({ name: nameOf('tierkv', route), bytes, prepare: () => rig.move(ways) });
    if (ways.length > 1) continue;
    all.push({ name: nameOf('alone', route), bytes: unitBytes, prepare: lone });
    if (!peers) continue;
    all.push({ name: nameOf('single', route), bytes, prepare: () => peer(bench, route, unitBytes) });
    if (ways[0].includes(Tier.NVME)) continue;
    all.push({ name: nameOf('bulk', route), bytes, prepare: () => peer(bench, route, bytes) });
  }
  return all;
}

function stagesAlone({ rig, device, disk, host, scratch }: Bench, unitBytes: number): Contestant[] {
  const bytes = host.byteLength;
  const unitsOf = (memory: Uint8Array) => rig.slots.map((_, index) => unitOf(memory, index, unitBytes));
  const landed = (use: (bytes: Uint8Array) => void) => async (): Promise<Run> => {
    await device.copyOut(bytes);
    return () => device.useOut(bytes, use);
  };
  const stages: Record<Stage, Contestant['prepare']> = {
    'memcpy in': () => () => device.memcpyIn(host),
    'copy in': () => () => device.copyIn(bytes),
    'copy out': () => () => device.download(bytes, () => {}),
    'memcpy out': landed((from) => scratch.set(from)),
    'digest of staging': landed(hostDigest),
    digest: () => () => void hostDigest(host),
    read: () => () => disk.moveAll('read', rig.slots, unitsOf(scratch)),
    write: () => () => disk.moveAll('write', rig.slots, unitsOf(host)),
  };
  return Object.entries(stages).map(([name, prepare]) => ({ name, bytes, prepare }));
}

/** All blocks in transfers of `transferBytes`, one after the other, with the checks of the route. */
function peer(bench: Bench, { ways: [[from, to]], verified }: Route, transferBytes: number): Run {
  const { rig, readback, device, disk, host, scratch } = bench;
  return async () => {
    for (let index = 0; index * transferBytes < host.byteLength; index++) {
      const [source, target] = [host, scratch].map((memory) => unitOf(memory, index, transferBytes));
      if (from === Tier.HBM) await device.download(transferBytes, (landed) => target.set(landed));
      if (from === Tier.NVME) await disk.move('read', rig.slots[index], target);
      if (to === Tier.DDR && verified) hostDigest(target);
      const up = from === Tier.NVME ? target : source;
      if (to === Tier.HBM) await device.upload(up, verified && readback);
      if (to === Tier.NVME) await disk.move('write', rig.slots[index], source);
    }
  };
}

function unitOf(bytes: Uint8Array, index: number, unitBytes: number): Uint8Array {
  return bytes.subarray(index * unitBytes, (index + 1) * unitBytes);
}
