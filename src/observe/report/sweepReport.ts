/** A sweep as a report: which deployment is the cheapest that meets the targets, and how close are the others? */

import { formatCounted } from '../../io/printing/text.ts';
import { type FailedPoint, hasRun, type PointResult, type SweptPoint } from '../../sim/build/point.ts';
import { demandOf } from '../../sim/build/sweep.ts';
import { type Figure, type Report, type ReportSection, written } from './model.ts';
import { originOf, settingIn } from './origin.ts';

interface SweptGrid {
  readonly results: readonly SweptPoint[];
  /** Bounds on 99th percentiles in milliseconds; undefined where none were given. */
  readonly targets:
    | { readonly ttftMs?: number; readonly itlMs?: number; readonly e2eMs?: number }
    | undefined;
  /** The cheapest point of each demand that meets them; none without targets. */
  readonly byDemand: readonly {
    readonly demand: PointResult['values'];
    readonly best: PointResult | undefined;
  }[];
  readonly meets: (point: PointResult) => boolean;
  readonly nameOf: (point: Pick<PointResult, 'values'>) => string;
  readonly command: string;
}

export function sweepReport(grid: SweptGrid): Report {
  const { results, targets, byDemand, meets, nameOf, command } = grid;
  const best = byDemand.length === 1 ? byDemand[0].best : undefined;
  const ran = results.filter(hasRun);
  const failed = results.filter((point): point is FailedPoint => !hasRun(point));
  const good = targets === undefined ? [] : ran.filter(meets);
  const asked = targetText(targets);
  const answer =
    targets === undefined
      ? leadText(ran, nameOf)
      : byDemand.length > 1
        ? demandsText(grid, asked)
        : best === undefined
          ? `No: none of ${ran.length} points meets ${asked}.`
          : `Yes: ${nameOf(best)}, with ${best.gpus} ${best.gpus === 1 ? 'GPU' : 'GPUs'}, is the cheapest of ${good.length} points that meet ${asked}.`;
  const shown = best ?? (targets === undefined ? fastest(ran) : nearest(ran, targets));
  return {
    title:
      targets === undefined ? 'A sweep over deployments' : 'The cheapest deployment that meets the targets',
    question:
      targets === undefined
        ? `How do ${results.length} deployments compare?`
        : `Which of ${results.length} deployments is the cheapest that meets ${asked}?`,
    answer,
    verdict: targets === undefined ? 'open' : verdictOf(byDemand),
    figures: shown === undefined ? [] : figuresOf(shown, targets),
    sections: [
      ...pointSections(grid, ran, targets === undefined ? shown : best),
      tableSection(grid, ran, failed, shown),
      ...failedSection(failed, nameOf),
    ],
    next: advice(grid, ran, good),
    limits: [
      'Each point is one simulation of one seed: points that lie close together may change places with another seed.',
      'GPUs are counted, prices are not.',
      ...(failed.length === 0 ? [] : [`${formatCounted(failed.length, 'points')} cannot run: see above.`]),
      ...ran.flatMap((point) => point.warnings.map((warning) => `${nameOf(point)}: ${warning}`)).slice(0, 10),
    ],
    origin: originOf(command, { points: String(results.length) }),
  };
}

function targetText(targets: SweptGrid['targets']): string {
  const { ttftMs, itlMs, e2eMs } = targets ?? {};
  const parts = [
    ...(ttftMs === undefined ? [] : [`a first token within ${written(ttftMs, 'ms')}`]),
    ...(itlMs === undefined ? [] : [`${written(itlMs, 'ms')} between tokens`]),
    ...(e2eMs === undefined ? [] : [`${written(e2eMs, 'ms')} for the whole request`]),
  ];
  return `${parts.join(' and ')} (p99)`;
}

/** Each demand with its cheapest point: one that serves fewer requests does not show what more of them cost. */
function demandsText({ byDemand, nameOf }: SweptGrid, asked: string): string {
  const met = byDemand.filter(({ best }) => best !== undefined).length;
  const each = byDemand.slice(0, DEMANDS_NAMED).map(({ demand, best }) => {
    const what = best === undefined ? 'none' : `${nameOf(best)} (${formatCounted(best.gpus, 'GPUs')})`;
    return `at ${nameOf({ values: demand })} ${what}`;
  });
  const more = byDemand.length > DEMANDS_NAMED ? `; and ${byDemand.length - DEMANDS_NAMED} more` : '';
  return `${met} of ${byDemand.length} demands can be met (${asked}). The cheapest: ${each.join('; ')}${more}.`;
}

/** Demands that the answer names. */
const DEMANDS_NAMED = 6;

function verdictOf(byDemand: SweptGrid['byDemand']): Report['verdict'] {
  if (byDemand.every(({ best }) => best !== undefined)) return 'yes';
  return byDemand.some(({ best }) => best !== undefined) ? 'open' : 'no';
}

