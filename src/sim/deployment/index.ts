/** What is deployed, and the simulation that is built from it. */

export {
  checkDeployment,
  type Deployment,
  type MakeEngine,
  newSimulation,
  type PoolConfig,
  type SimulationSetup,
} from './deployment.ts';
