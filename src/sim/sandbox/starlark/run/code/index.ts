/** A program as JavaScript text, and the function that it becomes. */

export { type CompiledProgram, compileModule } from './compiler.ts';
