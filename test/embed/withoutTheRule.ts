/**
 * For controls: the rule is taken out by which only blocks are sealed that their owner was told to write.
 * Only tests can do this; nothing in the package sets it.
 */

import { Openings } from '../../src/runtime/manager/openings.ts';

/** @returns what puts the rule back */
export function takeOutTheRule(): () => void {
  const { prototype } = Openings;
  const { maySeal, firstUntold, firstDoubtful, requireWritten } = prototype;
  const none = (): number => -1;
  Object.assign(prototype, {
    maySeal: () => true,
    firstUntold: none,
    firstDoubtful: none,
    requireWritten: () => {},
  });
  return () => void Object.assign(prototype, { maySeal, firstUntold, firstDoubtful, requireWritten });
}
