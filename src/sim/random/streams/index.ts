/**
 * Random streams: Go's `rand.Rand` over the source, one stream a name, and a bounded pool for owners of which
 * there are many.
 */

export * from './partition.ts';
export * from './pool.ts';
export * from './rand.ts';
