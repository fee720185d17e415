/** What a candidate has to beat, and a race of candidates over more and more seeds. */

export {
  type BySetting,
  barsOf,
  bestOfEach,
  type CaseScores,
  caseScoresOf,
  leadersOf,
  standingOf,
} from './lead.ts';
export { behaviourOf, type Raced, type Rung, race, rungsOf, rungsWithBars } from './race.ts';
