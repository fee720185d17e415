/** WebAssembly modules as bytes: taken apart and written. */

export { ByteReader, ByteWriter, refuse } from './bytes.ts';
export {
  exportKinds,
  F32,
  F64,
  type FunctionBody,
  type FunctionType,
  I32,
  type ModuleParts,
  sections,
  valueTypes,
} from './module.ts';
export { parseModule } from './parseModule.ts';
