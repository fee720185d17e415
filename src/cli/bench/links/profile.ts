/**
 * From rows of the link bench to the profile that the simulator loads (schema tierkv.links/1): what each transfer of a batch
 * takes of the link against its size, how much longer one takes that travels alone, and the share of its bandwidth that a
 * direction keeps while the opposite one is busy.
 */

import type { UploadProfile } from '../../../backends/webgpu/index.ts';
import type { UploadPathName } from '../../../backends/webgpu/uploadPath.ts';
import { fitLink, type LinkSample, linkSchema } from '../../../sim/latency/index.ts';
import { median } from './rounds.ts';
import type { LinkRow } from './row.ts';

export interface LinkFigures {
  /** Each size, and what one transfer of it takes of the link in a batch. */
  readonly sizes: readonly LinkSample[];
  readonly delayUs: number;
  readonly bothWaysShare: number;
}

export interface MeasuredProfile {
  readonly schema: typeof linkSchema;
  /** The adapter of HBM. */
  readonly device: string;
  readonly driver: string;
  readonly date: string;
  readonly software: boolean;
  /** What the runtime need not measure again: see `readUploadProfile`. */
  readonly uploads: Omit<UploadProfile, 'device'>;
  readonly links: Readonly<Record<string, LinkFigures>>;
}

/** The rows that describe what the runtime does: units lie anywhere, and what arrives is verified. */
function usual(rows: readonly LinkRow[]): LinkRow[] {
  const scattered = rows.filter((row) => row.pattern.startsWith('scattered'));
  const mostVerified = new Map<string, number>();
  for (const { link, verify } of scattered) {
    mostVerified.set(link, Math.max(mostVerified.get(link) ?? 0, strength(verify)));
  }
  return scattered.filter((row) => strength(row.verify) === mostVerified.get(row.link));
}

function strength(verify: LinkRow['verify']): number {
  return ['none', 'host', 'hbm'].indexOf(verify);
}

/** @param rows of all six links and their pairs, at two sizes or more */
export function profileOf(
  rows: readonly LinkRow[],
  about: Pick<MeasuredProfile, 'device' | 'driver' | 'date' | 'software'>,
): MeasuredProfile {
  const own = usual(rows);
  const oneWay = own.filter((row) => !row.link.includes('+'));
  const gbpsOf = (link: string, bytes: number): number =>
    oneWay.find((row) => row.link === link && row.bytes === bytes)!.gbps;
  const links: Record<string, LinkFigures> = {};
  for (const link of new Set(oneWay.map((row) => row.link))) {
    const measured = oneWay.filter((row) => row.link === link);
    const sizes = measured.map(({ bytes, gbps }) => ({ bytes, latencyUs: round(bytes / gbps / 1e3) }));
    const { baseLatencyUs, bandwidthBytesPerS } = fitLink(sizes);
    const alone = measured.map(
      ({ bytes, p50Us }) => p50Us - baseLatencyUs - (bytes * 1e6) / bandwidthBytesPerS,
    );
    const shares = own
      .filter((row) => row.link.split('+').includes(link) && row.link.includes('+'))
      .map(({ link: pair, bytes, gbps }) => {
        const [there, back] = pair.split('+') as [string, string];
        // half of the bytes each way: what the pair reaches, of what both would with nobody opposite
        const idealGbps = 2 / Math.max(1 / gbpsOf(there, bytes), 1 / gbpsOf(back, bytes));
        return Math.min(1, gbps / idealGbps);
      });
    links[link] = {
      sizes,
      delayUs: round(Math.max(0, Math.min(...alone))),
      bothWaysShare: round(shares.length === 0 ? 1 : median(shares)),
    };
  }
  return { schema: linkSchema, ...about, uploads: uploadsOf(oneWay), links };
}

function uploadsOf(rows: readonly LinkRow[]): MeasuredProfile['uploads'] {
  const sizes: { bytes: number; uploadPath: UploadPathName }[] = [];
  for (const { link, bytes, verify, uploadPath } of rows) {
    if (link === 'ddrToHbm' && verify === 'hbm' && uploadPath !== undefined)
      sizes.push({ bytes, uploadPath });
  }
  return { verification: rows.some((row) => row.arrivalCheck === 'readback') ? 'readback' : 'kernel', sizes };
}

function round(value: number): number {
  return Number(value.toPrecision(4));
}
