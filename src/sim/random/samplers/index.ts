/** Samplers: inter-arrival times and token lengths, each drawn from the stream that the caller gives. */

export * from './arrival.ts';
export * from './length.ts';
