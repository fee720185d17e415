/**
 * Whether a ranking of policies holds when the model of the world changes: the same policies on the same
 * workloads with every model of time, or with workloads that are a little different.
 */

import { renderTable } from '../output/index.ts';
import { signed } from './page.ts';

/** One version of the world, and the scores of all policies in it; undefined for one that failed. */
export interface World {
  readonly name: string;
  readonly scores: readonly (number | undefined)[];
}

/** Scores closer than this are a tie: nobody should choose by them. */
const TIE = 0.005;

function sign(difference: number): number {
  return Math.abs(difference) < TIE ? 0 : Math.sign(difference);
}

export interface PairVerdict {
  readonly better: string;
  readonly worse: string;
  /** Worlds in which it is so, in which they tie, and in which it is the other way round. */
  readonly holds: number;
  readonly ties: number;
  readonly reversed: readonly string[];
  /** Worlds in which both have a score. */
  readonly worlds: number;
}

/** For each pair of policies which is better over all worlds, and where that is not so. */
export function pairVerdicts(names: readonly string[], worlds: readonly World[]): PairVerdict[] {
  const verdicts: PairVerdict[] = [];
  for (let a = 0; a < names.length; a++) {
    for (let b = a + 1; b < names.length; b++) {
      const differences = worlds.flatMap(({ name, scores }) => {
        const [x, y] = [scores[a], scores[b]];
        return x === undefined || y === undefined ? [] : [{ name, difference: x - y }];
      });
      const sum = differences.reduce((total, { difference }) => total + difference, 0);
      const direction = sum >= 0 ? 1 : -1;
      verdicts.push({
        better: names[direction === 1 ? a : b],
        worse: names[direction === 1 ? b : a],
        holds: differences.filter(({ difference }) => sign(difference) === direction).length,
        ties: differences.filter(({ difference }) => sign(difference) === 0).length,
        reversed: differences
          .filter(({ difference }) => sign(difference) === -direction)
          .map(({ name }) => name),
        worlds: differences.length,
      });
    }
  }
  return verdicts;
}

/** Where they tie in more worlds than one is better, nobody should choose by it. */
function verdictOf(holds: number, ties: number, reversed: number): string {
  if (holds === 0 || (reversed === 0 && ties > holds)) return 'a tie';
  return reversed === 0 ? 'robust' : 'NOT robust';
}

export function sensitivityText(names: readonly string[], worlds: readonly World[]): string {
  const table = renderTable(
    ['world', ...names].map((title, i) => ({
      title,
      align: i === 0 ? ('left' as const) : ('right' as const),
    })),
    worlds.map(({ name, scores }) => [
      name,
      ...scores.map((score) => (score === undefined ? 'failed' : signed(score))),
    ]),
  );
  const lines = pairVerdicts(names, worlds).map(({ better, worse, holds, ties, reversed, worlds: both }) => {
    if (both === 0) return `${better} and ${worse}: no verdict, since one of them has no score anywhere`;
    const where = reversed.length === 0 ? '' : `; the other way round in ${reversed.join(', ')}`;
    const tied = ties === 0 ? '' : `, ${ties} ties within ${TIE}`;
    const verdict = verdictOf(holds, ties, reversed.length);
    return `${better} over ${worse}: ${verdict}, holds in ${holds} of ${both} worlds${tied}${where}`;
  });
  return `${table}${lines.join('\n')}\n`;
}
