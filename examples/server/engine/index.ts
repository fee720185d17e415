/** An inference engine on tierkv: a checkpoint goes in, requests come, text comes out. */

export { Answer, type AnswerFailure, type FinishReason, type GenerationRequest } from './answer.ts';
export { type CacheConfig, Engine, type EngineOptions } from './engine.ts';
export { EngineCounters } from './engineCounters.ts';
export type { SampledLogprob, TokenLogprob } from './logprobs.ts';
export { type SamplingOptions, sampleToken } from './sampling.ts';
export type { EngineText, ServedEngine } from './servedEngine.ts';
