/** Our own eviction policy: it keeps what is expected to return soonest for the time that it is held. */

export { Hazard } from './hazard.ts';
