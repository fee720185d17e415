/** A bench as a report: how much of what this machine's links can do does tierkv get, and what does the manager cost? */

import type { LinkRound, LinkRow } from '../../studies/measure/links.ts';
import type { ManagerRow } from '../../studies/measure/manager.ts';
import {
  linkTitle,
  type Report,
  type ReportSection,
  type TimelineSection,
  tierDepth,
  tierTitle,
  written,
} from './model.ts';
import { originOf } from './origin.ts';

interface MeasuredMachine {
  readonly adapter?: { readonly name: string; readonly software: boolean };
  readonly links?: readonly LinkRow[];
  /** Each round of each link, in the order in which they ran. */
  readonly samples?: readonly LinkRound[];
  readonly manager?: readonly ManagerRow[];
  readonly command: string;
}

/** A link is used well from this share of its limit on. */
const GOOD_SHARE = 0.85;
const NOISY = 0.3;

export function benchReport(measured: MeasuredMachine): Report {
  const { adapter, samples = [], manager = [], command } = measured;
  const links = (measured.links ?? []).map((row) => ({ ...row, link: linkTitle(row.link) }));
  const names = [...new Set(links.map(({ link }) => link))];
  const bestOf = (link: string): LinkRow =>
    asUsed(links.filter((row) => row.link === link)).reduce((a, b) => (b.gbps > a.gbps ? b : a));
  const best = names.map(bestOf);
  const good = best.filter(({ ratio }) => ratio >= GOOD_SHARE).length;
  const least = best.reduce<LinkRow | undefined>(
    (a, b) => (a === undefined || b.ratio < a.ratio ? b : a),
    undefined,
  );
  const pairs = manager.find(({ unit }) => unit === 'M pairs/s');
  const answer =
    least === undefined
      ? `The manager allocates and frees ${pairs === undefined ? '-' : `${pairs.value.toPrecision(3)} million`} blocks a second.`
      : `${good} of ${best.length} links give ${written(GOOD_SHARE, 'share')} or more of what their slowest part does alone; ${least.link} gives the least, ${written(least.ratio, 'share')}.`;
  return {
    title: adapter === undefined ? 'What the manager costs' : `What the links of ${adapter.name} give`,
    question:
      links.length === 0
        ? 'What does the manager cost?'
        : 'How much of what the links can do does tierkv get?',
    answer,
    verdict: least === undefined ? 'open' : least.ratio >= GOOD_SHARE ? 'yes' : 'open',
    figures: [
      ...best.map(({ link, gbps, ratio, spread, limitGbps }) => ({
        name: link,
        value: gbps * 1e9,
        unit: 'bytesPerS' as const,
        ...(spread === undefined
          ? {}
          : {
              spread: {
                low: gbps * 1e9 * (1 - spread / 2),
                high: gbps * 1e9 * (1 + spread / 2),
                over: 'rounds',
              },
            }),
        note: `${written(ratio, 'share')} of ${written(limitGbps * 1e9, 'bytesPerS')}`,
      })),
      ...manager
        .slice(0, 4)
        .map(({ what, value, unit }) => ({ name: what, value, unit: 'plain' as const, note: unit })),
    ],
    sections: [
      ...(best.length === 0 ? [] : [limitBars(best)]),
      ...names
        .map((name) =>
          sizes(
            name,
            links.filter((row) => row.link === name),
          ),
        )
        .filter(({ series }) => series.some(({ points }) => points.length > 1)),
      ...(samples.length === 0 ? [] : [roundsOf(samples)]),
      ...(links.length === 0 ? [] : [linkTable(links)]),
      ...(manager.length === 0 ? [] : [managerTable(manager)]),
    ],
    next: advice(best, adapter?.software === true),
    limits: [
      ...(adapter?.software === true
        ? [`${adapter.name} is a software device: its rates say nothing about a GPU.`]
        : []),
      'A limit is what the slowest part of the machine has done in the same rounds, alone or in what was measured.',
      ...(links.some(({ spread = 0 }) => spread > NOISY)
        ? [`Some rounds differ by more than ${written(NOISY, 'share')}: the machine was not quiet.`]
        : []),
    ],
    origin: originOf(command, adapter === undefined ? {} : { device: adapter.name }),
  };
}

/** The rows of a link that go as in a runtime: with verification, where the link has it. */
function asUsed(rows: readonly LinkRow[]): readonly LinkRow[] {
  const verified = rows.filter((row) => row.verified);
  return verified.length > 0 ? verified : rows;
}

function limitBars(best: readonly LinkRow[]): ReportSection {
  return {
    kind: 'bars',
    title: 'tierkv beside the limit of each link',
    note: 'At the unit size that gives the most.',
    unit: 'bytesPerS',
    bars: best.flatMap(({ link, gbps, limitGbps, spread = 0 }) => [
      {
        name: link,
        group: 'tierkv',
        value: gbps * 1e9,
        low: gbps * 1e9 * (1 - spread / 2),
        high: gbps * 1e9 * (1 + spread / 2),
      },
      { name: link, group: 'limit', value: limitGbps * 1e9 },
    ]),
  };
}

