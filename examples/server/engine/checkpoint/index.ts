/** Checkpoints of Llama-shaped models: what they hold, read and checked. */

export { type Checkpoint, openCheckpoint, tensorShapes } from './checkpoint.ts';
export { GgufFile, halvesOf } from './gguf.ts';
export { requireSameModel } from './ggufModel.ts';
export { identified } from './identity.ts';
export { jsonBounds, readBounded, readJsonObject } from './jsonFiles.ts';
export { type ModelConfig, parseModelConfig, readModelConfig } from './modelConfig.ts';
export { fromBf16, fromQ41, fromQ80, toBf16 } from './numberFormats.ts';
export { SafetensorsFile } from './safetensors.ts';
export type { TensorSource } from './tensorSource.ts';
export { checkpointError } from './tensorSource.ts';
