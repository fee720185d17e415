/**
 * Which way of uploading and of verifying is fastest on a device, measured once a device in a fraction of a second on a pool
 * of its own, by the store's own calls, or read from a profile of that device. What the caller names is taken as given; only
 * what is left open is measured.
 *
 * A hardware device is never asked whether it verifies by readback: its digest kernel works at the speed of its memory, and
 * the way back would take the link that other transfers need.
 */

import { type PoolShape, poolShape } from '../../runtime/pool/shape.ts';
import { Outcome } from '../../runtime/transfer/outcome.ts';
import type { StoreItem, TierStore } from '../../runtime/transfer/tierStore.ts';
import { hostDigest } from '../digest/index.ts';
import type { VerificationName } from './arrivals.ts';
import type { LiveDevice } from './liveDevice.ts';
import type { UploadPathName } from './uploadPath.ts';
import { profiledPath, type UploadProfile } from './uploadProfile.ts';

export interface UploadStrategy {
  readonly uploadPath: UploadPathName;
  readonly verification: VerificationName;
  /** Who digests a slot that is sealed: a kernel, or the host after a readback. The same as for what arrives. */
  readonly sealing: Exclude<VerificationName, 'none'>;
  /** How it was found: `measured`, or `profile` where that answered what was left open, or `given` where nothing was. */
  readonly found: 'measured' | 'profile' | 'given';
}

/** What a caller may leave open, and what an earlier measurement said. */
export interface UploadWishes {
  readonly uploadPath: UploadPathName | undefined;
  readonly verification: VerificationName | undefined;
  readonly profile: UploadProfile | undefined;
}

/** Opens a small pool that works in the given way. */
export type OpenTrial = (
  shape: PoolShape,
  strategy: { uploadPath: UploadPathName; verification: VerificationName },
) => Promise<TierStore>;

/** Sizes at which the way up is measured; a pool takes what was found at the one nearest to its own units. */
const UNIT_BYTES = [16, 64, 256, 2048].map((kib) => kib * 1024);
/** Several staging buffers of a pool for the way up, so that they can overlap; less for what may be slow. */
const UPLOAD_BYTES = 16 * 1024 * 1024;
const VERIFICATION_BYTES = 2 * 1024 * 1024;
const VERIFICATION_UNIT_BYTES = 256 * 1024;
const TRIALS = 3;
/** The second name of a pair must be so much faster: what is as good by chance is not chosen. */
const ADVANTAGE = 0.8;

interface Findings {
  /** By unit size and verification. */
  readonly uploadPaths: Map<string, Promise<UploadPathName>>;
  verification?: Promise<VerificationName>;
}

const known = new WeakMap<LiveDevice, Findings>();

/** @param slotBytes the size of most of what the pool moves */
export async function chooseStrategy(
  live: LiveDevice,
  slotBytes: number,
  wishes: UploadWishes,
  open: OpenTrial,
): Promise<UploadStrategy> {
  const { uploadPath, verification } = wishes;
  const profile = wishes.profile?.device === live.adapter.name ? wishes.profile : undefined;
  if (profile !== undefined) {
    return strategyOf(live, {
      uploadPath: uploadPath ?? profiledPath(profile, slotBytes),
      verification: verification ?? profile.verification,
      found: uploadPath === undefined || verification === undefined ? 'profile' : 'given',
    });
  }
  const findings: Findings = known.get(live) ?? { uploadPaths: new Map() };
  known.set(live, findings);
  if (verification === undefined) {
    findings.verification ??= live.adapter.software
      ? fastest(['kernel', 'readback'], VERIFICATION_UNIT_BYTES, VERIFICATION_BYTES, (one, shape) =>
          open(shape, { uploadPath: 'ring', verification: one }),
        )
      : Promise.resolve('kernel');
  }
  const check = verification ?? (await findings.verification!);
  return strategyOf(live, {
    uploadPath: uploadPath ?? (await measuredPath(findings, nearest(UNIT_BYTES, slotBytes), check, open)),
    verification: check,
    found: uploadPath === undefined || verification === undefined ? 'measured' : 'given',
  });
}

