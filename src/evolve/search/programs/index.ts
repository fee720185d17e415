/** Search over Starlark programs: texts from trees, mutation, crossover, and the numbers in a program. */

export {
  crossPrograms,
  fieldsRead,
  mutateProgram,
  numbersOf,
  type ProgramChild,
  withNumbers,
  withOneMoreTerm,
} from './evolveProgram.ts';
export type { Fields } from './fields.ts';
export { print, printProgram } from './printer.ts';
