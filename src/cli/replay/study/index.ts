/**
 * Eviction policies beside LRU and the clairvoyant optimum, on a trace: what `tierkv replay --policy` shows.
 */

export type { Study, StudyRow } from './compare.ts';
export { singlePolicy } from './options.ts';
export { movesBytes, parseStudyRun, type RawStudyOptions, runStudy, type StudyRun } from './run.ts';
export { renderStudy } from './show.ts';
