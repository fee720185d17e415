/**
 * The parts of a WebAssembly module that a policy may have. Numbers and names as the binary format has them.
 */

/** Numbers only: a policy has no use for vectors and references. */
export const valueTypes: Readonly<Record<number, string>> = {
  127: 'i32',
  126: 'i64',
  125: 'f32',
  124: 'f64',
};

export const I32 = 0x7f;
export const F32 = 0x7d;
export const F64 = 0x7c;

export const sections = {
  custom: 0,
  type: 1,
  import: 2,
  function: 3,
  table: 4,
  memory: 5,
  global: 6,
  export: 7,
  start: 8,
  element: 9,
  code: 10,
  data: 11,
  dataCount: 12,
} as const;

export const exportKinds = { function: 0, table: 1, memory: 2, global: 3 } as const;

export interface FunctionType {
  readonly params: readonly number[];
  readonly results: readonly number[];
}

export interface GlobalVariable {
  readonly type: number;
  readonly isMutable: boolean;
  /** Its constant expression, as it stands in the module. */
  readonly initial: Uint8Array;
}

export interface FunctionBody {
  readonly locals: readonly { readonly count: number; readonly type: number }[];
  /** Instructions with the last `end`. */
  readonly code: Uint8Array;
  /** Where they begin in the module. */
  readonly at: number;
}

/** What a module of the host's own asks for; a policy imports nothing. */
export interface ModuleImports {
  /** Functions among them, which have the first numbers. */
  readonly functions: number;
  /** Whether its memory is one of them. */
  readonly memory: boolean;
  /** Content of the section, taken over as it is. */
  readonly section: Uint8Array | null;
}

export interface ModuleParts {
  readonly imports: ModuleImports;
  readonly types: readonly FunctionType[];
  /** Type of each function, those that are imported first. */
  readonly functions: readonly number[];
  readonly bodies: readonly FunctionBody[];
  readonly globals: readonly GlobalVariable[];
  /** Pages of 64 KiB. */
  readonly memory: { readonly min: number; readonly max: number | null } | null;
  readonly exports: readonly { readonly name: string; readonly kind: number; readonly index: number }[];
  readonly start: number | null;
  /** Contents of these sections, taken over as they are. */
  readonly tables: Uint8Array | null;
  readonly elements: Uint8Array | null;
  readonly data: Uint8Array | null;
}
