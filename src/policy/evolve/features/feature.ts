/**
 * Signals that policies may read: name, kind, unit, age and reading function of each. Programs, decision trees, the JSON
 * schema and `describe` all come from these tables, so their lists agree.
 */

/** Numbers of kind `int` are whole; `bool` counts as 0 or 1 in a tree; `text` cannot be compared there. */
type FeatureKind = 'int' | 'float' | 'bool' | 'text';

/**
 * Age of a signal. `constant`: does not change. `fresh`: counted at the place of the decision, by the router, or by the
 * instance for its scheduler. `snapshot`: as old as the last report of the instance. `cacheSignal`: as old as the
 * last reading of the caches.
 */
type Freshness = 'constant' | 'fresh' | 'snapshot' | 'cacheSignal';

type FeatureValue = number | boolean | string;

export interface Feature<Facts> {
  readonly kind: FeatureKind;
  /** '' for none. */
  readonly unit: string;
  readonly freshness: Freshness;
  readonly about: string;
  read(facts: Facts): FeatureValue;
}

export type FeatureTable<Facts> = Readonly<Record<string, Feature<Facts>>>;

type Aged = Pick<Feature<never>, 'freshness'>;

/** Whether any of these is as old as the last report of an instance. */
export function anyIsReported(table: Readonly<Record<string, Aged>>, names: readonly string[]): boolean {
  return names.some((name) => table[name].freshness === 'snapshot');
}

type Read<Facts, V> = (facts: Facts) => V;

/** The entries of one table, made by kind. */
interface FeatureMakers<Facts> {
  int(unit: string, freshness: Freshness, about: string, read: Read<Facts, number>): Feature<Facts>;
  float(unit: string, freshness: Freshness, about: string, read: Read<Facts, number>): Feature<Facts>;
  bool(freshness: Freshness, about: string, read: Read<Facts, boolean>): Feature<Facts>;
  text(about: string, read: Read<Facts, string>): Feature<Facts>;
}

export function makers<Facts>(): FeatureMakers<Facts> {
  return {
    int: (unit, freshness, about, read) => ({ kind: 'int', unit, freshness, about, read }),
    float: (unit, freshness, about, read) => ({ kind: 'float', unit, freshness, about, read }),
    bool: (freshness, about, read) => ({ kind: 'bool', unit: '', freshness, about, read }),
    text: (about, read) => ({ kind: 'text', unit: '', freshness: 'constant', about, read }),
  };
}
