/** A plan as a report: what to deploy, how sure that is, what gives next, and what was near. */

import { formatCounted } from '../../io/printing/text.ts';
import { tierTitle } from '../../runtime/tier/tier.ts';
import { sizedTierNames } from '../../sim/links/machineTiers.ts';
import {
  decidingTarget,
  holdsNone,
  type PlanAnswer,
  type PlanOption,
  shownOptions,
  simulateCommandOf,
} from '../../studies/plan/plan.ts';
import { type FigureName, figureTitle } from '../../studies/plan/targets.ts';
import { type Figure, type Report, type ReportSection, written } from './model.ts';
import { originOf, settingIn } from './origin.ts';

/** @param typed the command line @param file where the deployment was written */
export function planReport(answer: PlanAnswer, typed: string, file?: string): Report {
  const { choice, closest, question, checks, effort, notes, excluded } = answer;
  const shown = choice ?? closest;
  const { model, workload, targets } = question;
  const asked = (Object.entries(targets) as [FigureName, number][]).map(
    ([figure, ms]) => `${figureTitle(figure)} within ${written(ms, 'ms')}`,
  );
  const traffic =
    workload.file === undefined ? `${workload.preset} at ${workload.rate} requests a second` : workload.file;
  return {
    title: `What to deploy for ${model}`,
    question: `Which deployment of ${model} serves ${traffic} with ${asked.join(' and ')} for the least ${question.prices === undefined ? 'GPUs' : 'money'}?`,
    answer: answerText(answer),
    verdict: choice === undefined ? (effort.isWhole && answer.unknown === undefined ? 'no' : 'open') : 'yes',
    figures: shown === undefined ? [] : figuresOf(shown, answer),
    sections: [...checkSections(answer), ...sizeSections(answer), ...optionSections(answer)],
    next: nextOf(answer, typed, file),
    limits: [
      ...notes.map((note) => `${note[0].toUpperCase()}${note.slice(1)}.`),
      ...excluded.map(
        ({ gpu, tensorParallel, reason }) => `Left out: ${tensorParallel} ${gpu} an instance. ${reason}`,
      ),
      `${formatCounted(effort.simulations, 'simulations')}; more instances of one kind were taken to serve no worse.`,
    ],
    origin: originOf(typed, {
      model,
      workload: traffic,
      seed: String(question.seed),
      'further seeds': String(checks.filter(({ change }) => change.startsWith('seed ')).length),
      'model of time': question.latencyModel,
    }),
  };
}

function priceOf({ gpus, usdPerHour }: PlanOption): string {
  const counted = formatCounted(gpus, 'GPUs');
  return usdPerHour === undefined ? counted : `${counted}, ${usdPerHour.toFixed(2)} USD an hour`;
}

function answerText(answer: PlanAnswer): string {
  const { choice, closest, effort, unknown } = answer;
  if (choice !== undefined) return `${choice.text}: ${priceOf(choice)}.`;
  if (unknown !== undefined) return `Not known: ${unknown}.`;
  if (!effort.isWhole) return 'The time ended before a deployment was found.';
  if (closest === undefined) {
    return holdsNone(answer)
      ? 'None: no machine holds the model.'
      : 'None: bounds that need no run leave out each machine.';
  }
  const worst = decidingTarget(closest);
  return `None. The closest is ${closest.text} (${priceOf(closest)}), whose ${figureTitle(worst.figure)} is ${written(worst.ms, 'ms')} against ${written(worst.boundMs, 'ms')}.`;
}

function figuresOf(option: PlanOption, { checks }: PlanAnswer): Figure[] {
  const tried = checks.filter(({ untried }) => untried === undefined);
  const seeds = tried.filter(({ change }) => change.startsWith('seed '));
  const bounded = option.targets.map(({ figure, ms, boundMs }, i): Figure => {
    const all = [ms, ...seeds.map(({ targets }) => targets[i].ms)];
    const spread = { low: Math.min(...all), high: Math.max(...all), over: `${all.length} seeds` };
    const more = seeds.length === 0 ? {} : { spread };
    return { name: figureTitle(figure), value: ms, unit: 'ms', target: { most: boundMs }, ...more };
  });
  const { run, gpus, usdPerHour } = option;
  return [
    { name: 'GPUs', value: gpus, unit: 'count' },
    ...(usdPerHour === undefined
      ? []
      : [{ name: 'USD an hour', value: usdPerHour, unit: 'plain' } satisfies Figure]),
    ...bounded,
    { name: 'requests a second', value: run.requestsPerS, unit: 'perS' },
    { name: 'output tokens', value: run.outputTokensPerS, unit: 'tokensPerS' },
    { name: 'KV memory held, at most', value: run.kvShare, unit: 'share' },
    { name: 'blocks found in a cache', value: run.hitRate, unit: 'share' },
  ];
}

