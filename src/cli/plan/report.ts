/** The answer of a plan as text for people: the deployment in a sentence, how sure that is, and what was near. */

import { formatCount, formatCounted, printable, renderTable } from '../../io/printing/text.ts';
import { tierTitle } from '../../runtime/tier/tier.ts';
import { sizedTierNames } from '../../sim/links/machineTiers.ts';
import {
  holdsNone,
  type NextConstraint,
  type PlanAnswer,
  type PlanCheck,
  type PlanOption,
  shownOptions,
  simulateCommandOf,
} from '../../studies/plan/plan.ts';

/** Milliseconds as people say them. */
function formatMs(ms: number): string {
  // no request takes no time: 0 stands for none
  if (ms === 0) return '-';
  if (ms < 0.1) return `${Number((1000 * ms).toPrecision(2))} us`;
  if (ms >= 10_000) return `${(ms / 1000).toFixed(1)} s`;
  return `${ms >= 100 ? ms.toFixed(0) : ms.toFixed(1)} ms`;
}

/** @param out where the deployment was written */
export function answerText(answer: PlanAnswer, out: string | undefined): string {
  const { choice, closest, effort } = answer;
  const lines =
    choice !== undefined
      ? [`${priceText(choice)}: ${printable(choice.text)}`, '']
      : [notFoundText(answer), ...failureLines(answer), ''];
  const parts = [lines.join('\n')];
  const shown = choice ?? closest;
  if (shown !== undefined) parts.push(figuresTable(shown));
  if (choice !== undefined) parts.push(`\n${sureText(answer.checks, answer.next)}`);
  const sizes = sizesTable(answer);
  if (sizes !== '') parts.push(`\nwhat each size brings:\n${sizes}`);
  const table = optionsTable(answer);
  if (table !== '') parts.push(`\n${table}`);
  for (const { gpu, tensorParallel, reason } of answer.excluded) {
    parts.push(`left out: ${tensorParallel} ${printable(gpu)} an instance: ${printable(reason)}\n`);
  }
  for (const note of answer.notes) parts.push(`note: ${printable(note)}\n`);
  parts.push(commandText(answer, out));
  parts.push(
    `${formatCounted(effort.simulations, 'simulations')} of up to ${formatCount(effort.requestsEach)} requests\n`,
  );
  return parts.join('');
}

function notFoundText({ effort, unknown }: PlanAnswer): string {
  if (unknown !== undefined) return `Not known: ${unknown}.`;
  if (effort.isWhole) return 'No deployment meets the targets.';
  return 'The time ended before a deployment was found that meets the targets. Give more with --budget.';
}

/** `4 GPUs, 10.00 USD an hour`. */
function priceText({ gpus, usdPerHour }: PlanOption): string {
  const counted = formatCounted(gpus, 'GPUs');
  return usdPerHour === undefined ? counted : `${counted}, ${usdPerHour.toFixed(2)} USD an hour`;
}

/** Targets that the closest configuration fails, and by how much. */
function failureLines(answer: PlanAnswer): string[] {
  const { closest, effort, unknown } = answer;
  if (unknown !== undefined) return [];
  if (closest === undefined) {
    if (!effort.isWhole) return ['No run ended in time.'];
    if (holdsNone(answer)) return ['No machine holds the model.'];
    return ['Bounds that need no run leave out each machine.'];
  }
  const { targets, injected, completed, text } = closest;
  const lines = targets
    .filter(({ meets }) => !meets)
    .map(({ figure, ms, boundMs }) => {
      if (ms === 0) return `  ${figure} is not known: no request came so far`;
      const over = Math.round(100 * (ms / boundMs - 1));
      return `  ${figure} is ${formatMs(ms)}, ${over} % above ${formatMs(boundMs)}`;
    });
  if (completed < injected) {
    const { unservable } = closest.run;
    const long =
      unservable === 0
        ? ''
        : `; ${formatCount(unservable)} of these can never fit: they are longer than the model takes, or than KV memory holds`;
    lines.push(
      `  ${formatCount(injected - completed)} of ${formatCount(injected)} requests were not served${long}`,
    );
  }
  if (lines.length === 0) lines.push('  its queue grows: a longer run would end above any target');
  return [`The closest is ${printable(text)} (${priceText(closest)}):`, ...lines];
}

