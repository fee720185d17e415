/**
 * Attention over the whole table of shapes with both kernels, beside 64-bit floats and TensorFlow.js; and
 * every wrong kernel of the list, each of which must be caught.
 *
 *     node test/compute/run.ts [--adapter NAME] [--part 1/4]
 *     node test/compute/run.ts --mutations [--adapter NAME]
 */

import { parseArgs } from 'node:util';
import { openDevice } from '../../src/backends/webgpu/adapter.ts';
import { runCase } from './cases/attentionRun.ts';
import { attendedInF64, pagedCase } from './cases/pagedCase.ts';
import { attendedInTf } from './cases/secondOpinion.ts';
import { allShapes, firstBeyond, title } from './cases/shapeTable.ts';
import { mutations } from './mutations/mutations.ts';
import { wrongValues } from './mutations/wrongValues.ts';

const { values } = parseArgs({
  options: {
    adapter: { type: 'string', default: 'software' },
    part: { type: 'string', default: '1/1' },
    mutations: { type: 'boolean', default: false },
  },
});
const live = await openDevice({ adapter: values.adapter });
const failed = values.mutations ? await runMutations() : await runTable();
await live[Symbol.asyncDispose]();
process.exitCode = failed > 0 ? 1 : 0;

async function runTable(): Promise<number> {
  const [part, parts] = values.part.split('/').map(Number);
  if (!(part >= 1 && part <= parts)) throw new RangeError('--part is like 1/4');
  const shapes = allShapes().filter((_, i) => i % parts === part - 1);
  let [compared, wrong] = [0, 0];
  for (const [i, shape] of shapes.entries()) {
    const one = pagedCase(shape);
    const wanted = attendedInF64(one);
    const opinion = await attendedInTf(one);
    for (const kernel of ['lanes', 'workgroups'] as const) {
      const attended = await runCase(live.device, one, { kernel });
      compared += attended.length;
      const problem = firstBeyond(one, attended, wanted) || firstBeyond(one, attended, opinion, 2);
      if (problem === '') continue;
      wrong++;
      console.error(`${kernel}, ${title(shape)}, seed ${shape.seed}: ${problem}`);
    }
    if ((i + 1) % 10 === 0) console.error(`${i + 1} of ${shapes.length} shapes, ${wrong} wrong`);
  }
  console.log(
    `${live.adapter.name}: ${shapes.length} shapes with 2 kernels, ${compared} numbers, ${wrong} wrong`,
  );
  return wrong;
}

async function runMutations(): Promise<number> {
  let missed = 0;
  for (const mutation of mutations) {
    const { wrong, replaced } = await wrongValues(live.device, mutation);
    const caught = wrong > 0 && replaced > 0;
    if (!caught) missed++;
    console.log(`${caught ? 'caught' : 'MISSED'}  ${mutation.kernel}: ${mutation.fault} (${wrong} wrong)`);
  }
  console.log(`${live.adapter.name}: ${mutations.length} wrong kernels, ${missed} missed`);
  return missed;
}
