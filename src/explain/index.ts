/** The door `tierkv/explain`: why a request found what it found, from a decision log and from a simulation. */

export { BlockHistory, type HistoryBounds, type RequestFacts } from './blockHistory.ts';
export {
  explainPlanned,
  explainSimulation,
  type InstanceExplanation,
  SimulationExplainer,
} from './explainSimulation.ts';
export type { BlockExplanation, BlockLife, Explanation, MissCause } from './explanation.ts';
export { explanationText, lifeText } from './explanationText.ts';
export { LogExplainer } from './logExplainer.ts';
export { keyOf, type Prefix, readPrefix } from './prefix.ts';
