import { describe, expect, it } from 'vitest';
import { testDevice } from '../backends/webgpu/testDevice.ts';
import { hasExtra } from '../extras.ts';
import { runCase } from './cases/attentionRun.ts';
import { attendedInF64, type CaseShape, pagedCase } from './cases/pagedCase.ts';
import { attendedInTf } from './cases/secondOpinion.ts';
import { firstBeyond, firstWrong, shapesOfCi, shapesOfWorkgroups, title } from './cases/shapeTable.ts';

const device = testDevice();
const isSecondThere = hasExtra('@tensorflow/tfjs-core', 'a second opinion on attention');

describe.each([
  ['lanes', shapesOfCi],
  ['workgroups', shapesOfWorkgroups],
] as const)('the kernel of %s', (kernel, shapes) => {
  it.each(shapes.map((shape) => [title(shape), shape] as const))('%s', async (_, shape) => {
    expect(await firstWrong(device.live.device, shape, kernel)).toBe('');
  });

  const small = { headDim: 8, kvHeads: 1, qHeads: 3, blockTokens: 4, lengths: [200], slabs: 2 };
  const scores = {
    'rise from token to token': (token) => token / 64,
    'fall from token to token': (token) => -token / 64,
    'are all alike, and lower than any sentinel but the lowest': () => -1e37,
    'are all alike and large': () => 1e37,
  } as const satisfies Record<string, CaseShape['scoreOf']>;
  it.each(Object.entries(scores))('scores %s', async (_, scoreOf) => {
    expect(await firstWrong(device.live.device, { ...small, scoreOf }, kernel)).toBe('');
  });

  it.skipIf(!isSecondThere).each([0, 17])(
    'agrees with TensorFlow.js as a second opinion, window %i',
    async (window) => {
      const positions = [[16, 127, 128, 199]];
      const one = pagedCase({ ...small, headDim: 64, dtype: 'i8', window, positions });
      const attended = await runCase(device.live.device, one, { kernel });
      const opinion = await attendedInTf(one);
      expect(firstBeyond(one, attended, opinion, 2)).toBe(''); // both are off from the truth
      expect(firstBeyond(one, Float32Array.from(opinion), attendedInF64(one))).toBe('');
    },
  );
});
