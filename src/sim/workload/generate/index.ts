/** From a spec to a stream of requests, and from finished requests to their follow-ups. */

export { diurnalWindows, drainWindows } from './expand.ts';
export type { Limits } from './plan.ts';
export {
  type RequestEnd,
  SessionManager,
  type SessionManagerState,
  type SessionPlan,
} from './sessions.ts';
export { generateWorkload, type Workload } from './workload.ts';
