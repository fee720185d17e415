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
