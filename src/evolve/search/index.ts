/** Search over policy bundles without any language model. */

export * from './bundles/index.ts';
export * from './numeric/index.ts';
export * from './programs/index.ts';
export * from './racing/index.ts';
export * from './run/index.ts';
export * from './selection/index.ts';
export * from './start/index.ts';
export * from './trees/index.ts';
