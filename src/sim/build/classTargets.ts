/** Targets of goodput by class: those of the settings, and those of a specification. */

import { nearestName, type TierKVError } from '../../runtime/errors.ts';
import { type Deployment, fault, get } from '../description/settings.ts';
import { SLO_CLASSES, type WorkloadSpec } from '../description/workloadSpec.ts';
import type { Targets, TargetsByClass } from '../metrics/statistics.ts';

const targetPaths = [
  ['targets.ttftMs', 'ttftUs'],
  ['targets.itlMs', 'itlUs'],
  ['targets.e2eMs', 'e2eUs'],
] as const;

/** Classes that a generated request can have; one without a class is `default`. */
const knownClasses: readonly string[] = [...SLO_CLASSES.filter((name) => name !== ''), 'default'];

/**
 * Refuses classes that no request has by their names.
 * @param recorded classes of a recorded trace, which may be any
 * @param refuse makes the error
 */
export function requireKnownClasses(
  names: readonly string[],
  refuse: (problem: string, remedy: string) => TierKVError,
  recorded: Iterable<string> = [],
): void {
  const known = [...new Set([...knownClasses, ...recorded])];
  const unknown = names.find((name) => !known.includes(name));
  if (unknown === undefined) return;
  const near = nearestName(unknown, known);
  const meant = near === undefined ? '' : `Did you mean "${near}"? `;
  const problem = `names the class "${unknown}", which no request has`;
  throw refuse(problem, `${meant}Classes: ${known.join(', ')}.`);
}

/** Refuses targets of classes that no request has. */
export function requireKnownTargets(deployment: Deployment, recorded: Iterable<string> = []): void {
  for (const [path] of targetPaths) {
    requireKnownClasses(
      Object.keys(get(deployment, path) ?? {}),
      (problem, remedy) => fault(deployment, path, problem, remedy),
      recorded,
    );
  }
}

/** Targets of the settings and of the specification; a setting overrides the same figure of a class. */
export function goodputTargets(deployment: Deployment, spec: WorkloadSpec | undefined): TargetsByClass {
  const targets = new Map<string, Targets>();
  for (const [name, { ttftMs, itlMs, e2eMs }] of Object.entries(spec?.goodputSloTargets ?? {})) {
    targets.set(name, {
      ...(ttftMs === undefined ? {} : { ttftUs: 1000 * ttftMs }),
      ...(itlMs === undefined ? {} : { itlUs: 1000 * itlMs }),
      ...(e2eMs === undefined ? {} : { e2eUs: 1000 * e2eMs }),
    });
  }
  for (const [path, field] of targetPaths) {
    for (const [sloClass, ms] of Object.entries(get(deployment, path) ?? {})) {
      targets.set(sloClass, { ...targets.get(sloClass), [field]: 1000 * ms });
    }
  }
  return Object.fromEntries(targets);
}
