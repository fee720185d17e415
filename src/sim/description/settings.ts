/**
 * A deployment as it was described: typed values of its settings, and where each was written. It is plain data, so that plans
 * travel to threads and other machines. What is wrong with a setting is said in the words of the one who wrote it: the option
 * that was typed, the field of the object, or the line of the file.
 */

import { configError, faultAt, type Said, type SourcePlace, TierKVError } from '../../runtime/errors.ts';
import { defaultOf, flagOf, isPath, knobs, type Path, type SettledAt, type ValueAt } from './knobs.ts';

export interface Deployment {
  /** Values that were given, by path. */
  readonly values: Readonly<{ [P in Path]?: ValueAt<P> }>;
  /** Places where settings were written, or would be. */
  readonly places: Readonly<{ [P in Path]?: SourcePlace }>;
  /** How settings are named that have no place: by their options, or by their fields. */
  readonly words: 'options' | 'fields';
  /** Prefix of the names of fields that have no place, where the description is a part of another one. */
  readonly under?: string;
}

/** A deployment of which nothing is said. */
export const nothingSaid: Deployment = { values: {}, places: {}, words: 'fields' };

/** The value of a setting, or its default: upstream's where the deployment asks for those. */
export function get<P extends Path>({ values }: Deployment, path: P): SettledAt<P> {
  const given = values[path] as SettledAt<P> | undefined;
  return given ?? defaultOf(path, values.asUpstream === true);
}

/** Whether a setting was given. */
export function isGiven({ values }: Deployment, path: Path): boolean {
  return values[path] !== undefined;
}

export function givenPaths({ values }: Deployment): readonly Path[] {
  return (Object.keys(values) as Path[]).filter((path) => values[path] !== undefined);
}

/** The deployment with another value of a setting. @param at where that was written; default: where the old one was */
export function withValue<P extends Path>(
  deployment: Deployment,
  path: P,
  value: ValueAt<P> | undefined,
  at?: SourcePlace,
): Deployment {
  const { values, places } = deployment;
  return {
    ...deployment,
    values: { ...values, [path]: value },
    ...(at === undefined ? {} : { places: { ...places, [path]: at } }),
  };
}

/** The deployment with what `over` says, which goes before. */
export function overlaid(deployment: Deployment, over: Deployment): Deployment {
  return {
    values: { ...deployment.values, ...over.values },
    places: { ...deployment.places, ...over.places },
    words: over.words,
    ...(over.under === undefined ? {} : { under: over.under }),
  };
}

function wordsOf({ words, under = '' }: Deployment, path: Path): string {
  return words === 'options' ? flagOf(path) : `${under}${path}`;
}

/** @param entry of a setting that holds values by name */
function placeOf(deployment: Deployment, path: Path, entry?: string): SourcePlace {
  const at = deployment.places[path] ?? { name: wordsOf(deployment, path) };
  if (entry === undefined) return at;
  return { ...at, name: `${at.name}${at.name.startsWith('--') ? ' ' : '.'}${entry}` };
}

/** A setting's name in the words of its writer, given or not. */
export function nameOf(deployment: Deployment, path: Path): string {
  return placeOf(deployment, path).name;
}

/**
 * The one way to refuse a setting, for a reader, a builder and a policy alike.
 * @param entry of a setting that holds values by name
 */
export function fault(
  deployment: Deployment,
  path: Path,
  problem: Said,
  remedy: Said,
  entry?: string,
): TierKVError {
  const at = placeOf(deployment, path, entry);
  const names = (field: string): string =>
    field === path ? at.name : isPath(field) ? nameOf(deployment, field) : field;
  return faultAt(configError(path, problem, remedy), at, names);
}

/** The settings behind fields of another part of the library: a path, or a path with the name of an entry. */
export type FieldPaths = (field: string) => Path | readonly [path: Path, entry: string] | undefined;

/** Runs `act`, which checks fields of its own. Its errors about fields that a setting is behind are about that setting. */
export function saidOfSettings<T>(deployment: Deployment, pathOf: FieldPaths, act: () => T): T {
  try {
    return act();
  } catch (error) {
    // an error that names a file is about what stands there
    if (!(error instanceof TierKVError) || error.field === undefined || error.path !== undefined) throw error;
    const placed = (field: string): SourcePlace | undefined => {
      const found = pathOf(field);
      if (found === undefined) return isPath(field) ? placeOf(deployment, field) : undefined;
      return typeof found === 'string' ? placeOf(deployment, found) : placeOf(deployment, ...found);
    };
    const at = placed(error.field);
    throw at === undefined ? error : faultAt(error, at, (field) => placed(field)?.name ?? field);
  }
}

/** Whether a setting holds the value of its default. */
export function isDefault(deployment: Deployment, path: Path): boolean {
  const { kind } = knobs[path];
  const scalar = ['integer', 'number', 'time', 'flag', 'text', 'file', 'name'].includes(kind);
  const otherwise = defaultOf(path, deployment.values.asUpstream === true);
  return scalar && otherwise !== undefined && deployment.values[path] === otherwise;
}
