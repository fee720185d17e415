/**
 * The WebAssembly module of QuickJS, metered: it counts functions that begin and turns of loops in the
 * engine itself, so that a built-in method pays for what it does over a long text or array. Read and
 * rewritten once in a process.
 *
 * Its file in the installed package is all that the simulator ever reads.
 */

import type { QuickJSWASMModule } from 'quickjs-emscripten';
import { invariant, TierKVError } from '../../../runtime/errors.ts';
import { parseModule } from '../wasm/binary/index.ts';
import { exportNames, meterEngine } from '../wasm/metering/index.ts';

/** A new instance of the module, with the turns that it may still take. */
export interface MeteredModule {
  readonly quickjs: QuickJSWASMModule;
  readonly fuel: WebAssembly.Global;
}

export const MOST_FUEL: number = 2 ** 31 - 1;

/** Two packages, the second one installed with the first. */
const PACKAGE = 'quickjs-emscripten';
const MODULE = '@jitl/quickjs-wasmfile-release-sync/wasm';

let metered: Promise<WebAssembly.Module> | null = null;

/**
 * @param memory that the module gets
 * @throws TKV_CONFIG where the package of the engine is not installed
 */
export async function newModule(memory: WebAssembly.Memory): Promise<MeteredModule> {
  let quickjs: typeof import('quickjs-emscripten');
  try {
    quickjs = await import('quickjs-emscripten');
    metered ??= meteredModule();
    await metered;
  } catch (cause) {
    metered = null;
    const remedy = 'Install it: npm install quickjs-emscripten';
    throw new TierKVError(
      'TKV_CONFIG',
      `language javascript needs the package quickjs-emscripten, which is not installed. ${remedy}`,
      { field: 'language', cause },
    );
  }
  const module = await metered;
  let fuel: WebAssembly.Global | undefined;
  const variant = quickjs.newVariant(quickjs.RELEASE_SYNC, {
    wasmMemory: memory,
    emscriptenModule: {
      instantiateWasm(imports, onSuccess) {
        const instance = new WebAssembly.Instance(module, imports);
        // the rewriter exports the global under this name
        fuel = instance.exports[exportNames.fuel] as WebAssembly.Global;
        // its own start-up is not a program's
        fuel.value = MOST_FUEL;
        onSuccess(instance);
        return instance.exports;
      },
    },
  });
  const instance = await quickjs.newQuickJSWASMModuleFromVariant(variant);
  invariant(fuel !== undefined, 'the engine was not made from its metered module');
  return { quickjs: instance, fuel };
}

async function meteredModule(): Promise<WebAssembly.Module> {
  const [{ createRequire }, { readFile }] = await Promise.all([
    import('node:module'),
    import('node:fs/promises'),
  ]);
  const own = createRequire(import.meta.url);
  const file = createRequire(own.resolve(PACKAGE)).resolve(MODULE);
  return new WebAssembly.Module(meterEngine(parseModule(await readFile(file), true)));
}
