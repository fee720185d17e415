import fs from 'node:fs';
import { expect, it } from 'vitest';

const folder = new URL('../../../shaders/', import.meta.url);

/** Lines that declare a variable of a function without a value. */
function uninitialised(code: string): string[] {
  return code.split('\n').filter((line) => /^\s+var\s+\w+\s*(:[^=]*)?;/.test(line));
}

it('hazard: a compiler of WebGPU does not zero a variable again in each turn of a loop, so all are given a value', () => {
  expect(uninitialised('  var sum: u32;\n  var sum = 0u;\n  var a: array<f32, 2>;')).toHaveLength(2);
  const files = fs.readdirSync(folder).filter((name) => name.endsWith('.wgsl'));
  expect(files.length).toBeGreaterThan(5);
  for (const file of files) {
    expect(uninitialised(fs.readFileSync(new URL(file, folder), 'utf8')), file).toEqual([]);
  }
});
