/** What a program runs equals the files `shaders/*.wgsl`: from the sources, and in what a build writes. */

import { readdirSync, readFileSync } from 'node:fs';
import { expect, it } from 'vitest';
import { shaderSource } from '../../../../src/backends/webgpu/kernels.ts';
import { computeShaders, storeShaders } from '../../../../src/backends/webgpu/shaderTexts.ts';
import { shaderModule } from '../../../../tools/shaderModule.ts';

const folder = new URL('../../../../shaders/', import.meta.url);
const files = readdirSync(folder).filter((file) => file.endsWith('.wgsl'));

type Texts = Readonly<Record<string, string>>;
const built = async (remarks: boolean): Promise<{ storeShaders: Texts; computeShaders: Texts }> =>
  import(`data:text/javascript,${encodeURIComponent(shaderModule(remarks))}`);

it('each shader text equals its file, byte for byte, also in a build; an unknown name is an error', async () => {
  expect(files.length).toBeGreaterThan(20);
  const inBuild = await built(true);
  expect(Object.keys({ ...storeShaders, ...computeShaders })).toHaveLength(files.length);
  for (const file of files) {
    const name = file.slice(0, -5);
    const text = readFileSync(new URL(file, folder), 'utf8');
    const [own, ownInBuild] = Object.hasOwn(storeShaders, name)
      ? [storeShaders, inBuild.storeShaders]
      : [computeShaders, inBuild.computeShaders];
    expect(shaderSource(own, name)).toBe(text);
    expect(ownInBuild[name]).toBe(text);
  }
  expect(() => shaderSource(computeShaders, 'atend')).toThrow(expect.objectContaining({ code: 'TKV_INPUT' }));
});

it('the stores have the seven shaders that they run: a page without compute carries no others', () => {
  expect(Object.keys(storeShaders)).toEqual([
    'boxes',
    'check',
    'digest',
    'fill',
    'gather',
    'scatter',
    'slots',
  ]);
});

it('a build for pages leaves out remarks, and keeps the ones that repeat a line', async () => {
  const bare = await built(false);
  const lines = (text: string): string[] => text.split('\n');
  for (const [name, text] of Object.entries({ ...bare.storeShaders, ...bare.computeShaders })) {
    const whole = lines({ ...storeShaders, ...computeShaders }[name]);
    const code = whole.filter((line) => !line.trim().startsWith('//') || line.includes('// each '));
    expect(lines(text), name).toEqual(code);
  }
  expect(bare.computeShaders.attend).toContain('// each dim');
});
