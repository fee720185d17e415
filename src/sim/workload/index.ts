/**
 * Workloads: specs and presets, streams of requests, sessions, token ids, and the formats of recorded traces.
 */

export * from './generate/index.ts';
export * from './presets.ts';
export * from './profiles.ts';
export * from './request.ts';
export { shown, shownPlain } from './shown.ts';
export * from './spec/index.ts';
export * from './summary.ts';
export { blockHash, blockHashes } from './tokens/blockHash.ts';
export { TokenReader, VOCABULARY } from './tokens/tokens.ts';
export * from './trace/index.ts';
