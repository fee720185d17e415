/** Reading request traces from files. */
export type { ReadProgress } from './lines.ts';
export { mooncakeBlockTokens, type ReadTraceOptions, readMooncakeTrace } from './readMooncakeTrace.ts';
export type { TraceRequest } from './request.ts';
