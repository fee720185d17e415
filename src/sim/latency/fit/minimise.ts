/**
 * Minimises a function of a few numbers without derivatives, by the simplex method of Nelder and Mead with
 * restarts. It draws no random numbers: the same function and start give the same answer everywhere.
 */

export interface Parameter {
  readonly name: string;
  readonly start: number;
  readonly min: number;
  readonly max: number;
}

export interface Minimum {
  readonly values: readonly number[];
  readonly loss: number;
}

const reflection = -1;
const expansion = -2;
const contraction = 0.5;

function simplexFrom(start: readonly number[], parameters: readonly Parameter[]): number[][] {
  const steps = parameters.map(({ start: value, min, max }) => {
    const span = Number.isFinite(max - min) ? (max - min) / 8 : Math.abs(value) / 2;
    return span > 0 ? span : 1;
  });
  return [
    [...start],
    ...start.map((_, i) =>
      start.map((value, j) =>
        i === j ? value + steps[i] * (value + steps[i] > parameters[i].max ? -1 : 1) : value,
      ),
    ),
  ];
}

function descend(loss: (x: readonly number[]) => number, simplex: number[][], rounds: number): Minimum {
  const points = simplex.map((values) => ({ values, loss: loss(values) }));
  const dimensions = points.length - 1;
  for (let round = 0; round < rounds; round++) {
    points.sort((a, b) => a.loss - b.loss);
    const worst = points[dimensions];
    const best = points[0];
    if (worst.loss - best.loss <= 1e-12 * Math.abs(best.loss) + 1e-300) break;
    const centre = best.values.map((_, j) => {
      let sum = 0;
      for (let i = 0; i < dimensions; i++) sum += points[i].values[j];
      return sum / dimensions;
    });
    const along = (t: number): { values: number[]; loss: number } => {
      const values = centre.map((value, j) => value + t * (worst.values[j] - value));
      return { values, loss: loss(values) };
    };
    const reflected = along(reflection);
    let next = reflected;
    if (reflected.loss < best.loss) {
      const expanded = along(expansion);
      if (expanded.loss < reflected.loss) next = expanded;
    } else if (reflected.loss >= points[dimensions - 1].loss) {
      next = along(contraction);
      if (next.loss >= worst.loss) {
        for (let i = 1; i <= dimensions; i++) {
          const values = points[i].values.map((value, j) => (value + best.values[j]) / 2);
          points[i] = { values, loss: loss(values) };
        }
        continue;
      }
    }
    points[dimensions] = next;
  }
  points.sort((a, b) => a.loss - b.loss);
  return points[0];
}

/**
 * The values with the least loss that were found, inside the bounds of each parameter.
 * @param loss finite inside the bounds.
 */
export function minimise(
  parameters: readonly Parameter[],
  loss: (values: readonly number[]) => number,
): Minimum {
  const bounded = (values: readonly number[]): number => {
    const inside = values.every((value, i) => value >= parameters[i].min && value <= parameters[i].max);
    return inside ? loss(values) : Infinity;
  };
  let best: Minimum = { values: parameters.map(({ start }) => start), loss: Infinity };
  for (let restart = 0; restart < 4; restart++) {
    const found = descend(bounded, simplexFrom(best.values, parameters), 400 * parameters.length);
    const gained = best.loss - found.loss;
    best = found.loss < best.loss ? found : best;
    if (gained <= 1e-9) break;
  }
  return best;
}
