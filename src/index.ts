/**
 * tierkv's front door: the runtime that a server embeds. Parts and drivers of your own: `tierkv/runtime`,
 * `tierkv/backends`.
 */

import './requireNode.ts';

export { BufferUsage, MapMode, ShaderStage } from './backends/webgpu/device/gpuConstants.ts';
export * from './embed/index.ts';
export { type ErrorCode, type ErrorFacts, TierKVError } from './runtime/errors.ts';
export { type KVLayout, kvLayout } from './runtime/geometry/index.ts';
export type { KeyElements, RequestExtra, RequestExtras } from './runtime/keys/index.ts';
