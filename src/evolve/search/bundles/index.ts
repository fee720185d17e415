/** Bundles as search sees them: their numbers as a point, their children, and what became of each. */

export {
  type Candidate,
  contentKey,
  echoOf,
  type Individual,
  individualOf,
  nameOfSpec,
  type Origin,
} from './individual.ts';
export { kindOf, ofManyKinds } from './kinds.ts';
export { bundlesWithOneMoreTerm } from './oneMoreTerm.ts';
export { NumberSpace, type SlotGuide, type SlotGuides } from './space.ts';
export { type BundleChild, varyBundle } from './varyBundle.ts';
