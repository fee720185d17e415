/** What happened in a run, told in a page. */

export type { RequestFact, RunFacts } from './facts.ts';
export { type Issue, issuesOf } from './issues.ts';
export { type Pattern, patternsOf } from './patterns.ts';
export {
  defaultSummary,
  type SummaryConfig,
  type SummaryStrategy,
  summarise,
  summaryStrategies,
} from './summarise.ts';
