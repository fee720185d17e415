/** How stateful objects are written down and brought back. */

export { restoreState, type SavedState, saveState } from './savedState.ts';
export type { Stateful, StateVisitor, TypedArray } from './stateVisitor.ts';
