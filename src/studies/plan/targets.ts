/**
 * Targets of a plan: bounds on figures of a run. A figure is a quantity (time to the first token, time between tokens,
 * time of a request) and a statistic over the run: `ttft_p99`, `itl_mean`.
 */

import { configError, nearestName } from '../../runtime/errors.ts';
import * as is from '../../runtime/kinds.ts';
import { checkInputs } from '../../runtime/options.ts';

/** Latencies that are measured: to the first token, between two tokens, of the whole request. */
const quantities = ['ttft', 'itl', 'e2e'] as const;
type Quantity = (typeof quantities)[number];

const statistics = ['mean', 'p50', 'p90', 'p95', 'p99'] as const;
type Statistic = (typeof statistics)[number];

export type FigureName = `${Quantity}_${Statistic}`;

export const figureNames: readonly FigureName[] = quantities.flatMap((quantity) =>
  statistics.map((statistic): FigureName => `${quantity}_${statistic}`),
);

/** @returns quantity and percentile of a figure; without a percentile for a mean */
export function statisticOf(name: FigureName): { readonly quantity: Quantity; readonly percentile?: number } {
  const [quantity, statistic] = name.split('_') as [Quantity, Statistic];
  return statistic === 'mean' ? { quantity } : { quantity, percentile: Number(statistic.slice(1)) };
}

const quantityTitles: Readonly<Record<Quantity, string>> = {
  ttft: 'first token',
  itl: 'between tokens',
  e2e: 'whole request',
};

/** Title of a figure: `first token, p99`. */
export function figureTitle(name: FigureName): string {
  const [quantity, statistic] = name.split('_') as [Quantity, Statistic];
  return `${quantityTitles[quantity]}, ${statistic}`;
}

/** Targets of a plan: the most milliseconds that each figure may reach, by its name. */
export type PlanTargets = Readonly<Partial<Record<FigureName, number>>>;

/** In milliseconds; `min` is another word for `m`. */
const units: Readonly<Record<string, number>> = { us: 1e-3, ms: 1, s: 1e3, m: 60e3, min: 60e3, h: 3600e3 };

/**
 * `ttft_p99=500ms` as the figure and its bound in milliseconds.
 * @throws TKV_CONFIG naming an unknown figure, or a text that must be a duration
 */
export function parseTarget(text: string, field = 'target'): [name: FigureName, ms: number] {
  checkInputs({ text, field }, { text: is.text(), field: is.optional(is.name()) });
  const [, name, digits, unit] = /^([^=<]+?)\s*(?:=|<=?)\s*([\d.]+)\s*([a-z]*)$/.exec(text.trim()) ?? [];
  const ms = Number(digits) * (units[unit] ?? Number.NaN);
  if (name === undefined || !(ms > 0 && ms <= 1e9)) {
    const remedy = 'Write figure=time with us, ms, s, m or h, such as ttft_p99=500ms.';
    throw configError(field, `is ${JSON.stringify(text)}`, remedy);
  }
  return [requireFigure(name, field), ms];
}

/** @throws TKV_CONFIG for an unknown figure, with the nearest one */
export function requireFigure(name: string, field: string): FigureName {
  const found = figureNames.find((known) => known === name.toLowerCase());
  if (found !== undefined) return found;
  const near = nearestName(name.toLowerCase(), figureNames);
  const remedy =
    near === undefined
      ? `Write ${quantities.join(', ')} with _${statistics.join(', _')}, such as ttft_p99.`
      : `Did you mean '${near}'?`;
  throw configError(field, `bounds "${name}", which is not measured`, remedy);
}

/** A target with the figure that was measured. */
export interface TargetMeasured {
  readonly figure: FigureName;
  readonly boundMs: number;
  readonly ms: number;
  readonly meets: boolean;
}

export function measuredTargets(
  targets: PlanTargets,
  figures: Readonly<Record<FigureName, number>>,
): TargetMeasured[] {
  return (Object.entries(targets) as [FigureName, number][]).map(([figure, boundMs]) => {
    const ms = figures[figure];
    // 0 ms means that no request was measured; only the time between tokens may be 0, where answers have one token
    const isMeasured = ms > 0 || statisticOf(figure).quantity === 'itl';
    return { figure, boundMs, ms, meets: isMeasured && ms <= boundMs };
  });
}
