/** The search itself: generations, what it knows as a file, and how the winner is chosen. */

export { type Chosen, choose, type Judged, judge } from './choosing.ts';
export { contentKey, type Individual, type Origin, sizeOf } from './individual.ts';
export { Search } from './search.ts';
export { NumberSpace, type SlotGuide, type SlotGuides } from './space.ts';
export { type GenerationRecord, readState, type SearchPlan, type SearchState } from './state.ts';