/** The shortest first token of the points that serve the largest share of their requests. */
function fastest(points: readonly PointResult[]): PointResult | undefined {
  const share = ({ completed, injected }: PointResult): number => completed / Math.max(1, injected);
  const served = points.filter(({ completed }) => completed > 0);
  return served.sort((a, b) => share(b) - share(a) || a.ttftP99Ms - b.ttftP99Ms)[0];
}

/** A time of a point; null where no request had any. */
const known = (ms: number): number | null => (ms === 0 ? null : ms);

function leadText(points: readonly PointResult[], nameOf: SweptGrid['nameOf']): string {
  const demands = Map.groupBy(points, ({ values }) => JSON.stringify(demandOf(values)));
  if (demands.size > 1) {
    const leads = [...demands.values()].map(
      (of) => `At ${nameOf({ values: demandOf(of[0].values) })}: ${leadText(of, nameOf)}`,
    );
    return leads.slice(0, DEMANDS_NAMED).join(' ');
  }
  const first = fastest(points);
  if (first === undefined)
    return points.length === 0 ? 'None of the points can run.' : 'No point serves a request.';
  return `${nameOf(first)} has the shortest first token of ${points.length} points: 99% within ${written(first.ttftP99Ms, 'ms')}, on ${first.gpus} GPUs.`;
}

function figuresOf(point: PointResult, targets: SweptGrid['targets']): Figure[] {
  const { ttftMs, itlMs, e2eMs } = targets ?? {};
  const most = (value: number | undefined): Partial<Figure> =>
    value === undefined ? {} : { target: { most: value } };
  return [
    { name: 'GPUs', value: point.gpus, unit: 'count' },
    { name: 'first token, p99', value: known(point.ttftP99Ms), unit: 'ms', ...most(ttftMs) },
    { name: 'between tokens, p99', value: known(point.itlP99Ms), unit: 'ms', ...most(itlMs) },
    { name: 'whole request, p99', value: known(point.e2eP99Ms), unit: 'ms', ...most(e2eMs) },
    { name: 'output tokens', value: point.tokensPerS, unit: 'tokensPerS' },
    { name: 'output tokens a GPU', value: point.tokensPerS / Math.max(1, point.gpus), unit: 'tokensPerS' },
    { name: 'blocks found in a cache', value: point.hitRate, unit: 'share' },
  ];
}

function pointSections(
  { targets, meets, nameOf }: SweptGrid,
  ran: readonly PointResult[],
  chosen: PointResult | undefined,
): ReportSection[] {
  const served = ran.filter(({ completed }) => completed > 0);
  if (served.length === 0) return [];
  const of = (y: (point: PointResult) => number) =>
    served.map((point) => ({
      x: point.gpus,
      y: Math.max(y(point), 1e-3),
      name: nameOf(point),
      ...(targets === undefined ? {} : { group: meets(point) ? 'meets the targets' : 'misses a target' }),
      isChosen: point === chosen,
    }));
  return [
    {
      kind: 'points',
      title: 'What more GPUs buy',
      x: { title: 'GPUs', unit: 'count' },
      y: { title: 'first token, p99', unit: 'ms', isLog: true },
      points: of((point) => point.ttftP99Ms),
    },
    {
      kind: 'points',
      title: 'How much each GPU does',
      x: { title: 'GPUs', unit: 'count' },
      y: { title: 'output tokens a second and GPU', unit: 'plain' },
      points: of((point) => point.tokensPerS / Math.max(1, point.gpus)),
    },
  ];
}

function tableSection(
  { results, targets, meets }: SweptGrid,
  ran: readonly PointResult[],
  failed: readonly FailedPoint[],
  chosen: PointResult | undefined,
): ReportSection {
  const names = Object.keys(results[0]?.values ?? {});
  const rows = ran.map((point) => [
    ...names.map((name) => point.values[name]),
    ...(targets === undefined ? [] : [meets(point) ? 'yes' : 'no']),
    point.gpus,
    point.completed / Math.max(1, point.injected),
    known(point.ttftP99Ms),
    known(point.itlP99Ms),
    known(point.e2eP99Ms),
    point.tokensPerS,
    point.hitRate,
    point.preemptions,
  ]);
  const lost = failed.map(({ values }) => [
    ...names.map((name) => values[name]),
    ...(targets === undefined ? [] : ['cannot run']),
    ...Array<null>(8).fill(null),
  ]);
  return {
    kind: 'table',
    title: 'All points',
    note: 'A click on a head sorts by it.',
    columns: [
      ...names.map((title) => ({ title })),
      ...(targets === undefined ? [] : [{ title: 'meets' }]),
      { title: 'GPUs', unit: 'count' },
      { title: 'done', unit: 'share' },
      { title: 'first token', unit: 'ms' },
      { title: 'between tokens', unit: 'ms' },
      { title: 'whole', unit: 'ms' },
      { title: 'tokens', unit: 'tokensPerS' },
      { title: 'found', unit: 'share' },
      { title: 'preempted', unit: 'count' },
    ],
    rows: [...rows, ...lost],
    ...(chosen === undefined ? {} : { chosen: ran.indexOf(chosen) }),
  };
}

