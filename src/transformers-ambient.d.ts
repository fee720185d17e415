/**
 * The part of @huggingface/transformers that is named in this repository. The package's own declarations fail
 * the checks of libraries that are on here, so `paths` of tsconfig.json leads to this file instead;
 * tsconfig.extras.json checks the same sources against the real ones.
 */

import type { DecoderModel, EngineCache, EngineTensor } from './adapters/transformers/engine.ts';

export class Tensor implements EngineTensor {
  constructor(type: string, data: unknown, dims: number[]);
  readonly type: string;
  dims: number[];
  readonly location: string;
  // biome-ignore lint/suspicious/noExplicitAny: as the package has it
  readonly data: any;
  readonly ort_tensor: { getData(releaseData?: boolean): Promise<unknown> };
  dispose(): void;
  // biome-ignore lint/suspicious/noExplicitAny: as the package has it
  tolist(): any[];
  slice(...slices: (number | null | (number | null)[])[]): Tensor;
}

export const DynamicCache: new (entries?: Record<string, Tensor>) => EngineCache & { [name: string]: Tensor };

export interface PreTrainedModel extends DecoderModel {
  // biome-ignore lint/suspicious/noExplicitAny: as the package has it
  readonly sessions: Record<string, any>;
  generate(options: { [name: string]: unknown }): Promise<unknown>;
  dispose(): Promise<unknown>;
}

export const AutoModelForCausalLM: {
  from_pretrained(name: string, options?: object): Promise<PreTrainedModel>;
};

export interface PreTrainedTokenizer {
  // biome-ignore lint/suspicious/noExplicitAny: as the package has it
  (text: string | string[], options?: object): any;
  // biome-ignore lint/suspicious/noExplicitAny: as the package has it
  apply_chat_template(messages: object[], options?: object): any;
  decode(ids: unknown, options?: object): string;
}

export const AutoTokenizer: {
  from_pretrained(name: string, options?: object): Promise<PreTrainedTokenizer>;
};

export class TextStreamer {
  constructor(tokenizer: PreTrainedTokenizer, options?: object);
}

export const env: {
  allowRemoteModels: boolean;
  localModelPath: string;
  version: string;
  backends: { onnx: { versions?: Record<string, string> } };
};

// biome-ignore lint/suspicious/noExplicitAny: as the package has it
export function pipeline(task: 'text-generation', model: string, options?: object): Promise<any>;
