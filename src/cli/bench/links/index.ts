/** `tierkv bench transfers|disk|all`: a device, a directory, and the link bench on them. */

import { openDevice } from '../../../backends/webgpu/index.ts';
import { configError } from '../../../runtime/errors.ts';
import { interruptible } from '../../interrupt.ts';
import { temporaryDirectory } from '../../temporaryDirectory.ts';
import { benchLinks, fullSizes, type LinkBenchOptions, quickSizes } from './benchLinks.ts';
import { fioIn } from './fio.ts';
import type { LinkRow } from './row.ts';

export { plotOf } from './plot.ts';
export { type LinkRow, renderRows } from './row.ts';

export interface LinkBenchRequest {
  readonly links: LinkBenchOptions['links'];
  readonly quick: boolean;
  readonly dir: string | undefined;
  readonly adapter: string | undefined;
  readonly against: string | undefined;
  readonly say: (line: string) => void;
}

const MIB = 1024 * 1024;

/** @throws {TierKVError} for an option that is wrong, or a device or disk that is not to be had */
export async function runLinkBench(request: LinkBenchRequest): Promise<LinkRow[]> {
  const { links, quick, adapter, against, say } = request;
  if (against !== undefined && against !== 'fio') {
    throw configError('--against', `is "${against}"`, 'Set it to fio, or leave it out.');
  }
  using scratch = temporaryDirectory('tierkv-bench-', request.dir);
  const dir = scratch.path;
  const totalBytes = (quick ? 32 : 64) * MIB;
  const fio = against === undefined ? undefined : fioIn(dir, totalBytes);
  return await interruptible(async (signal) => {
    await using live = await openDevice({ notice: say, ...(adapter === undefined ? {} : { adapter }) });
    return await benchLinks(live, {
      links,
      unitBytes: quick ? quickSizes : fullSizes,
      totalBytes,
      rounds: quick ? 5 : 7,
      dir,
      signal,
      say,
      ...(fio === undefined ? {} : { fio }),
    });
  });
}