/** Points that cannot run, each problem once. */
function failedSection(failed: readonly FailedPoint[], nameOf: SweptGrid['nameOf']): ReportSection[] {
  if (failed.length === 0) return [];
  const paragraphs = [...Map.groupBy(failed, ({ error }) => error.message)].map(([problem, points]) => {
    const more = points.length === 1 ? '' : ` and ${points.length - 1} more`;
    return `${nameOf(points[0])}${more}: ${problem}`;
  });
  return [{ kind: 'text', title: 'What cannot run', paragraphs }];
}

/** Describes a point: its figures that have targets, and its share of served requests. */
function nearText(point: PointResult, targets: NonNullable<SweptGrid['targets']>): string {
  const { ttftMs, itlMs, e2eMs } = targets;
  const parts = [
    ...(ttftMs === undefined ? [] : [`first token ${written(point.ttftP99Ms, 'ms')}`]),
    ...(itlMs === undefined ? [] : [`between tokens ${written(point.itlP99Ms, 'ms')}`]),
    ...(e2eMs === undefined ? [] : [`whole request ${written(point.e2eP99Ms, 'ms')}`]),
  ];
  const { completed, injected } = point;
  const served =
    completed === injected
      ? ''
      : `, and ${written(completed, 'count')} of ${written(injected, 'count')} requests served`;
  return `${parts.join(', ')} (p99)${served}`;
}

/** The point whose worst target is the least off. */
function nearest(
  points: readonly PointResult[],
  targets: NonNullable<SweptGrid['targets']>,
): PointResult | undefined {
  const over = (value: number, most: number | undefined): number => (most === undefined ? 0 : value / most);
  const excess = (point: PointResult): number =>
    Math.max(
      over(point.ttftP99Ms, targets.ttftMs),
      over(point.itlP99Ms, targets.itlMs),
      over(point.e2eP99Ms, targets.e2eMs),
    ) /
    (point.completed / Math.max(1, point.injected));
  return points.filter(({ completed }) => completed > 0).sort((a, b) => excess(a) - excess(b))[0];
}

function advice(
  { targets, byDemand, nameOf, command }: SweptGrid,
  ran: readonly PointResult[],
  good: readonly PointResult[],
): string[] {
  const best = byDemand.length === 1 ? byDemand[0].best : undefined;
  if (targets === undefined) {
    return [
      `Name targets (${['targetTtft', 'targetItl', 'targetE2e'].map((each) => settingIn(command, each)).join(', ')}): the sweep then says which point is the cheapest.`,
    ];
  }
  if (byDemand.length > 1) {
    const unmet = byDemand.filter((one) => one.best === undefined);
    if (unmet.length === 0) return [];
    return [
      `Add points with more GPUs for ${unmet.map(({ demand }) => nameOf({ values: demand })).join('; ')}, or loosen the target.`,
    ];
  }
  if (best === undefined) {
    const near = nearest(ran, targets);
    if (near === undefined) {
      return [
        ran.length === 0
          ? 'No point can run: the table says why.'
          : 'No point serves a request: look at its admission and its memory.',
      ];
    }
    return [
      `${nameOf(near)} comes closest: ${nearText(near, targets)}.`,
      'Add points with more GPUs or a lower rate to the grid, or loosen the target.',
    ];
  }
  const slack = (value: number, most: number | undefined): number =>
    most === undefined ? Infinity : 1 - value / most;
  const dimensions = [
    ['the first token', slack(best.ttftP99Ms, targets.ttftMs)],
    ['the time between tokens', slack(best.itlP99Ms, targets.itlMs)],
    ['the whole request', slack(best.e2eP99Ms, targets.e2eMs)],
  ] as const;
  const [tightest, room] = dimensions.reduce((a, b) => (b[1] < a[1] ? b : a));
  const ties = good.filter((point) => point !== best && point.gpus === best.gpus);
  return [
    `The next constraint is ${tightest}: ${written(room, 'share')} of its target is left.`,
    ...(ties.length === 0
      ? []
      : [
          `${formatCounted(ties.length, 'points')} more meet them with as many GPUs: ${ties.slice(0, 3).map(nameOf).join('; ')}.`,
        ]),
    'Run the chosen point with other seeds and at a rate 10% higher before you buy.',
  ];
}
