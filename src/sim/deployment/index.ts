/** What is deployed, and the simulation that is built from it. */

export {
  checkDeployment,
  type Deployment,
  type MakeEngine,
  newSimulation,
  type PoolConfig,
  resumeSimulation,
  type SimulationSetup,
} from './deployment.ts';
