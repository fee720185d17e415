/**
 * The kinds of events of a simulation and which of them go first at the same time: what comes in before what
 * is decided about it, decisions before steps, steps before what follows from them, and changes of the
 * cluster last. At equal kind, events of instances go by the instance's number, and the rest in the order in
 * which they were scheduled.
 */

export const SimEvent = {
  /** A request reaches the cluster. a: slot, b: 0 from the stream, 1 a follow-up */
  ARRIVAL: 0,
  /** Admission decides. a: row */
  ADMISSION: 1,
  /** Routing decides. a: row */
  ROUTING: 2,
  /** The gateway's queue looks whether it may let requests through. */
  DISPATCH: 3,
  /** A request has passed its instance's queueing time. a: row */
  QUEUED: 4,
  /** A step begins. a: instance */
  STEP: 5,
  /** A request's deadline. a: row */
  TIMEOUT: 6,
  /** A transfer between tiers ends. a: instance, b: flight */
  TRANSFER: 7,
  /**
   * A hand-off: more of its prompt is computed (b: 0), or its KV has come to the decode instance (b: 1). a:
   * row
   */
  HANDOFF: 8,
  /** A request has waited in the gateway's queue as long as it may. a: row */
  EXPIRY: 9,
  /** An autoscaler looks. a: its number */
  SCALE_CHECK: 10,
  /** The time of a replica's phase is up. a: replica, b: number of its autoscaler */
  SCALE_ACTION: 11,
  /** An instance has loaded its model. a: instance */
  INSTANCE_READY: 12,
  /** A decode instance has more room for hand-offs. a: instance */
  ROOM: 13,
} as const;
export type SimEvent = (typeof SimEvent)[keyof typeof SimEvent];

/** What a HANDOFF event says: the prompt or a part of it is computed, or all of its KV has arrived. */
export const HANDOFF_READY = 0;
export const HANDOFF_ARRIVED = 1;

/** By kind: lower goes first. */
export const eventPriorities: readonly number[] = [10, 11, 20, 22, 25, 30, 35, 40, 45, 47, 50, 55, 60, 46];
