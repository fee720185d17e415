/** Starlark: policies as small Python-like programs, metered and deterministic. */

export { type StarlarkEngine, StarlarkInstance, StarlarkProgram } from './program.ts';
export {
  type FieldKind,
  RecordShape,
  repr,
  StarDict,
  StarFloat,
  StarFunction,
  StarList,
  StarRecord,
  StarTuple,
  type Value,
} from './values/index.ts';