function checkSections({ checks, choice: option }: PlanAnswer): ReportSection[] {
  if (checks.length === 0 || option === undefined) return [];
  return [
    {
      kind: 'table',
      title: 'How sure it is',
      note: 'The same deployment with one thing changed at a time.',
      columns: [
        { title: 'changed' },
        { title: 'holds' },
        ...option.targets.map(({ figure }) => ({ title: figureTitle(figure), unit: 'ms' as const })),
      ],
      rows: checks.map(({ change, meets, targets, untried }) => [
        change,
        untried === undefined ? (meets ? 'yes' : 'no') : `not tried: ${untried}`,
        ...option.targets.map((_, i) => targets[i]?.ms),
      ]),
    },
  ];
}

/** Sizes of tiers that were asked about, each with its run. */
function sizeSections({ bySize }: PlanAnswer): ReportSection[] {
  if (bySize.length === 0) return [];
  const sizes = ({ deployment }: PlanOption): string =>
    sizedTierNames.map((tier) => `${tierTitle(tier)} ${deployment[`${tier}Gib`]} GiB`).join(', ');
  const total = ({ deployment }: PlanOption): number =>
    sizedTierNames.reduce((sum, tier) => sum + deployment[`${tier}Gib`], 0);
  return [
    {
      kind: 'points',
      title: 'What each size of a tier brings',
      x: { title: 'GiB below GPU memory, of each instance', unit: 'count' },
      y: { title: figureTitle('ttft_p99'), unit: 'ms', isLog: true },
      points: bySize.map((option) => ({
        x: total(option),
        y: Math.max(option.run.figures.ttft_p99, 1e-3),
        name: sizes(option),
        group: option.meets ? 'meets the targets' : 'misses a target',
        isChosen: false,
      })),
    },
    {
      kind: 'table',
      title: 'Sizes of tiers',
      note: 'The same deployment and traffic, with nothing else changed.',
      columns: [
        { title: 'sizes' },
        { title: 'blocks found', unit: 'share' },
        { title: figureTitle('ttft_mean'), unit: 'ms' },
        { title: figureTitle('ttft_p99'), unit: 'ms' },
        { title: bySize[0].usdPerHour === undefined ? 'GPUs' : 'USD an hour', unit: 'plain' },
      ],
      rows: bySize.map((option) => [
        sizes(option),
        option.run.hitRate,
        option.run.figures.ttft_mean,
        option.run.figures.ttft_p99,
        option.usdPerHour ?? option.gpus,
      ]),
    },
  ];
}

function optionSections(answer: PlanAnswer): ReportSection[] {
  const { choice, closest } = answer;
  const shown = choice ?? closest;
  const all = shownOptions(answer);
  if (all.length === 0) return [];
  const hasPrices = all.some(({ usdPerHour }) => usdPerHour !== undefined);
  const { figure: deciding } = decidingTarget(shown ?? all[0]);
  const costOf = ({ gpus, usdPerHour }: PlanOption): number => usdPerHour ?? gpus;
  return [
    {
      kind: 'points',
      title: hasPrices ? 'What more money buys' : 'What more GPUs buy',
      x: { title: hasPrices ? 'USD an hour' : 'GPUs', unit: 'count' },
      y: { title: figureTitle(deciding), unit: 'ms', isLog: true },
      points: all.map((option) => ({
        x: costOf(option),
        y: Math.max(option.run.figures[deciding], 1e-3),
        name: option.text,
        group: option.meets ? 'meets the targets' : 'misses a target',
        isChosen: option === choice,
      })),
    },
    {
      kind: 'table',
      title: 'What was near',
      columns: [
        { title: 'deployment' },
        { title: 'GPUs', unit: 'count' },
        ...(hasPrices ? [{ title: 'USD an hour', unit: 'plain' as const }] : []),
        ...all[0].targets.map(({ figure }) => ({ title: figureTitle(figure), unit: 'ms' as const })),
        { title: 'served', unit: 'share' },
        { title: 'meets' },
        { title: 'by' },
      ],
      rows: all.map((option) => [
        option.text,
        option.gpus,
        ...(hasPrices ? [option.usdPerHour ?? null] : []),
        ...option.targets.map(({ ms }) => ms),
        option.completed / Math.max(1, option.injected),
        option.meets ? 'yes' : 'no',
        option.restsOn,
      ]),
      ...(shown === undefined ? {} : { chosen: all.indexOf(shown) }),
    },
  ];
}

function nextOf(answer: PlanAnswer, typed: string, file: string | undefined): string[] {
  const { choice, next, effort } = answer;
  const command = simulateCommandOf(answer, file);
  const sentences: string[] = [];
  if (next !== undefined) sentences.push(`The next constraint: ${next.text}.`);
  if (choice === undefined && answer.unknown === undefined) {
    sentences.push(
      effort.isWhole
        ? 'Loosen the target that fails, or allow other GPUs.'
        : `Give more time with ${settingIn(typed, 'budget')}.`,
    );
  }
  if (command !== undefined) sentences.push(`The same run by itself: ${command}`);
  return sentences;
}