function figuresTable({ targets, run, injected, completed }: PlanOption): string {
  const bounded = targets.map(({ figure, ms, boundMs, meets }) => [
    figure,
    formatMs(ms),
    `at most ${formatMs(boundMs)}`,
    meets ? 'yes' : 'no',
  ]);
  const named = new Set(targets.map(({ figure }) => figure));
  const others = (['ttft_p99', 'itl_p99', 'e2e_p99'] as const).filter((figure) => !named.has(figure));
  return renderTable(
    [{ title: 'figure' }, { title: 'measured', align: 'right' }, { title: 'target' }, { title: 'met' }],
    [
      ...bounded,
      ...others.map((figure) => [figure, formatMs(run.figures[figure]), '', '']),
      [
        'requests served',
        `${formatCount(completed)} of ${formatCount(injected)}`,
        'all',
        completed === injected ? 'yes' : 'no',
      ],
      ['requests a second', run.requestsPerS.toFixed(2), '', ''],
      ['busiest instance computes', `${(100 * run.busyShare).toFixed(0)} %`, '', ''],
      ['KV memory held, at most', `${(100 * run.kvShare).toFixed(1)} %`, '', ''],
      ['blocks found', `${(100 * run.hitRate).toFixed(1)} %`, '', ''],
    ],
  );
}

function sureText(checks: readonly PlanCheck[], next: NextConstraint | undefined): string {
  const lines = ['how sure:'];
  const tried = checks.filter(({ untried }) => untried === undefined);
  const seeds = tried.filter(({ change }) => change.startsWith('seed '));
  if (seeds.length > 0) {
    const held = seeds.filter(({ meets }) => meets).length;
    lines.push(`  holds on ${held} of ${formatCounted(seeds.length, 'further seeds')} (${rangeText(seeds)})`);
  }
  for (const check of tried.filter((one) => !seeds.includes(one))) {
    lines.push(`  ${check.change}: ${check.meets ? 'holds' : 'does not hold'} (${rangeText([check])})`);
  }
  for (const { change, untried } of checks) {
    if (untried !== undefined) lines.push(`  ${change}: not tried (${untried})`);
  }
  lines.push(next === undefined ? 'next constraint: none found' : `next constraint: ${next.text}`);
  return `${lines.join('\n')}\n`;
}

/** The targets of several runs, from the least to the most. */
function rangeText(checks: readonly PlanCheck[]): string {
  const figures = checks[0].targets.map(({ figure }, i) => {
    const all = checks.map(({ targets }) => targets[i].ms);
    const [least, most] = [Math.min(...all), Math.max(...all)];
    return `${figure} ${least === most ? formatMs(most) : `${formatMs(least)} to ${formatMs(most)}`}`;
  });
  return figures.join(', ');
}

/** Sizes of tiers of the shown deployment, each with what it finds, how long a first token takes, and what it costs. */
function sizesTable({ bySize }: PlanAnswer): string {
  if (bySize.length === 0) return '';
  const hasPrices = bySize.some(({ usdPerHour }) => usdPerHour !== undefined);
  const gib = (size: number): string => (size === 0 ? 'none' : `${formatCount(size)} GiB`);
  return renderTable(
    [
      ...sizedTierNames.map((tier) => ({ title: tierTitle(tier), align: 'right' as const })),
      ...['blocks found', 'ttft_mean', 'ttft_p99'].map((title) => ({ title, align: 'right' as const })),
      { title: hasPrices ? 'USD/h' : 'GPUs', align: 'right' },
      { title: 'meets' },
    ],
    bySize.map(({ deployment, run, usdPerHour, gpus, meets }) => [
      ...sizedTierNames.map((tier) => gib(deployment[`${tier}Gib`])),
      `${(100 * run.hitRate).toFixed(1)} %`,
      formatMs(run.figures.ttft_mean),
      formatMs(run.figures.ttft_p99),
      usdPerHour === undefined ? String(gpus) : usdPerHour.toFixed(2),
      meets ? 'yes' : 'no',
    ]),
  );
}

/** The other configurations that were tried: dearer ones that will do, cheaper ones that will not. */
function optionsTable(answer: PlanAnswer): string {
  const best = answer.choice ?? answer.closest;
  const all = shownOptions(answer);
  if (all.length < 2) return '';
  const hasPrices = all.some(({ usdPerHour }) => usdPerHour !== undefined);
  return renderTable(
    [
      { title: 'deployment' },
      { title: 'GPUs', align: 'right' },
      ...(hasPrices ? [{ title: 'USD/h', align: 'right' as const }] : []),
      ...all[0].targets.map(({ figure }) => ({ title: figure, align: 'right' as const })),
      { title: 'meets' },
      { title: 'by' },
    ],
    all.map((option) => [
      `${option === best ? '* ' : ''}${option.text}`,
      String(option.gpus),
      ...(hasPrices ? [(option.usdPerHour ?? 0).toFixed(2)] : []),
      ...option.targets.map(({ ms }) => formatMs(ms)),
      option.meets ? 'yes' : 'no',
      `${option.restsOn}, ${formatCount(option.injected)}`,
    ]),
  );
}

function commandText(answer: PlanAnswer, out: string | undefined): string {
  if (answer.deploymentFile === undefined) return '';
  return `the same by itself: ${simulateCommandOf(answer, out)}\n`;
}
