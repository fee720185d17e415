/** The search itself: generations, what it knows as a file, and how the winner is chosen. */

export { Budget, TimeIsUp } from './budget.ts';
export { type Chosen, choose, finalistsOf, type Judged, judge } from './choosing.ts';
export { Search } from './search.ts';
export { type GenerationRecord, readState, type SearchPlan, type SearchState } from './state.ts';
