/**
 * Tiers as commands and replays take them: a name, a number of blocks, a place. What a tier is asked by, its row says
 * (`asked` of `TierRow`), so a tier that was registered is asked for like the tiers of this package.
 */

import fs from 'node:fs';
import os from 'node:os';
import { roomWithin, type TierQuestion, type TierRow } from '../../backends/tierRow.ts';
import { type TierOptions, tierRows } from '../../backends/tierRows.ts';
import { formatBytes } from '../../io/printing/text.ts';
import { configError } from '../../runtime/errors.ts';
import { parseBlocks } from '../../runtime/sizes.ts';
import { type TierName, TOP } from '../../runtime/tier/tier.ts';

/** Slots of a tier: a count, or 'all' for "as many as the trace needs" (last tier only). */
export type BlockBudget = number | 'all';

/** A tier that is on. A list of them goes from fast to slow, and the first is the top tier. */
export interface SizedTier<Blocks extends BlockBudget = BlockBudget> {
  readonly name: TierName;
  readonly blocks: Blocks;
  /** Where it lies, for a tier that has to lie somewhere. A directory exists, is writable, and is the caller's to remove. */
  readonly place?: string;
}

interface AskedRow extends TierRow<TierOptions> {
  readonly asked: TierQuestion<TierOptions>;
}

/** Rows that commands ask for, from fast to slow. */
export function askedRows(): readonly AskedRow[] {
  return tierRows.filter((row): row is AskedRow => row.asked !== undefined);
}

/** Whether the tier is asked for by its size alone, and so is part of every report. */
export function isAlwaysAsked({ asked: { place } }: AskedRow): boolean {
  return place === undefined || place.isDirectory;
}

/** The tiers below the top that commands ask for by size alone, from fast to slow. */
export function lowerTiers(): readonly TierName[] {
  return askedRows()
    .filter(isAlwaysAsked)
    .slice(1)
    .map(({ name }) => name);
}

/** The option that says how large the tier is; its name for one that no command asks for. */
export function sizeOption(name: TierName): string {
  const asked = askedRows().find((row) => row.name === name)?.asked;
  return asked === undefined ? name : `--${asked.size.option}`;
}

/** The options of commands, by what the library calls the fields that they set. */
export function tierFieldOptions(): Readonly<Record<string, string>> {
  return Object.fromEntries(
    askedRows().flatMap(({ name, fieldNames, asked: { size, place } }) => {
      const sized = `--${size.option}`;
      const placed = place === undefined ? sized : `--${place.option}`;
      const optionOf = (field: string): string => (field.endsWith('.capacityBytes') ? sized : placed);
      const fields = Object.entries({ [`${name}.capacityBytes`]: '', ...fieldNames });
      return [
        [name, placed],
        [`${name}.url`, placed],
        ...fields.flatMap(([field, option]) => [
          [field, optionOf(field)],
          ...(option === '' ? [] : [[option, optionOf(field)]]),
        ]),
      ];
    }),
  );
}

/** Options of stores whose size a manager's configuration says. */
export function placesOf(tiers: readonly SizedTier[]): TierOptions {
  return optionsOf(tiers, () => 0);
}

/** Options of a runtime in which each tier has its number of blocks, whatever they take there beside their bytes. */
export function tierOptionsOf(tiers: readonly SizedTier<number>[], blockBytes: number): TierOptions {
  return optionsOf(tiers, (row, { blocks }) => bytesTaken(row, blocks, blockBytes));
}

function optionsOf<Tier extends SizedTier>(
  tiers: readonly Tier[],
  bytesOf: (row: AskedRow, tier: Tier) => number,
): TierOptions {
  const rows = askedRows();
  return Object.assign(
    {},
    ...tiers.map((tier) => {
      const row = rows.find(({ name }) => name === tier.name);
      return row?.asked.options(bytesOf(row, tier), tier.place ?? '');
    }),
  );
}

function bytesTaken(row: AskedRow, blocks: number, blockBytes: number): number {
  return row.bytesOf?.(blocks, blockBytes, [blockBytes]) ?? blocks * blockBytes;
}

/**
 * Blocks that a size comes to, as `parseBlocks`. Of bytes, only blocks count that fit beside what the tier takes for itself.
 * @param option without dashes
 * @returns NaN for what cannot be read as a size
 */
export function blocksAsked(option: string, text: string, blockBytes: number): number {
  const row = askedRows().find(({ asked: { size } }) => size.option === option);
  const blocks = parseBlocks(text, blockBytes);
  if (row === undefined || Number.isNaN(blocks) || /^[\de]+$/i.test(text.trim())) return blocks;
  return Math.floor(roomWithin(row, parseBlocks(text, 1), blockBytes, [blockBytes]) / blockBytes);
}

/**
 * Most blocks of all tiers together. The manager needs some 60 bytes of memory for each, so this is about 1
 * GB.
 */
export const maxBlocks: number = 2 ** 24;

/**
 * Refuses tiers that no machine could manage or address. What `all` comes to is not known yet.
 * @throws {TierKVError} TKV_CONFIG naming the largest tier's option.
 */
export function requireHoldable(tiers: readonly SizedTier[], blockBytes: number): void {
  let total = 0;
  let largest: SizedTier<number> = { name: tiers[TOP].name, blocks: 0 };
  for (const { name, blocks } of tiers) {
    if (blocks === 'all') continue;
    total += blocks;
    if (blocks > largest.blocks) largest = { name, blocks };
  }
  const { blocks } = largest;
  const option = sizeOption(largest.name);
  if (total > maxBlocks) {
    const problem = `is ${blocks}, and all tiers together would have ${total} blocks, more than ${maxBlocks}`;
    throw configError(
      option,
      problem,
      (called) => `Lower ${option}; larger blocks (${called('blockBytes')}) hold as much in fewer.`,
    );
  }
  if (blocks * blockBytes > Number.MAX_SAFE_INTEGER) {
    const problem = `makes ${blocks} blocks of ${blockBytes} bytes, more than can be addressed`;
    throw configError(option, problem, (called) => `Lower ${option} or ${called('blockBytes')}.`);
  }
}

/**
 * Refuses tiers of real bytes that this machine has no room for: of host memory, and of files. A directory that is not
 * named is one of the system's for temporary files.
 * @throws {TierKVError} TKV_CONFIG naming the option.
 */
export function requireRoom(tiers: readonly SizedTier[], blockBytes: number): void {
  const rows = askedRows();
  for (const { name, blocks, place } of tiers) {
    const row = rows.find((each) => each.name === name);
    if (row === undefined || blocks === 'all') continue;
    const taken = bytesTaken(row, blocks, blockBytes);
    const require = (bytes: number, where: string): void => {
      if (taken <= bytes) return;
      const option = sizeOption(name);
      const problem = `asks for ${formatBytes(taken)}, and ${where} ${formatBytes(bytes)}`;
      throw configError(option, problem, (called) => `Lower ${option} or ${called('blockBytes')}.`);
    };
    if (row.isHostMemory === true) require(os.totalmem(), 'this machine has a memory of');
    if (row.asked.place?.isDirectory !== true) continue;
    const dir = place ?? os.tmpdir();
    const { bavail, bsize } = fs.statfsSync(dir);
    require(bavail * bsize, `${dir} has free`);
  }
}
