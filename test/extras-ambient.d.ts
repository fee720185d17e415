// What the tests use of packages that `npm run extras` installs, so that types are checked without them. tsconfig.extras.json
// checks the same tests against the real ones.

declare module 'binaryen' {
  interface BinaryenModule {
    setFeatures(features: number): void;
    emitBinary(): Uint8Array;
    emitStackIR(): string;
    validate(): number;
    dispose(): void;
  }
  const binaryen: {
    parseText(text: string): BinaryenModule;
    readBinary(bytes: Uint8Array): BinaryenModule;
    readonly Features: Readonly<Record<'All' | 'MutableGlobals' | 'BulkMemory' | 'BulkMemoryOpt', number>>;
  };
  export default binaryen;
}

declare module 'webpack' {
  interface Stats {
    hasErrors(): boolean;
    toString(options?: unknown): string;
  }
  type Ended = (error: Error | null, stats?: Stats) => void;
  interface Compiler {
    run(ended: Ended): void;
    close(ended: () => void): void;
  }
  function webpack(options: unknown, ended?: Ended): Compiler;
  namespace webpack {
    const optimize: {
      readonly LimitChunkCountPlugin: new (options: { readonly maxChunks: number }) => unknown;
    };
  }
  export default webpack;
}

declare module '@anthropic-ai/sdk' {
  interface Params {
    readonly model: string;
    readonly max_tokens?: number;
    readonly temperature?: number;
    readonly stop_sequences?: string[];
    readonly system?: string | readonly object[];
    readonly messages: readonly object[];
    readonly tools?: readonly object[];
  }
  interface Stream {
    on(event: 'streamEvent', take: (event: { type: string; message: Anthropic.Message }) => void): void;
    on(event: 'text', take: (text: string) => void): void;
    abort(): void;
    finalMessage(): Promise<Anthropic.Message>;
  }
  class Anthropic {
    constructor(options: { baseURL: string; apiKey: string; maxRetries: number });
    readonly messages: {
      create(params: Params): Promise<Anthropic.Message>;
      countTokens(params: Params): Promise<{ readonly input_tokens: number }>;
      stream(params: Params): Stream;
    };
  }
  namespace Anthropic {
    interface Usage {
      readonly input_tokens: number;
      readonly output_tokens: number;
      readonly cache_creation_input_tokens: number | null;
      readonly cache_read_input_tokens: number | null;
    }
    interface TextBlock {
      readonly type: 'text';
      readonly text: string;
    }
    interface Message {
      readonly content: readonly (TextBlock | { readonly type: 'tool_use'; readonly input: unknown })[];
      readonly stop_reason: string | null;
      readonly usage: Usage;
    }
    class APIError extends Error {
      readonly status: number;
      readonly error: unknown;
      readonly requestID: string | null | undefined;
    }
    class APIUserAbortError extends APIError {}
    class AuthenticationError extends APIError {}
    class BadRequestError extends APIError {}
    class NotFoundError extends APIError {}
  }
  export default Anthropic;
}
