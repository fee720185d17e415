/** Explores the larger scopes: `npm run campaign -- modelcheck`, or with `--states N` to stop each at N states. */

import { parseArgs } from 'node:util';
import { explore } from './explore.ts';
import { largeScopes } from './scopes.ts';

const { values } = parseArgs({ options: { states: { type: 'string' } } });
const statesMax = values.states === undefined ? Number.POSITIVE_INFINITY : Number(values.states);
let total = 0;
for (const scope of largeScopes) {
  const startMs = performance.now();
  const { states, transitions, depth, complete, taken, violation } = explore(scope, statesMax);
  const seconds = ((performance.now() - startMs) / 1000).toFixed(1);
  total += states;
  console.log(
    `${scope.name}: ${states} states, ${transitions} transitions, depth ${depth}, ` +
      `${complete ? 'complete' : 'stopped early'}, ${seconds} s`,
  );
  console.log(
    `  taken: ${Object.entries(taken)
      .map(([what, times]) => `${what} ${times}`)
      .join(', ')}`,
  );
  if (violation === null) continue;
  console.log(`BROKEN ${violation.problem}`);
  for (const { what, a } of violation.way) console.log(`  ${what} ${a}`);
  process.exit(1);
}
console.log(`model check: ${largeScopes.length} scopes, ${total} states, no rule broken`);
