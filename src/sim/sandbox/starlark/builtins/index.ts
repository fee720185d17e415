/** What every program finds there: functions, methods, and the module `math`. */

import type { Value } from '../values/index.ts';
import { functionValues } from './functions.ts';
import { mathModule } from './math.ts';

export { callMethod, getAttribute } from './methods.ts';

/** Names of a program's surroundings, and what they stand for. */
export const builtins: ReadonlyMap<string, Value> = new Map<string, Value>([
  ...functionValues(),
  ['None', null],
  ['True', true],
  ['False', false],
  ['math', mathModule],
]);
