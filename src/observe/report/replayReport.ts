/** A replay, or a study of eviction policies on a trace, as a report: what did the tiers save, and which policy saves most? */

import { TOP, tierNames } from '../../runtime/tier/tier.ts';
import type { ReplayReport } from '../../studies/replay/report.ts';
import type { Study } from '../../studies/replay/study.ts';
import { linkTitle, type Report, type ReportSection, tierTitle, written } from './model.ts';
import { originOf, settingIn } from './origin.ts';
import type { ReplayTimeline } from './replayTimeline.ts';

export interface ReplayedTrace {
  readonly replay?: ReplayReport;
  readonly study?: Study;
  /** Events over time; only for a replay of a trace. */
  readonly timeline?: ReplayTimeline;
  readonly trace: string;
  readonly command: string;
}

const OPTIMUM = 'optimum';

export function replayReport(replayed: ReplayedTrace): Report {
  const { replay, study, timeline, trace, command } = replayed;
  const sections = [
    ...(replay === undefined ? [] : replaySections(replay)),
    ...(timeline === undefined || replay === undefined ? [] : [timeline.section(clockOf(replay))]),
    ...(study === undefined ? [] : studySections(study)),
  ];
  const told = replay === undefined ? ofStudy(study as Study, command) : ofReplay(replay, command);
  return {
    ...told,
    sections,
    origin: originOf(command, {
      trace,
      ...(replay === undefined
        ? {}
        : { driver: replay.driver, policy: replay.policy, 'decision digest': replay.decisionDigest }),
    }),
  };
}

/** Says what the bar of a request means. */
function clockOf({ driver }: ReplayReport): string {
  return driver === 'modeled'
    ? 'the time of its loads and stores by the link model'
    : 'the time of its loads, seals and checks on this machine';
}

type ReplayStory = Pick<Report, 'title' | 'question' | 'answer' | 'verdict' | 'figures' | 'next' | 'limits'>;

function ofReplay(replay: ReplayReport, command: string): ReplayStory {
  const {
    hits,
    hbmAloneHits,
    blockLookups,
    requests,
    verified,
    verifyFailures,
    adapter,
    driver,
    wallSeconds,
  } = replay;
  const of = (blocks: number): number => (blockLookups === 0 ? 0 : blocks / blockLookups);
  const all = sumOf(hits);
  const [top] = Object.keys(hits);
  const ofTop =
    hbmAloneHits === undefined
      ? `in ${tierTitle(top)} ${written(of(hits[top]), 'share')}`
      : `with ${tierTitle(top)} alone ${written(of(hbmAloneHits), 'share')}`;
  const isRight = verifyFailures === 0;
  const answer = isRight
    ? `With its tiers ${written(of(all), 'share')} of the blocks of ${requests} requests were found, ${ofTop}.`
    : `No: ${verifyFailures} of ${verified} verified blocks were wrong.`;
  return {
    title: 'A trace through the tiers',
    question: 'How much of the prompts need not be computed again?',
    answer,
    verdict: isRight ? 'open' : 'no',
    figures: [
      { name: 'found in any tier', value: of(all), unit: 'share' },
      ...Object.entries(hits).map(([tier, blocks]) => ({
        name: `found: ${tierTitle(tier)}`,
        value: of(blocks),
        unit: 'share' as const,
      })),
      {
        name: 'blocks that came back wrong',
        value: verifyFailures,
        unit: 'count',
        target: { most: 0 },
        note: `${written(verified, 'count')} verified`,
      },
      { name: 'requests', value: requests, unit: 'count' },
      { name: 'time of the replay', value: wallSeconds, unit: 's' },
    ],
    next: adviceOf(replay, of(all - hits[top]), command),
    limits: [
      ...(driver === 'modeled' ? ['No bytes moved: rates are those of the link model.'] : []),
      ...(adapter.software && driver === 'real'
        ? [`${adapter.name} is a software device: its rates say nothing about a GPU.`]
        : []),
      ...(replay.skippedLines === 0
        ? []
        : [`${replay.skippedLines} malformed lines of the trace were left out.`]),
      'Requests of a replay follow each other as the trace has them; nothing waits for a GPU that computes.',
    ],
  };
}

