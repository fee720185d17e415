/** A runtime without a device runs in a process that never loads the WebGPU binding, nor the client of the remote tier. */

import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, expect, it } from 'vitest';

const dir = mkdtempSync(join(tmpdir(), 'tierkv-modules-'));
afterAll(() => rmSync(dir, { recursive: true }));

/** Packages whose modules or native libraries a process has loaded after it used a runtime. */
function packagesAfter(options: string): string[] {
  const script = `
    import { registerHooks } from 'node:module';
    const urls = [];
    registerHooks({ resolve(specifier, context, next) {
      const found = next(specifier, context);
      urls.push(found.url);
      return found;
    } });
    const { KVRuntime, kvLayout } = await import('./src/index.ts');
    const layout = kvLayout({ layers: 1, kvHeads: 1, headDim: 64, dtype: 'f16', blockTokens: 16 });
    const kv = await KVRuntime.open({ layout, model: 'test@1', secretKey: new Uint8Array(32).fill(7),
      ddrBytes: 20 * layout.blockBytes, ${options} });
    const sequence = await kv.begin(new Uint32Array(33), { tenant: 'a' });
    for (const { index } of kv.openBlocks(sequence)) kv.writeBlock(sequence, index, (block) => block.fill(index + 1));
    await kv.seal(sequence);
    if ((await kv.readBlock(sequence, 1))[0] !== 2) throw new Error('wrong bytes');
    await kv.save();
    await kv.close();
    const paths = [...urls, ...process.report.getReport().sharedObjects];
    const names = paths.map((path) => /node_modules\\/((?:@[^/]+\\/)?[^/]+)/.exec(path)?.[1]).filter(Boolean);
    console.log(JSON.stringify([...new Set(names)]));`;
  const args = ['--input-type=module', '-e', script];
  return JSON.parse(execFileSync(process.execPath, args, { encoding: 'utf8' })) as string[];
}

const unwanted = (names: string[]): string[] => names.filter((name) => /webgpu|valkey|glide|dawn/.test(name));

it('none for host memory and files', () => {
  expect(
    unwanted(packagesAfter(`nvme: { dir: ${JSON.stringify(dir)}, bytes: 40 * layout.blockBytes }`)),
  ).toEqual([]);
});

it('control: with a device the binding is among them', () => {
  expect(unwanted(packagesAfter("hbmBytes: 20 * layout.blockBytes, adapter: 'software'"))).toContain(
    'webgpu',
  );
});
