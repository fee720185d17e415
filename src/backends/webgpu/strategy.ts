/**
 * Which way of uploading and of verifying is fastest on a device, measured once a device in a fraction of a second on a pool
 * of its own, by the store's own calls. What the caller names is taken as given; only what is left open is measured.
 *
 * A hardware device is never asked whether it verifies by readback: its digest kernel works at the speed of its memory, and
 * the way back would take the link that other transfers need.
 */

import { poolShape } from '../../runtime/pool/shape.ts';
import { Outcome } from '../../runtime/transfer/outcome.ts';
import type { StoreItem, TierStore } from '../../runtime/transfer/tierStore.ts';
import { hostDigest } from '../digest/index.ts';
import type { VerificationName } from './arrivals.ts';
import type { LiveDevice } from './liveDevice.ts';
import type { UploadPathName } from './uploadPath.ts';

export interface UploadStrategy {
  readonly uploadPath: UploadPathName;
  readonly verification: VerificationName;
  /** How it was found: `measured`, or `given` where nothing was left open. */
  readonly found: 'measured' | 'given';
}

/** What a caller may leave open. */
export interface UploadWishes {
  readonly uploadPath: UploadPathName | undefined;
  readonly verification: VerificationName | undefined;
}

/** Opens a small pool that works in the given way. */
export type OpenTrial = (
  shape: ReturnType<typeof poolShape>,
  strategy: { uploadPath: UploadPathName; verification: VerificationName },
) => Promise<TierStore>;

const UNIT_BYTES = 256 * 1024;
const UNITS = 8;
const TRIALS = 3;

interface Findings {
  uploadPath?: Promise<UploadPathName>;
  verification?: Promise<VerificationName>;
}

const known = new WeakMap<LiveDevice, Findings>();

export async function chooseStrategy(
  live: LiveDevice,
  wishes: UploadWishes,
  open: OpenTrial,
): Promise<UploadStrategy> {
  const { uploadPath, verification } = wishes;
  const findings = known.get(live) ?? {};
  known.set(live, findings);
  if (uploadPath === undefined) {
    findings.uploadPath ??= fastest(['ring', 'writeBuffer'], (one) =>
      open(trialShape, { uploadPath: one, verification: 'none' }),
    );
  }
  const path = uploadPath ?? (await findings.uploadPath!);
  if (verification === undefined) {
    findings.verification ??= live.adapter.software
      ? fastest(['kernel', 'readback'], (one) => open(trialShape, { uploadPath: 'ring', verification: one }))
      : Promise.resolve('kernel');
  }
  return {
    uploadPath: path,
    verification: verification ?? (await findings.verification!),
    found: uploadPath === undefined || verification === undefined ? 'measured' : 'given',
  };
}

const trialShape = poolShape(UNITS, UNIT_BYTES, [UNIT_BYTES]);

/** The name whose store takes the units in the shortest time; the first of equals, and of stores that do not work. */
async function fastest<Name>(
  names: readonly [Name, Name],
  open: (name: Name) => Promise<TierStore>,
): Promise<Name> {
  const bestMs = names.map(() => Number.POSITIVE_INFINITY);
  const stores = await Promise.all(names.map(open));
  try {
    for (let trial = 0; trial <= TRIALS; trial++) {
      for (const [i, store] of stores.entries()) {
        const items = trialItems(trial + 1);
        const started = performance.now();
        const ends = await store.write(items);
        const elapsedMs = performance.now() - started;
        const whole = ends.every((end) => end.outcome === Outcome.LOADED);
        if (trial > 0 && whole) bestMs[i] = Math.min(bestMs[i]!, elapsedMs); // the first one warms up
      }
    }
  } finally {
    for (const store of stores) await store[Symbol.asyncDispose]();
  }
  return bestMs[1]! < bestMs[0]! ? names[1] : names[0];
}

function trialItems(generation: number): StoreItem[] {
  const bytes = new Uint8Array(UNIT_BYTES).fill(0x3c);
  const digest = hostDigest(bytes);
  return Array.from({ length: UNITS }, (_, slot) => ({
    slot,
    sizeClass: 0,
    generation,
    key: new Uint32Array(4),
    digest,
    bytes,
  }));
}
