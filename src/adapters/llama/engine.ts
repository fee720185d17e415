/** The parts of node-llama-cpp that are used, so that the package need not be there to compile. Its own types fit these. */

/** The result of `getLlama`. */
export interface LlamaEngine {
  readonly gpu: string | false;
  readonly llamaCppRelease: { readonly repo: string; readonly release: string };
  loadModel(options: { readonly modelPath: string }): Promise<LlamaModel>;
}

/** A model that llama.cpp has loaded. */
export interface LlamaModel {
  readonly trainContextSize: number;
  readonly fileInfo: { readonly metadata: object };
  tokenize(text: string, specialTokens?: boolean): readonly number[];
  detokenize(tokens: readonly number[], specialTokens?: boolean, lastTokens?: readonly number[]): string;
  isEogToken(token: number): boolean;
  createContext(options: LlamaContextSettings): Promise<LlamaContext>;
  dispose(): Promise<void>;
}

/** Settings of a context that determine nothing of its KV beside its size and how fast it is made. */
interface LlamaContextSettings {
  readonly contextSize: number;
  readonly sequences: number;
  readonly flashAttention: boolean;
  readonly threads?: number;
}

export interface LlamaContext {
  readonly kvCacheKeyType: number;
  readonly kvCacheValueType: number;
  getSequence(): LlamaSequence;
  dispose(): Promise<void>;
}

/** One of the sequences of a context. */
export interface LlamaSequence {
  /** Tokens whose KV the sequence holds. */
  readonly contextTokens: readonly number[];
  readonly contextSize: number;
  readonly needsCheckpoints: boolean;
  evaluate(
    tokens: number[],
    options?: {
      readonly temperature?: number;
      readonly topK?: number;
      readonly topP?: number;
      readonly seed?: number;
      readonly yieldEogToken?: boolean;
    },
  ): AsyncGenerator<number, void, void>;
  evaluateWithoutGeneratingNewTokens(tokens: number[]): Promise<void>;
  eraseContextTokenRanges(ranges: { start: number; end: number }[]): Promise<void>;
  clearHistory(): Promise<void>;
  saveStateToFile(path: string): Promise<unknown>;
  loadStateFromFile(path: string, options: { acceptRisk: true }): Promise<void>;
}
