/** Sizes as people write them: bytes with a unit, or a number of blocks. */

import { configError } from './errors.ts';

const sizePattern = /^(\d+(?:\.\d+)?)\s*(B|[KMGTP]iB|[kMGTP]B)?$/;

/** Bytes of a unit: binary ones as memory is counted, decimal ones as disks are sold. */
function unitBytes(unit: string): number {
  const exponent = ['B', 'K', 'M', 'G', 'T', 'P'].indexOf(unit[0].toUpperCase());
  return (unit.endsWith('iB') ? 1024 : 1000) ** exponent;
}

/**
 * A size as the user wrote it: `65536`, `64KiB`, `1 MiB`, `1.5TB`.
 * @throws {TierKVError} TKV_CONFIG naming `field` for anything else, and for a size that is not exact in a
 * number.
 */
export function parseBytes(field: string, text: string): number {
  const [, digits, unit = 'B'] = sizePattern.exec(text.trim()) ?? [];
  const bytes = Number(digits) * unitBytes(unit);
  if (!Number.isSafeInteger(bytes)) {
    throw configError(
      field,
      `is "${text}", not a size`,
      'Write bytes, or a number of KiB, MiB, GiB or TiB that comes to whole bytes.',
    );
  }
  return bytes;
}

/**
 * How many blocks a size comes to: a number of blocks, or bytes with a unit, of which whole blocks count.
 * @param bytesPerBlock bytes that a block takes there
 * @returns NaN for what is neither
 */
export function parseBlocks(text: string, bytesPerBlock: number): number {
  if (/^\d+(e\d+)?$/i.test(text.trim())) return Number(text);
  const [, digits, unit] = sizePattern.exec(text.trim()) ?? [];
  return unit === undefined ? Number.NaN : Math.floor((Number(digits) * unitBytes(unit)) / bytesPerBlock);
}
