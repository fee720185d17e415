/**
 * The texts made of the shaders for every format have no marks left, and they compile, also for
 * a device with `shader-f16`, which Dawn's null device claims to be.
 */

import { expect, it } from 'vitest';
import { create } from 'webgpu';
import { conversionText, copyText, kernelText, kvFormat } from '../../src/compute/kernelText.ts';
import { caseLayout } from './cases/pagedCase.ts';

const dtypes = ['f32', 'f16', 'i8'] as const;

function textsFor(features: ReadonlySet<string>): [name: string, code: string][] {
  const formats = dtypes.map((dtype) =>
    kvFormat(
      caseLayout({ headDim: 8, kvHeads: 1, qHeads: 2, blockTokens: 4, dtype, lengths: [] }),
      features as unknown as GPUSupportedFeatures,
    ),
  );
  const shared = formats.flatMap((format) => {
    const of = { format, slabs: 2, heads: 2 };
    const writing = format.scaled ? 'writeKvScaled' : 'writeKv';
    const texts: [string, string][] = [
      ...['attend', 'attendShared', 'readKv'].map((name): [string, string] => [
        `${name} ${format.layout.dtype}`,
        kernelText(name, { ...of, access: 'read' }),
      ]),
      [`${writing} ${format.layout.dtype}`, kernelText(writing, { ...of, access: 'read_write' })],
    ];
    const others = formats.filter((other) => other !== format);
    return texts.concat(
      others.map((other): [string, string] => [
        `${format.layout.dtype} to ${other.layout.dtype}`,
        conversionText(format, 2, other, 3),
      ]),
    );
  });
  const copies = ([4, 8, 16] as const).map((bytes): [string, string] => [
    `copy ${bytes}`,
    copyText(bytes, 2),
  ]);
  return [
    ...shared,
    ...copies,
    ['reduce', kernelText('reduceSplits', { ...{ format: formats[0], slabs: 2 }, access: 'none' })],
  ];
}

it.each([
  ['with shader-f16', new Set(['shader-f16'])],
  ['without', new Set<string>()],
])('%s', async (_, features) => {
  const instance = create(['backend=null']);
  const adapter = await instance.requestAdapter();
  if (adapter === null) throw new Error('Dawn has no null device');
  const requiredFeatures = [...features] as GPUFeatureName[];
  const device = await adapter.requestDevice({ requiredFeatures });
  const texts = textsFor(features);
  expect(texts.length).toBe(3 * 4 + 6 + 3 + 1);
  for (const [name, code] of texts) {
    expect(code.replaceAll(/\/\/.*$/gm, ''), name).not.toMatch(/DIM|HEAD|SLAB|TARGET|ACCESS/);
    expect(code, name).not.toMatch(/\/\/ (each|scaled)/);
    const module = device.createShaderModule({ code });
    const { messages } = await module.getCompilationInfo();
    expect(
      messages.map(({ lineNum, message }) => `line ${lineNum}: ${message}`),
      name,
    ).toEqual([]);
  }
  expect(texts.filter(([, code]) => code.startsWith('enable f16')).length > 0).toBe(features.size > 0);
  device.destroy();
});
