// The part of WebAssembly's JavaScript interface that is used here. TypeScript has it in lib `dom` only,

// which would bring `window` into scope. https://webassembly.github.io/spec/js-api/
declare namespace WebAssembly {
  type ExportValue = ((...values: never[]) => unknown) | Global | Memory | Table;
  type Exports = Readonly<Record<string, ExportValue>>;
  type Imports = Record<string, Record<string, unknown>>;

  class Module {
    constructor(bytes: Uint8Array<ArrayBuffer>);
  }
  class Instance {
    constructor(module: Module, imports?: Imports);
    readonly exports: Exports;
  }
  class Memory {
    constructor(descriptor: { initial: number; maximum?: number });
    readonly buffer: ArrayBuffer;
    grow(pages: number): number;
  }
  class Table {
    readonly length: number;
  }
  class Global {
    value: number | bigint;
  }
  class RuntimeError extends Error {}

  function validate(bytes: Uint8Array<ArrayBuffer>): boolean;
}
