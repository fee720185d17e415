/** Names that questions asked of simulations add to the door `tierkv/sim`, and the parts of the simulator that it has. */

import '../requireNode.ts';

export {
  type SimulateOptions,
  type SimulationResult,
  simulate,
  simulationChoices,
} from '../sim/build/simulate.ts';
export type { SimulationObserver, SimulationOptions } from '../sim/cluster/parts.ts';
export { type ForkOptions, Simulation } from '../sim/cluster/simulation.ts';
export { SimulationSnapshot } from '../sim/cluster/snapshot.ts';
export type { ControlConfig } from '../sim/control/controlPlane.ts';
export {
  type Fleet,
  newSimulation,
  type PoolConfig,
  resumeSimulation,
  type SimulationSetup,
} from '../sim/description/deployment.ts';
export type { DeploymentSpec } from '../sim/description/knobs.ts';
export { parseWorkloadSpec } from '../sim/description/readWorkload.ts';
export type { WorkloadSpec } from '../sim/description/workloadSpec.ts';
export type { EngineConfig } from '../sim/instance/engine.ts';
export { type Coefficients, parseCoefficients } from '../sim/latency/coefficients.ts';
export { type EngineMemoryOptions, engineMemory } from '../sim/latency/engineMemory.ts';
export { fitLinear } from '../sim/latency/fit/linearFit.ts';
export { formatStepRecords } from '../sim/latency/fit/stepRecords.ts';
export { BatchSums, type LatencyModel } from '../sim/latency/latencyModel.ts';
export { Linear } from '../sim/latency/linear.ts';
export { type LatencySetup, newLatencyModel } from '../sim/latency/makeModel.ts';
export {
  type Hardware,
  type ModelConfig,
  parseHardware,
  parseModelConfig,
} from '../sim/latency/modelConfig.ts';
export type { LinkProfile, LinkProfiles } from '../sim/links/modeledDriver.ts';
export type { MetricsOutput } from '../sim/report/metricsOutput.ts';
export type { CacheMetrics, OccupancySample } from '../sim/report/tierMetrics.ts';
export { wekaRequests } from '../sim/workload/agentSessions.ts';
export { type RequestEnd, SessionManager } from '../sim/workload/closedLoop.ts';
export { bailianRequests, mooncakeRequests, textTraceRequests } from '../sim/workload/importers.ts';
export { type RequestStream, requestsOf, type WorkloadRequest } from '../sim/workload/request.ts';
export { lengthFileRequests } from '../sim/workload/tables.ts';
export { TokenReader } from '../sim/workload/tokens.ts';
export { generateWorkload, type Workload } from '../sim/workload/workload.ts';
export { type PlanAnswer, type PlanOptions, plan, simulateCommandOf } from './plan/plan.ts';
export type { PlanQuestion, PlanWorkload } from './plan/question.ts';
export type { PlanTargets } from './plan/targets.ts';
