/** TraceV2, the format in which the simulator records requests: its header, and its rows read and written. */

export * from './header.ts';
export * from './read.ts';
export * from './write.ts';
