import { execFile } from 'node:child_process';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { afterAll, afterEach, beforeAll, describe, expect, it, vi } from 'vitest';
import { openDevice, requestDevice } from '../../../../src/backends/webgpu/adapter.ts';
import { HbmStore } from '../../../../src/backends/webgpu/hbmStore.ts';
import { adoptDevice, deviceFault } from '../../../../src/backends/webgpu/selfTest.ts';
import { softwareArchive, unpackSoftwareDriver } from '../../../../src/backends/webgpu/softwareAdapter.ts';
import { poolShape } from '../../../../src/runtime/tables/slotPool.ts';
import { patternItem } from '../../../../src/testing/index.ts';

const root = fileURLToPath(new URL('../../../../', import.meta.url));
const run = promisify(execFile);
let scratch: string;
let icdPath: string;

beforeAll(() => {
  scratch = fs.mkdtempSync(path.join(os.tmpdir(), 'tierkv-adapter-'));
  icdPath = unpackSoftwareDriver(softwareArchive()!, path.join(scratch, 'driver')).icdPath;
});
afterAll(() => fs.rmSync(scratch, { recursive: true, force: true }));
afterEach(() => vi.unstubAllEnvs());

const drivers = ['VK_ICD_FILENAMES', 'VK_DRIVER_FILES'] as const;

describe('TIERKV_ADAPTER', () => {
  it('software: a software device, announced loudly, and no trace of it in the environment', async () => {
    vi.stubEnv('TIERKV_ADAPTER', 'software');
    const lines: string[] = [];
    const before = drivers.map((name) => process.env[name]);
    await using live = await openDevice({ notice: (line) => lines.push(line) });
    expect(live.adapter.software).toBe(true);
    expect(live.adapter.name).not.toBe('');
    expect(lines).toHaveLength(1);
    expect(lines[0]).toContain('SOFTWARE');
    expect(lines[0]).toContain(live.adapter.name);
    expect(drivers.map((name) => process.env[name])).toEqual(before);
  });

  it('hardware: never a software device in its place', async () => {
    vi.stubEnv('TIERKV_ADAPTER', 'hardware');
    vi.stubEnv('VK_ICD_FILENAMES', icdPath);
    await expect(openDevice()).rejects.toMatchObject({
      code: 'TKV_DEVICE',
      field: 'TIERKV_ADAPTER',
      message: expect.stringMatching(
        /finds no hardware GPU.*is a software device.*Install its Vulkan driver/,
      ),
    });
  });

  it('a manifest: that driver, whatever else the environment names', async () => {
    vi.stubEnv('VK_DRIVER_FILES', '/nowhere/vulkan.json');
    await using live = await openDevice({ adapter: icdPath });
    expect(live.adapter).toMatchObject({ software: true, source: 'TIERKV_ADAPTER' });
  });

  it('a manifest that does not exist or has no driver: an error that names it', async () => {
    const broken = path.join(scratch, 'broken.json');
    fs.writeFileSync(
      broken,
      '{"file_format_version":"1.0.0","ICD":{"library_path":"./no.so","api_version":"1.0.5"}}',
    );
    for (const adapter of [path.join(scratch, 'none.json'), broken]) {
      await expect(openDevice({ adapter })).rejects.toMatchObject({
        code: 'TKV_DEVICE',
        field: 'adapter',
        message: expect.stringContaining(`adapter ${adapter} gives no usable adapter`),
      });
      vi.stubEnv('TIERKV_ADAPTER', adapter);
      await expect(openDevice()).rejects.toMatchObject({
        field: 'TIERKV_ADAPTER',
        message: expect.stringContaining(`TIERKV_ADAPTER=${adapter} gives no usable adapter`),
      });
      vi.unstubAllEnvs();
    }
  });

  it('a part of a name, in any case: that adapter', async () => {
    vi.stubEnv('VK_ICD_FILENAMES', icdPath);
    await using live = await openDevice({ adapter: 'SwiftShader' });
    expect(live.adapter.name.toLowerCase()).toContain('swiftshader');
  });

  it('a name that nothing has: an error that lists the adapters there are', async () => {
    vi.stubEnv('VK_ICD_FILENAMES', icdPath);
    await expect(openDevice({ adapter: 'no such gpu' })).rejects.toMatchObject({
      code: 'TKV_DEVICE',
      message: expect.stringMatching(/matches no adapter.*swiftshader/i),
    });
  });
});

describe("the user's own driver", () => {
  for (const name of drivers) {
    it(`in ${name} is used before any other software`, async () => {
      vi.stubEnv(name, icdPath);
      await using live = await openDevice();
      expect(live.adapter.source).toBe(name);
    });

    it(`in ${name} is never overridden, also when it does not work`, async () => {
      vi.stubEnv(name, path.join(scratch, 'gone.json'));
      await expect(openDevice()).rejects.toMatchObject({
        code: 'TKV_DEVICE',
        message: expect.stringMatching(new RegExp(`Correct ${name}, or unset it`)),
      });
      expect(process.env[name]).toBe(path.join(scratch, 'gone.json'));
    });
  }
});

