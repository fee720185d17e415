/** A cluster of simulated instances on one clock. */

export { type Conservation, conservationOf } from './conservation.ts';
export { eventPriorities, SimEvent } from './events.ts';
export {
  type Handoff,
  type HandoffConfig,
  type HandoffCounters,
  type HandoffGranularity,
  type HandoffSend,
  type HandoffState,
  handoffGranularities,
} from './flow/index.ts';
export type { ForcedDecisions } from './forced.ts';
export { observers, type SimulationObserver, type StepSpan } from './observer.ts';
export type { PoolPart, SimulatedWorkload, SimulationOptions, SimulationParts } from './parts.ts';
export type { ReplicaChange, ScaleChange, ScalingSetup } from './scaling/index.ts';
export { type ForkOptions, Simulation } from './simulation.ts';
export { keyOfSeed, policiesName, type SimulationKey } from './simulationKey.ts';
export { RequestTape, SimulationSnapshot, type SnapshotData, snapshotVersion } from './snapshot/index.ts';
