/**
 * Attention over the whole table of shapes, with both kernels.
 *
 *     node test/compute/run.ts [--adapter NAME] [--part 1/4]
 */

import { parseArgs } from 'node:util';
import { openDevice } from '../../src/backends/webgpu/index.ts';
import { allShapes, firstWrong, title } from './shapeTable.ts';

const { values } = parseArgs({
  options: { adapter: { type: 'string', default: 'software' }, part: { type: 'string', default: '1/1' } },
});
const [part, parts] = values.part.split('/').map(Number);
const live = await openDevice({ adapter: values.adapter });
let wrong = 0;
let compared = 0;
for (const [i, shape] of allShapes().entries()) {
  if (i % parts !== part - 1) continue;
  for (const kernel of ['lanes', 'workgroups'] as const) {
    const problem = await firstWrong(live.device, shape, kernel);
    compared++;
    if (problem === '') continue;
    wrong++;
    console.error(`${kernel}, ${title(shape)}, seed ${shape.seed}: ${problem}`);
  }
}
await live[Symbol.asyncDispose]();
console.log(`${live.adapter.name}: ${compared} comparisons, ${wrong} wrong`);
process.exitCode = wrong > 0 ? 1 : 0;