describe('the self-test', () => {
  it('rejects a device that accepts every call and returns zeros', async () => {
    const live = await requestDevice({ source: 'platform', backend: 'null' }, () => {});
    if (typeof live === 'string') throw new Error(live);
    expect(await deviceFault(live)).toMatch(/uploads do not arrive/);
    await expect(
      adoptDevice(live.device, { name: 'null', vendor: 'none', software: true }),
    ).rejects.toMatchObject({ code: 'TKV_DEVICE', message: expect.stringContaining('copies and computes') });
    await live[Symbol.asyncDispose]();
  });

  it("passes a device of the embedder's own, on which a pool then works", async () => {
    await using own = await openDevice({ adapter: 'software' });
    const live = await adoptDevice(own.device, { name: 'mine', vendor: 'me', software: true });
    expect(live.adapter.source).toBe('embedder');
    const shape = poolShape(1, 4096, [4096]);
    await using store = await HbmStore.open(live, shape);
    expect((await store.write([patternItem(shape, 0, 0, 1)]))[0].reason).toBe('');
  });
});

describe('the software device from npm', () => {
  it('is unpacked by several processes at once into one folder, whole', async () => {
    const cache = path.join(scratch, 'race');
    const module = new URL('../../../../src/backends/webgpu/softwareAdapter.ts', import.meta.url).href;
    const program = `
      const { softwareArchive, unpackSoftwareDriver } = await import(${JSON.stringify(module)});
      console.log(unpackSoftwareDriver(softwareArchive(), ${JSON.stringify(cache)}).icdPath);`;
    const runs = await Promise.all(
      [1, 2, 3, 4, 5].map(() => run(process.execPath, ['--input-type=module', '-e', program], { cwd: root })),
    );
    const manifests = new Set(runs.map(({ stdout }) => stdout.trim()));
    expect(manifests.size).toBe(1);
    const folders = fs.readdirSync(cache);
    expect(folders).toHaveLength(1);
    const files = fs.readdirSync(path.join(cache, folders[0])).sort();
    expect(files).toEqual(['libvk_swiftshader.so', 'libvulkan.so.1', 'vk_swiftshader_icd.json']);
  });

  it('is unpacked again where the cached copy is not whole', () => {
    const cache = path.join(scratch, 'partial');
    const first = unpackSoftwareDriver(softwareArchive()!, cache);
    const driver = path.join(path.dirname(first.icdPath), 'libvk_swiftshader.so');
    const { size } = fs.statSync(driver);
    for (const damage of [() => fs.rmSync(driver), () => fs.truncateSync(driver, 0)]) {
      damage();
      expect(unpackSoftwareDriver(softwareArchive()!, cache)).toEqual(first);
      expect(fs.statSync(driver).size).toBe(size);
    }
  });

  it('names the setting if no folder is left to unpack it into', () => {
    const file = path.join(scratch, 'a-file');
    fs.writeFileSync(file, '');
    expect(() => unpackSoftwareDriver(softwareArchive()!, path.join(file, 'cache'))).toThrowError(
      expect.objectContaining({
        code: 'TKV_DEVICE',
        message: expect.stringMatching(/cannot be unpacked.*Set XDG_CACHE_HOME/),
      }),
    );
  });

  it('is asked for by its npm command where it is missing', async ({ skip }) => {
    const elsewhere = path.join(scratch, 'elsewhere');
    for (const part of ['src/runtime', 'src/backends', 'src/packageFiles.ts', 'shaders', 'package.json']) {
      fs.cpSync(path.join(root, part), path.join(elsewhere, part), { recursive: true });
    }
    fs.mkdirSync(path.join(elsewhere, 'node_modules'));
    fs.symlinkSync(
      path.join(root, 'node_modules/webgpu'),
      path.join(elsewhere, 'node_modules/webgpu'),
      'junction',
    );
    const program = `
      const { openDevice } = await import('./src/backends/webgpu/adapter.ts');
      await openDevice({ adapter: 'software' }).catch((error) => console.log(error.code, error.message));`;
    const { stdout } = await run(process.execPath, ['--input-type=module', '-e', program], {
      cwd: elsewhere,
    });
    skip(stdout === '', 'this machine has a software driver of its own');
    expect(stdout).toMatch(
      /^TKV_DEVICE adapter software finds no software device.*npm install --save-dev @sparticuz\/chromium/,
    );
  });
});

describe('hazard: dropped GPU objects', () => {
  it('a device of which nothing but the GPUDevice is held works through many garbage collections', async () => {
    const program = `
      const { openDevice } = await import('./src/backends/webgpu/adapter.ts');
      const { BufferUsage, MapMode } = await import('./src/backends/webgpu/device.ts');
      const size = 65536;
      for (let round = 0; round < 5; round++) {
        const device = await openDevice({ adapter: 'software' }).then((live) => live.device);
        const source = device.createBuffer({ size, usage: BufferUsage.COPY_SRC | BufferUsage.COPY_DST });
        const target = device.createBuffer({ size, usage: BufferUsage.MAP_READ | BufferUsage.COPY_DST });
        for (let pass = 1; pass <= 5; pass++) {
          gc();
          device.queue.writeBuffer(source, 0, new Uint8Array(size).fill(pass));
          const encoder = device.createCommandEncoder();
          encoder.copyBufferToBuffer(source, 0, target, 0, size);
          device.queue.submit([encoder.finish()]);
          await new Promise((resolve) => setTimeout(resolve, 1));
          gc();
          await target.mapAsync(MapMode.READ);
          if (new Uint8Array(target.getMappedRange()).some((byte) => byte !== pass)) console.log('wrong bytes');
          target.unmap();
        }
        device.destroy();
      }
      console.log('alive');`;
    const { stdout } = await run(process.execPath, ['--expose-gc', '--input-type=module', '-e', program], {
      cwd: root,
    });
    expect(stdout.trim()).toBe('alive');
  });
});
