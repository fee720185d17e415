/** From a spec to a stream of requests, and from finished requests to their follow-ups. */

export {
  type RequestEnd,
  SessionManager,
  type SessionManagerState,
  type SessionPlan,
} from './closedLoop/index.ts';
export { diurnalWindows, drainWindows } from './expand.ts';
export type { Limits } from './plan.ts';
export { generateWorkload, type Workload } from './workload.ts';