function sumOf(hits: ReplayReport['hits']): number {
  return Object.values(hits).reduce((sum, blocks) => sum + blocks, 0);
}

/** @param lower share of the blocks that was found below the top tier */
function adviceOf(replay: ReplayReport, lower: number, command: string): string[] {
  const { demotions, hits, blockLookups } = replay;
  const missed = blockLookups - sumOf(hits);
  return [
    ...(demotions.dropped > 0 && missed > 0
      ? [
          `${written(demotions.dropped, 'count')} blocks left the last tier: see what a larger one finds with ${settingIn(command, 'eviction')} all over several ${settingIn(command, tierNames[TOP])}.`,
        ]
      : []),
    ...(demotions.dropped === 0
      ? ['No block was lost: what was missed was never seen, and no tier would have found it.']
      : []),
    ...(lower < 0.01
      ? ['The lower tiers found little: GPU memory holds what this trace comes back to.']
      : []),
    `To see why a request missed, keep the decision log (${settingIn(command, 'log')}) and ask tierkv explain.`,
  ];
}

function ofStudy(study: Study, command: string): ReplayStory {
  const { rows, requests, lookups } = study;
  const ran = rows.filter(({ policy }) => policy !== OPTIMUM);
  const best = ran.reduce((a, b) => (b.points > a.points ? b : a));
  const optimum = rows.find(({ policy, capacity }) => policy === OPTIMUM && capacity === best.capacity);
  const lru = rows.find(({ policy, capacity }) => policy === 'lru' && capacity === best.capacity);
  return {
    title: 'Eviction policies on a trace',
    question: 'Which eviction policy finds most, and how much is left to gain?',
    answer:
      best.points > 0
        ? `${best.policy} finds ${written(best.hitPercent / 100, 'share')} of the blocks in ${written(best.capacity, 'count')} blocks of GPU memory, ${best.points.toFixed(2)} points more than lru` +
          `${best.closedPercent === null ? '.' : ` and ${best.closedPercent.toFixed(0)} % of the way to what is possible.`}`
        : 'No policy finds more than lru on this trace.',
    verdict: best.points > 0 ? 'yes' : 'open',
    figures: [
      ...(best.policy === 'lru'
        ? []
        : [{ name: `found, ${best.policy}`, value: best.hitPercent / 100, unit: 'share' as const }]),
      { name: 'found, lru', value: lru === undefined ? null : lru.hitPercent / 100, unit: 'share' },
      {
        name: 'found with the future known',
        value: optimum === undefined ? null : optimum.hitPercent / 100,
        unit: 'share',
      },
      { name: 'requests', value: requests, unit: 'count' },
      { name: 'blocks asked for', value: lookups, unit: 'count' },
    ],
    next: [
      ...(best.points > 0
        ? [
            `Open the runtime with eviction: { policy: '${best.policy}' }, or simulate with ${settingIn(command, 'eviction')} ${best.policy}.`,
          ]
        : []),
      ...(new Set(rows.map(({ capacity }) => capacity)).size < 2
        ? [`Try several sizes: ${settingIn(command, tierNames[TOP])} 1000,3000,10000 shows what room buys.`]
        : []),
    ],
    limits: ['Policies are compared by blocks found, each at the same sizes. Times are not part of it.'],
  };
}

