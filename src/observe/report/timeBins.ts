/**
 * Values over time in bounded memory: bins of equal width, joined in pairs when there are too many. All series have the same
 * bins, so that their lanes line up.
 */

/** Bins of the whole run: between half of them and all. */
const BINS_MOST = 800;
/** Width of the first bins, in microseconds. */
const FIRST_WIDTH_US = 1000;

/** Values of each bin. */
interface Series {
  sums: number[];
  counts: number[];
}

export class TimeBins {
  readonly #series: Map<string, Series> = new Map();
  #widthUs = FIRST_WIDTH_US;

  add(name: string, timeUs: number, value: number): void {
    while (timeUs / this.#widthUs >= BINS_MOST) {
      for (const series of this.#series.values()) {
        series.sums = pairs(series.sums);
        series.counts = pairs(series.counts);
      }
      this.#widthUs *= 2;
    }
    let series = this.#series.get(name);
    if (series === undefined) {
      series = { sums: [], counts: [] };
      this.#series.set(name, series);
    }
    const bin = Math.floor(timeUs / this.#widthUs);
    series.sums[bin] = (series.sums[bin] ?? 0) + value;
    series.counts[bin] = (series.counts[bin] ?? 0) + 1;
  }

  /** The mean of each bin in which something was told, with the second in which it begins. */
  means(name: string): [s: number, value: number][] {
    return this.#points(name, (sum, count) => sum / count);
  }

  /** The sum of each bin over its width: what was told a second. Bins between in which nothing was told are 0. */
  rates(name: string): [s: number, value: number][] {
    const seconds = this.#widthUs / 1e6;
    return this.#points(name, (sum) => sum / seconds, 0);
  }

  #points(
    name: string,
    of: (sum: number, count: number) => number,
    empty?: number,
  ): [s: number, value: number][] {
    const { sums = [], counts = [] } = this.#series.get(name) ?? {};
    const points: [number, number][] = [];
    for (let bin = 0; bin < sums.length; bin++) {
      const count = counts[bin] ?? 0;
      const second = (bin * this.#widthUs) / 1e6;
      if (count > 0) points.push([second, of(sums[bin], count)]);
      else if (empty !== undefined && points.at(-1)?.[1] !== empty) points.push([second, empty]);
    }
    if (empty !== undefined && points.length > 0) points.push([(sums.length * this.#widthUs) / 1e6, empty]);
    return points;
  }
}

function pairs(list: readonly number[]): number[] {
  return Array.from(
    { length: Math.ceil(list.length / 2) },
    (_, i) => (list[2 * i] ?? 0) + (list[2 * i + 1] ?? 0),
  );
}
