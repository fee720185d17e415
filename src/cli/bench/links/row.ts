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
  /** What the slowest part of the machine has done in these rounds, alone or under anybody on this link. */
  readonly limitGbps: number;
  /** All that the slowest part of the machine does. */
  readonly limitStage: string;
  /** gbps / limitGbps; 1 at most. */
  readonly ratio: number;
  /** What tierkv moved for this row, and in which time. */
  readonly movedBytes?: number;
  readonly seconds?: number;
  /** The distance of tierkv's slowest round from its fastest, as a share of the median. */
  readonly spread?: number;
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
  const [alone, single, bulk] = (['alone', 'single', 'bulk'] as const).map((who) => nameOf(who, route));
  const [partGbps, limitStage] = limitOf(route, readback, gbpsOf);
  // whoever moves blocks over the whole link shows that each of its parts goes so fast
  const limitGbps = Math.max(partGbps, gbps, ...[single, bulk].map((who) => medians.get(who) ?? 0));
  const stages = stagesOf(route, readback).flatMap((part) => part.map((stage) => [stage, gbpsOf(stage)]));
  const sample = medians.samples?.get(nameOf('tierkv', route));
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
    ...(sample && { movedBytes: sample.bytes, seconds: sample.seconds, spread: sample.spread }),
    stagesGbps: Object.fromEntries(stages),
    ...(medians.has(single) && { singleGbps: gbpsOf(single) }),
    ...(medians.has(bulk) && { bulkGbps: gbpsOf(bulk) }),
    ...(medians.has(alone) && { aloneUs: facts.unitBytes / gbpsOf(alone) / 1e3 }),
  };
}

/** Above it a row is called noisy: its rounds differ by more than half of their median. */
const NOISY = 0.5;

/** A table for each size and pattern. Figures are GB/s where no unit stands beside them. */
export function renderRows(rows: readonly LinkRow[]): string {
  const tables = Map.groupBy(
    rows,
    ({ unitBytes, pattern }) => `${pattern} blocks of ${formatBytes(unitBytes)}`,
  );
  const notes = [
    ...(rows.some(({ software }) => software) ? ['(SW) a software device has a part in the link'] : []),
    ...(rows.some(({ spread = 0 }) => spread > NOISY)
      ? [`! the rounds of tierkv differ by more than ${100 * NOISY} %: the machine was not quiet`]
      : []),
  ];
  const texts = [...tables].map(([title, those]) => `${title}, GB/s\n${tableOf(those)}`);
  return [...texts, ...notes.map((note) => `${note}\n`)].join('');
}

function tableOf(rows: readonly LinkRow[]): string {
  const figure = (value: number | undefined, digits = 2): string => value?.toFixed(digits) ?? '-';
  const right = ['tierkv', '±', 'limit', 'of it', 'single', 'bulk', 'alone', 'moved', 'in'];
  return renderTable(
    [
      { title: 'link' },
      ...right.map((title) => ({ title, align: 'right' as const })),
      { title: 'slowest part' },
    ],
    rows.map((row) => [
      `${row.link.replace('+', ' +')}${row.verified ? ', verified' : ''}${row.software ? ' (SW)' : ''}`,
      figure(row.gbps),
      row.spread === undefined ? '-' : `${figure(50 * row.spread, 0)} %${row.spread > NOISY ? '!' : ''}`,
      figure(row.limitGbps),
      `${figure(row.ratio * 100, 0)} %`,
      ...[row.singleGbps, row.bulkGbps].map((gbps) => figure(gbps)),
      row.aloneUs === undefined ? '-' : `${figure(row.aloneUs, 0)} µs`,
      row.movedBytes === undefined ? '-' : formatBytes(row.movedBytes),
      row.seconds === undefined ? '-' : `${figure(row.seconds, 1)} s`,
      row.limitStage.replace('digest of staging', 'digest'),
    ]),
  );
}
