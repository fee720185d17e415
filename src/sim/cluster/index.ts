/** A cluster of simulated instances on one clock. */

export { type Conservation, conservationOf } from './conservation.ts';
export { eventPriorities, SimEvent } from './events.ts';
export type { Handoff, HandoffConfig, HandoffCounters, HandoffState } from './handoffs.ts';
export { observers, type SimulationObserver, type StepSpan } from './observer.ts';
export {
  type SimulatedWorkload,
  Simulation,
  type SimulationOptions,
  type SimulationParts,
} from './simulation.ts';
