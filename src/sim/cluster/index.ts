/** A cluster of simulated instances on one clock. */

export { eventPriorities, SimEvent } from './events.ts';
export type { SimulationObserver } from './observer.ts';
export {
  type SimulatedWorkload,
  Simulation,
  type SimulationOptions,
  type SimulationParts,
} from './simulation.ts';