function strategyOf(live: LiveDevice, found: Omit<UploadStrategy, 'sealing'>): UploadStrategy {
  const { verification } = found;
  const usual = live.adapter.software ? 'readback' : 'kernel';
  return { ...found, sealing: verification === 'none' ? usual : verification };
}

/** The way up is measured together with the check that goes with it, since they share the device. */
function measuredPath(
  { uploadPaths }: Findings,
  unitBytes: number,
  verification: VerificationName,
  open: OpenTrial,
): Promise<UploadPathName> {
  const name = `${unitBytes} ${verification}`;
  let path = uploadPaths.get(name);
  if (path === undefined) {
    path = fastest(['ring', 'writeBuffer'], unitBytes, UPLOAD_BYTES, (one, shape) =>
      open(shape, { uploadPath: one, verification }),
    );
    uploadPaths.set(name, path);
  }
  return path;
}

/**
 * The name whose store takes the units in the shortest time; the first of those that are about equal or do not work.
 *
 * Hazard, staging of the driver's: as long as a device has only ever taken writes, `writeBuffer` goes through the same few
 * pages, which the caches hold. The first reads beside writes spread it over more memory, and on a device that has the host's
 * caches it never is as fast again. So each store does both at once before it is timed.
 */
async function fastest<Name>(
  names: readonly [Name, Name],
  unitBytes: number,
  totalBytes: number,
  open: (name: Name, shape: PoolShape) => Promise<TierStore>,
): Promise<Name> {
  const units = totalBytes / unitBytes;
  const shape = poolShape(units, unitBytes, [unitBytes]);
  const bestMs = names.map(() => Number.POSITIVE_INFINITY);
  const stores = await Promise.all(names.map((name) => open(name, shape)));
  const source = new Uint8Array(totalBytes).fill(0x3c);
  try {
    for (const store of stores) await warmUp(store, source, units);
    for (let trial = 0; trial < TRIALS; trial++) {
      for (const [i, store] of stores.entries()) {
        const items = trialItems(3 + trial, source, units);
        const started = performance.now();
        const ends = await store.write(items);
        const elapsedMs = performance.now() - started;
        const whole = ends.every((end) => end.outcome === Outcome.LOADED);
        if (whole) bestMs[i] = Math.min(bestMs[i], elapsedMs);
      }
    }
  } finally {
    for (const store of stores) await store[Symbol.asyncDispose]();
  }
  return bestMs[1] < ADVANTAGE * bestMs[0] ? names[1] : names[0];
}

/** Fills the store, and writes one half of it again while the other half is read. */
async function warmUp(store: TierStore, source: Uint8Array, units: number): Promise<void> {
  const first = trialItems(1, source, units);
  await store.write(first);
  const half = units >> 1;
  const readTo = new Uint8Array(source.byteLength / 2);
  const unitBytes = source.byteLength / units;
  const reads = first.slice(0, half).map((item, i) => ({
    ...item,
    bytes: readTo.subarray(i * unitBytes, (i + 1) * unitBytes),
  }));
  await Promise.all([store.read(reads), store.write(trialItems(2, source, units).slice(half))]);
}

/** The size with the smallest ratio to `wanted`. */
function nearest(sizes: readonly number[], wanted: number): number {
  const distance = (size: number): number => Math.abs(Math.log(size / wanted));
  return sizes.reduce((best, size) => (distance(size) < distance(best) ? size : best));
}

/** Each unit comes from memory of its own, as it would from a tier: not from a cache. */
function trialItems(generation: number, source: Uint8Array, units: number): StoreItem[] {
  const unitBytes = source.byteLength / units;
  const digest = hostDigest(source.subarray(0, unitBytes));
  return Array.from({ length: units }, (_, slot) => ({
    slot,
    sizeClass: 0,
    generation,
    key: new Uint32Array(4),
    digest,
    bytes: source.subarray(slot * unitBytes, (slot + 1) * unitBytes),
  }));
}