function sizes(link: string, rows: readonly LinkRow[]): Extract<ReportSection, { kind: 'lines' }> {
  const of = (name: string, pick: (row: LinkRow) => number | undefined, pattern: LinkRow['pattern']) => ({
    name: pattern === 'contiguous' ? name : `${name}, ${pattern}`,
    points: asUsed(rows)
      .filter((row) => row.pattern === pattern)
      .flatMap((row): [number, number][] => {
        const gbps = pick(row);
        return gbps === undefined ? [] : [[row.unitBytes, gbps * 1e9]];
      })
      .sort(([a], [b]) => a - b),
  });
  const patterns = [...new Set(rows.map(({ pattern }) => pattern))];
  return {
    kind: 'lines',
    title: `${link} by size of the unit`,
    x: { title: 'size of a unit', unit: 'bytes', isLog: true },
    y: { title: 'rate', unit: 'bytesPerS' },
    series: patterns
      .flatMap((pattern) => [
        of('tierkv', ({ gbps }) => gbps, pattern),
        of('limit', ({ limitGbps }) => limitGbps, pattern),
        of('one at a time', ({ singleGbps }) => singleGbps, pattern),
      ])
      .filter(({ points }) => points.length > 0),
  };
}

/** The two tiers of a link, whichever way it goes, the faster one first: its lane. */
function endsOf(link: string): string {
  const [way] = link.split('+');
  const ends = way.split('To').map((end) => end.toLowerCase());
  ends.sort((a, b) => tierDepth(a) - tierDepth(b) || (a < b ? -1 : 1));
  return ends.map(tierTitle).join(' and ');
}

/** A lane of rates for each pair of tiers, round by round: whether the machine was quiet shows here. */
function roundsOf(samples: readonly LinkRound[]): TimelineSection {
  const names = [...new Set(samples.map(({ link }) => link))];
  const lanes = [...new Set(names.map(endsOf))];
  return {
    kind: 'timeline',
    title: 'Round by round',
    note: 'What tierkv moved in each round, over the seconds of the bench; sizes and patterns follow each other. Below it each round is a bar: a click zooms to it.',
    lanes: lanes.map((lane) => ({
      name: `rate of tierkv, ${lane}`,
      unit: 'bytesPerS' as const,
      series: names
        .filter((name) => endsOf(name) === lane)
        .map((name) => ({
          name: linkTitle(name),
          points: samples.filter(({ link }) => link === name).map(({ atS, gbps }) => [atS, gbps * 1e9]),
        })),
    })),
    events: [],
    requests: samples.map(({ link, unitBytes, pattern, atS, seconds, gbps }, i) => ({
      id: `round ${i + 1}`,
      arrivalS: Math.max(0, atS - seconds),
      joinedS: null,
      firstTokenS: null,
      endS: atS,
      where: linkTitle(link),
      promptTokens: 0,
      outputTokens: 0,
      status: `${written(gbps * 1e9, 'bytesPerS')}, ${pattern} blocks of ${written(unitBytes, 'bytes')}`,
    })),
    requestsInAll: samples.length,
    parts: ['moves'],
    place: 'link',
    of: 'round',
  };
}

function linkTable(rows: readonly LinkRow[]): ReportSection {
  return {
    kind: 'table',
    title: 'All rows',
    columns: [
      { title: 'link' },
      { title: 'unit', unit: 'bytes' },
      { title: 'pattern' },
      { title: 'verified' },
      { title: 'tierkv', unit: 'bytesPerS' },
      { title: 'limit', unit: 'bytesPerS' },
      { title: 'of it', unit: 'share' },
      { title: 'alone', unit: 'ms' },
      { title: 'slowest part' },
    ],
    rows: rows.map((row) => [
      `${row.link}${row.software ? ' (SW)' : ''}`,
      row.unitBytes,
      row.pattern,
      row.verified ? 'yes' : 'no',
      row.gbps * 1e9,
      row.limitGbps * 1e9,
      row.ratio,
      row.aloneUs === undefined ? null : row.aloneUs / 1000,
      row.limitStage,
    ]),
  };
}

function managerTable(rows: readonly ManagerRow[]): ReportSection {
  return {
    kind: 'table',
    title: 'The manager, on one thread',
    columns: [{ title: '' }, { title: 'value', unit: 'plain' }, { title: 'unit' }],
    rows: rows.map(({ what, value, unit }) => [what, value, unit]),
  };
}

function advice(best: readonly LinkRow[], isSoftware: boolean): string[] {
  if (best.length === 0) return ['Measure the links, too: tierkv bench all.'];
  const poor = best.filter(({ ratio }) => ratio < GOOD_SHARE);
  return [
    ...poor.map(
      ({ link, limitStage, ratio }) =>
        `${link}: ${written(1 - ratio, 'share')} of its limit is lost; its slowest part is ${limitStage}.`,
    ),
    ...(isSoftware ? ['Measure on a machine with a GPU before you size tiers by this.'] : []),
    'Give the figures to the simulator: tierkv calibrate writes them as a profile of links.',
  ];
}
