/** Closed loops: users and sessions of which a request exists only once the one before it has finished. */

export { admitUsers, ConcurrencyStream, type ConcurrencyUsers } from './concurrency.ts';
export {
  type RequestEnd,
  type SessionKind,
  SessionManager,
  type SessionManagerState,
  type SessionPlan,
} from './sessions.ts';
