/**
 * The event kernel: virtual time and the queue of pending events, both plain data that can be copied and
 * resumed.
 */

export * from './clock.ts';
export * from './eventQueue.ts';
