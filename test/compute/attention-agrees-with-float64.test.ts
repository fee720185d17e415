import { expect, it } from 'vitest';
import { softwareDevice } from '../backends/webgpu/softwareDevice.ts';
import { runCase } from './attentionRun.ts';
import { attendedInF64, boundOf, type CaseShape, pagedCase } from './pagedCase.ts';
import { shapesOfCi } from './shapeTable.ts';

const device = softwareDevice();

function title({
  dtype = 'f32',
  headDim,
  qHeads,
  kvHeads,
  blockTokens,
  lengths,
  window = 0,
  slabs = 1,
}: CaseShape) {
  const heads = `${qHeads} query and ${kvHeads} KV heads of ${headDim}`;
  return `${dtype}, ${heads}, blocks of ${blockTokens}, ${lengths} tokens, window ${window}, ${slabs} slabs`;
}

it.each(shapesOfCi.map((shape) => [title(shape), shape] as const))('%s', async (_, shape) => {
  const one = pagedCase(shape);
  const wanted = attendedInF64(one);
  const { attended } = await runCase(device.live.device, one);
  const wrong = [...wanted].findIndex((value, i) => !(Math.abs(attended[i] - value) <= boundOf(one, value)));
  expect(wrong, `attended[${wrong}] is ${attended[wrong]}, not ${wanted[wrong]}`).toBe(-1);
});
