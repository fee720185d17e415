/** Modules that count their own steps, memory and depth. */

export { STACK_VALUES, stopReasons } from './additions.ts';
export { exportNames, meterEngine, rewriteModule } from './rewriteModule.ts';
