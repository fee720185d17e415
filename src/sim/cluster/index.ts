/** A cluster of simulated instances on one clock. */

export type { Admission, Arrival, ControlPlane } from './controlPlane.ts';
export { SimEvent } from './events.ts';
export { classPriority, RoundRobin } from './roundRobin.ts';
export {
  type MakeInstance,
  type SimulatedWorkload,
  Simulation,
  type SimulationOptions,
} from './simulation.ts';
