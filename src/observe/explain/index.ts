/** The door `tierkv/explain`: why a request found what it found, from a decision log and from a simulation. */

export { BlockHistory, type HistoryBounds, type RememberedRequest } from '../../embed/blockHistory.ts';
export type { BlockExplanation, BlockLife, CacheExplanation, MissCause } from '../../embed/explanation.ts';
export {
  explainPlanned,
  explainSimulation,
  type InstanceExplanation,
  SimulationExplainer,
} from './explainSimulation.ts';
export { explanationText, lifeText } from './explanationText.ts';
export { LogExplainer } from './logExplainer.ts';
export { type AskedPrefix, keyOf, readPrefix } from './prefix.ts';
