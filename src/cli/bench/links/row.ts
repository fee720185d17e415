/** A line of `tierkv bench links`, made from the medians of the rounds: as JSON and in a table. */

import { formatBytes, renderTable } from '../../output/index.ts';
import { nameOf } from './contestants.ts';
import type { Medians } from './rounds.ts';
import { limitOf, linkOf, type Route, stagesOf } from './routes.ts';

export interface RowFacts {
  /** Size of one block; a run moves many of them in one batch. */
  readonly unitBytes: number;
  readonly pattern: 'contiguous' | 'scattered';
  /** Whether a software device is part of the link: its times say nothing about a GPU. */
  readonly software: boolean;
}

export interface LinkRow extends RowFacts {
  readonly link: string;
  readonly verified: boolean;
  /** tierkv, in 10^9 bytes a second. Both ways: the sum of the two. */
  readonly gbps: number;
  readonly limitGbps: number;
  /** All that the slowest part of the machine does. */
  readonly limitStage: string;
  /** gbps / limitGbps. */
  readonly ratio: number;
  /** Each stage of the link alone. */
  readonly stagesGbps: Readonly<Record<string, number>>;
  /** One block at a time by plain calls, with the checks of the row. One way only. */
  readonly singleGbps?: number;
  /** All in one transfer by plain calls, with the checks of the row. Between HBM and DDR, one way only. */
  readonly bulkGbps?: number;
  /** From submission to end of a block that travels alone. One way only. */
  readonly aloneUs?: number;
}

/** @param medians GB/s of all contestants by name @param readback see `stagesOf` */
export function rowOf(route: Route, medians: Medians, readback: boolean, facts: RowFacts): LinkRow {
  const gbpsOf = (name: string): number => medians.get(name)!;
  const gbps = gbpsOf(nameOf('tierkv', route));
  const [limitGbps, limitStage] = limitOf(route, readback, gbpsOf);
  const stages = stagesOf(route, readback).flatMap((part) => part.map((stage) => [stage, gbpsOf(stage)]));
  const [single, bulk, alone] = (['single', 'bulk', 'alone'] as const).map((who) => nameOf(who, route));
  const link = linkOf(route);
  return {
    ...facts,
    software: facts.software && /hbm/i.test(link),
    link,
    verified: route.verified,
    gbps,
    limitGbps,
    limitStage,
    ratio: gbps / limitGbps,
    stagesGbps: Object.fromEntries(stages),
    ...(medians.has(single) && { singleGbps: gbpsOf(single) }),
    ...(medians.has(bulk) && { bulkGbps: gbpsOf(bulk) }),
    ...(medians.has(alone) && { aloneUs: facts.unitBytes / gbpsOf(alone) / 1e3 }),
  };
}

export function renderRows(rows: readonly LinkRow[]): string {
  const figure = (value: number | undefined, digits = 2): string => value?.toFixed(digits) ?? '-';
  const left = ['link', 'unit', 'blocks', 'verified', 'slowest part'].map((title) => ({ title }));
  const right = ['limit', 'GB/s', 'of limit', 'single', 'bulk', 'alone µs'];
  return renderTable(
    [...left, ...right.map((title) => ({ title, align: 'right' as const }))],
    rows.map((row) => [
      row.software ? `${row.link} (SW)` : row.link,
      formatBytes(row.unitBytes),
      row.pattern,
      row.verified ? 'yes' : 'no',
      row.limitStage,
      ...[row.limitGbps, row.gbps].map((gbps) => figure(gbps)),
      `${figure(row.ratio * 100, 0)} %`,
      ...[row.singleGbps, row.bulkGbps].map((gbps) => figure(gbps)),
      figure(row.aloneUs, 0),
    ]),
  );
}
