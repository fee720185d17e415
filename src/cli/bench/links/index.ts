/** `tierkv bench transfers|disk|all`: a device, a directory, and the link bench on them. */

import { type LiveDevice, openDevice } from '../../../backends/webgpu/index.ts';
import { configError } from '../../../runtime/errors.ts';
import { interruptible } from '../../interrupt.ts';
import { temporaryDirectory } from '../../temporaryDirectory.ts';
import { benchLinks, calibrationSizes, fullSizes, type LinkBenchOptions, quickSizes } from './benchLinks.ts';
import { fioIn } from './fio.ts';
import { type MeasuredProfile, profileOf } from './profile.ts';
import type { LinkRow } from './row.ts';

export { plotOf } from './plot.ts';
export type { LinkFigures, MeasuredProfile } from './profile.ts';
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
/** Seconds that a quick bench measures links for: with opening a device, and the manager's part, it ends within 40. */
const QUICK_SECONDS = 14;
const QUICK_UNITS_MAX = 64;
const UNITS_MAX = 4096;
const REST_MS = 10;
const SAMPLE_MS = 100;
const QUICK_SAMPLE_MS = 2;
/** An odd number, so that a trial is in the middle. */
const TRIALS = 5;
const ROUNDS = 5;
const ROUNDS_MAX = 40;

/** @throws {TierKVError} for an option that is wrong, or a device or disk that is not to be had */
export async function runLinkBench(request: LinkBenchRequest): Promise<LinkRow[]> {
  const { links, quick, against } = request;
  if (against !== undefined && against !== 'fio') {
    throw configError('--against', `is "${against}"`, 'Set it to fio, or leave it out.');
  }
  return withMachine(request, (live, dir, signal) => {
    const totalBytes = (quick ? 8 : 256) * MIB;
    return benchLinks(live, {
      links,
      unitBytes: quick ? quickSizes : fullSizes,
      totalBytes,
      unitsMax: quick ? QUICK_UNITS_MAX : UNITS_MAX,
      trials: quick ? 1 : TRIALS,
      rounds: ROUNDS,
      roundsMax: quick ? ROUNDS : ROUNDS_MAX,
      restMs: quick ? 1 : REST_MS,
      sampleMs: quick ? QUICK_SAMPLE_MS : SAMPLE_MS,
      secondsMax: quick ? QUICK_SECONDS : Number.POSITIVE_INFINITY,
      dir,
      signal,
      say: request.say,
      ...(against === undefined ? {} : { fio: fioIn(dir, totalBytes) }),
    });
  });
}

/** @throws {TierKVError} when a device or disk is not to be had */
export async function calibrateLinks(
  request: Pick<LinkBenchRequest, 'dir' | 'adapter' | 'quick' | 'say'>,
): Promise<MeasuredProfile> {
  const { quick, say } = request;
  return withMachine(request, async (live, dir, signal) => {
    const rows = await benchLinks(live, {
      links: 'all',
      unitBytes: quick ? quickSizes : calibrationSizes,
      totalBytes: (quick ? 16 : 32) * MIB,
      unitsMax: Number.POSITIVE_INFINITY,
      trials: quick ? 1 : TRIALS,
      rounds: quick ? 3 : ROUNDS,
      roundsMax: quick ? 3 : ROUNDS,
      restMs: quick ? 1 : REST_MS,
      sampleMs: quick ? QUICK_SAMPLE_MS : SAMPLE_MS,
      secondsMax: quick ? QUICK_SECONDS : Number.POSITIVE_INFINITY,
      dir,
      signal,
      say,
    });
    const { name, software, source } = live.adapter;
    const date = new Date().toISOString();
    return profileOf(rows, { device: name, driver: `webgpu (${source})`, date, software });
  });
}

/** A device and a directory that lasts as long as `work` does. */
async function withMachine<T>(
  { dir, adapter, say }: Pick<LinkBenchRequest, 'dir' | 'adapter' | 'say'>,
  work: (live: LiveDevice, dir: string, signal: AbortSignal) => Promise<T>,
): Promise<T> {
  using scratch = temporaryDirectory('tierkv-bench-', dir);
  return await interruptible(async (signal) => {
    await using live = await openDevice({ notice: say, ...(adapter === undefined ? {} : { adapter }) });
    return await work(live, scratch.path, signal);
  });
}