function replaySections(replay: ReplayReport): ReportSection[] {
  const { hits, blockLookups, demotions, bytesMoved, gbps, tiers } = replay;
  const of = (blocks: number): number => (blockLookups === 0 ? 0 : blocks / blockLookups);
  const missed = blockLookups - sumOf(hits);
  const links = Object.entries(bytesMoved);
  const facts = Object.entries(tiers).flatMap(([tier, of2]) =>
    Object.entries(of2).map(([name, value]) => [tierTitle(tier), ...factOf(name, value)]),
  );
  return [
    {
      kind: 'bars',
      title: 'Where the blocks of prompts were found',
      unit: 'share',
      bars: [
        ...Object.entries(hits).map(([tier, blocks]) => ({ name: tierTitle(tier), value: of(blocks) })),
        { name: 'computed', value: of(missed) },
      ],
    },
    {
      kind: 'bars',
      title: 'Where blocks went',
      unit: 'count',
      bars: [
        ...Object.entries(demotions)
          .filter(([link]) => link !== 'dropped')
          .map(([link, value]) => ({ name: linkTitle(link), value })),
        { name: 'dropped', value: demotions.dropped },
      ],
    },
    ...(links.length === 0
      ? []
      : [
          {
            kind: 'table' as const,
            title: 'What the links carried',
            columns: [
              { title: 'link' },
              { title: 'bytes', unit: 'bytes' as const },
              { title: 'rate', unit: 'bytesPerS' as const },
            ],
            rows: links.map(([link, bytes]) => [
              linkTitle(link),
              bytes,
              gbps[link] === undefined ? null : gbps[link] * 1e9,
            ]),
          },
        ]),
    ...(facts.length === 0
      ? []
      : [
          {
            kind: 'table' as const,
            title: 'What each tier got',
            columns: [{ title: 'tier' }, { title: 'what' }, { title: 'value' }],
            rows: facts,
          },
        ]),
  ];
}

/** A store's own figure in words: `capacityBytes 1048576` is `capacity` of 1 MiB. */
function factOf(name: string, value: string | number | boolean): [name: string, value: string] {
  const words = (text: string): string => text.replace(/[A-Z]+/g, (letters) => ` ${letters.toLowerCase()}`);
  if (typeof value === 'boolean') return [words(name), value ? 'yes' : 'no'];
  if (typeof value === 'string') return [words(name), value];
  const unit = /^(.*?)(Bytes|Us|Ms)$/.exec(name);
  if (unit === null) return [words(name), written(value, 'count')];
  const [, bare, of] = unit;
  if (of === 'Bytes') return [words(bare), written(value, 'bytes')];
  return [words(bare), written(of === 'Us' ? value / 1000 : value, 'ms')];
}

function studySections(study: Study): ReportSection[] {
  const { rows } = study;
  const capacities = [...new Set(rows.map(({ capacity }) => capacity))];
  const policies = [...new Set(rows.map(({ policy }) => policy))];
  const table: ReportSection = {
    kind: 'table',
    title: 'All policies',
    columns: [
      { title: 'blocks in GPU memory', unit: 'count' },
      { title: 'policy' },
      { title: 'found', unit: 'share' },
      { title: 'points over lru', unit: 'plain' },
      { title: 'of the gap closed', unit: 'share' },
      { title: 'ns a block', unit: 'plain' },
    ],
    rows: rows.map(({ capacity, policy, hitPercent, points, closedPercent, nsPerBlock }) => [
      capacity,
      policy,
      hitPercent / 100,
      points,
      closedPercent === null ? null : closedPercent / 100,
      nsPerBlock,
    ]),
  };
  if (capacities.length > 1) {
    return [
      {
        kind: 'lines',
        title: 'What room and policy find',
        x: { title: 'blocks in GPU memory', unit: 'count', isLog: true },
        y: { title: 'blocks found', unit: 'share' },
        series: policies.map((policy) => ({
          name: policy,
          points: rows
            .filter((row) => row.policy === policy)
            .map((row) => [row.capacity, row.hitPercent / 100] as const),
        })),
      },
      table,
    ];
  }
  return [
    {
      kind: 'bars',
      title: 'What each policy finds',
      unit: 'share',
      bars: rows.map(({ policy, hitPercent }) => ({ name: policy, value: hitPercent / 100 })),
    },
    table,
  ];
}
