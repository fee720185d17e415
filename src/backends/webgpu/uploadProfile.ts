/**
 * What an earlier measurement found fastest on a device, so that a start need not measure again: the part `uploads` of the
 * profile that `tierkv calibrate` writes.
 *
 *     { "schema": "tierkv.links/1", "device": "adapter", ...,
 *       "uploads": { "verification": "kernel", "sizes": [{ "bytes": 16384, "uploadPath": "ring" }, ...] } }
 *
 * It counts for the adapter that it was measured on; on another one its pool measures, as without a profile.
 */

import { readFileSync } from 'node:fs';
import { TierKVError } from '../../runtime/errors.ts';
import { type UploadPathName, uploadPathNames } from './uploadPath.ts';

export interface UploadProfile {
  /** Name of the adapter. */
  readonly device: string;
  readonly verification: 'kernel' | 'readback';
  /** The fastest way up by unit size, one or more. */
  readonly sizes: readonly { readonly bytes: number; readonly uploadPath: UploadPathName }[];
}

/** The way up that was measured at the size with the smallest ratio to `unitBytes`. */
export function profiledPath({ sizes }: UploadProfile, unitBytes: number): UploadPathName {
  const distance = (bytes: number): number => Math.abs(Math.log(bytes / unitBytes));
  return sizes.reduce((best, one) => (distance(one.bytes) < distance(best.bytes) ? one : best)).uploadPath;
}

/** @throws TKV_IO when the file cannot be read, TKV_INPUT naming the key when it is no profile of `tierkv calibrate` */
export function readUploadProfile(path: string): UploadProfile {
  let text: string;
  try {
    text = readFileSync(path, 'utf8');
  } catch (cause) {
    const why = cause instanceof Error ? cause.message : String(cause);
    throw new TierKVError('TKV_IO', `${path} cannot be read: ${why}. Run tierkv calibrate --out ${path}.`, {
      path,
      cause,
    });
  }
  const fail = (field: string, problem: string): TierKVError =>
    new TierKVError('TKV_INPUT', `${path}: ${field} ${problem}. Run tierkv calibrate --out ${path} again.`, {
      field,
      path,
    });
  let root: unknown;
  try {
    root = JSON.parse(text);
  } catch {
    throw fail('the profile', 'is not JSON');
  }
  const { schema, device, uploads } = record(root);
  if (schema !== 'tierkv.links/1') throw fail('schema', `is ${JSON.stringify(schema)}, not "tierkv.links/1"`);
  if (typeof device !== 'string' || device === '') throw fail('device', 'is missing');
  const { verification, sizes } = record(uploads);
  if (verification !== 'kernel' && verification !== 'readback') {
    throw fail('uploads.verification', `is ${JSON.stringify(verification)}, neither kernel nor readback`);
  }
  if (!Array.isArray(sizes) || sizes.length === 0) throw fail('uploads.sizes', 'is missing or empty');
  return {
    device,
    verification,
    sizes: sizes.map((size: unknown, i) => {
      const { bytes, uploadPath } = record(size);
      if (typeof bytes !== 'number' || !(bytes > 0)) {
        throw fail(`uploads.sizes[${i}].bytes`, `is ${JSON.stringify(bytes)}, not a size in bytes`);
      }
      const known = uploadPathNames.find((name) => name === uploadPath);
      if (known === undefined) {
        const names = uploadPathNames.join(' nor ');
        throw fail(`uploads.sizes[${i}].uploadPath`, `is ${JSON.stringify(uploadPath)}, neither ${names}`);
      }
      return { bytes, uploadPath: known };
    }),
  };
}

function record(value: unknown): Record<string, unknown> {
  return typeof value === 'object' && value !== null ? (value as Record<string, unknown>) : {};
}
