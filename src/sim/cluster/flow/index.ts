/** The way of a request through the cluster: it arrives, is decided about, is served and ends. */

export { announce, arrived, FOLLOW_UP, followUp, pull } from './arriving.ts';
export { admit, route, scheduleRouting } from './deciding.ts';
export { drop, ended, expire } from './ending.ts';
export type { GatewayQueue, GatewayTiming } from './gatewayQueue.ts';
export {
  type Handoff,
  type HandoffConfig,
  type HandoffCounters,
  type HandoffGranularity,
  type HandoffSend,
  type HandoffState,
  handoffGranularities,
} from './handoff.ts';
export { Handoffs } from './handoffs.ts';
export { makeGateway } from './makeGateway.ts';
export { redirect, remove } from './moving.ts';
export { computed, enqueue, gaveWay, handOff, prefilled, send, timeOut, transferred } from './serving.ts';
