/**
 * Code for pages and workers: one bundle by rolldown in which modules of Node have their counterparts of `src/adapters/browser`, and
 * the package's data files are texts. A module of Node that has none is an error with its importer.
 */

import { globSync, readFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { type OutputChunk, type Plugin, rolldown } from 'rolldown';
import { shadersInside } from './shaderModule.ts';

const root = resolve(import.meta.dirname, '..');
const source = (name: string): string => join(root, 'src', name);

/** Modules of the sources by what stands in their place. */
const counterparts: ReadonlyMap<string, string> = new Map([
  [source('io/files/inputs.ts'), source('adapters/browser/inputs.ts')],
  [source('requireNode.ts'), source('adapters/browser/noNode.ts')],
  [source('packageFiles.ts'), source('adapters/browser/packageFiles.ts')],
  [source('backends/file/posixFolder.ts'), source('adapters/browser/opfsFolder.ts')],
  [source('backends/host/posix.ts'), source('adapters/browser/posix.ts')],
  [source('backends/host/copyThreads.ts'), source('adapters/browser/posix.ts')],
  [source('backends/remote/remoteTier.ts'), source('adapters/browser/remoteTier.ts')],
  [source('adapters/transformers/weights.ts'), source('adapters/browser/weights.ts')],
  [source('backends/webgpu/adapter.ts'), source('adapters/browser/adapter.ts')],
  [source('embed/blockPort.ts'), source('adapters/browser/blockPort.ts')],
  [source('embed/noteCipher.ts'), source('adapters/browser/noteCipher.ts')],
]);

/** Doors of the package by the door that a bundler finds under the condition `browser`. */
const doorsOfPages: ReadonlyMap<string, string> = new Map(
  Object.values(
    (
      JSON.parse(readFileSync(join(root, 'package.json'), 'utf8')) as {
        exports: Record<string, string | { default: string; browser?: { default: string } }>;
      }
    ).exports,
  ).flatMap((door) => {
    if (typeof door === 'string' || door.browser === undefined) return [];
    const sourceOf = (built: string): string => source(built.replace('./dist/', '').replace(/\.js$/, '.ts'));
    return [[sourceOf(door.default), sourceOf(door.browser.default)] as const];
  }),
);

/** What a simulation by names reads; measurements and traces stay behind. */
const dataFiles = ['models/*.json', 'hardware/*.json', 'latency/*.json'];

function packageTexts(): Record<string, string> {
  const folder = join(root, 'data');
  const names = dataFiles.flatMap((pattern) => globSync(pattern, { cwd: folder })).sort();
  // without the spaces, which are a third of them
  const textOf = (name: string): string =>
    JSON.stringify(JSON.parse(readFileSync(join(folder, name), 'utf8')));
  const { version } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8')) as { version: string };
  return { '../version': version, ...Object.fromEntries(names.map((name) => [name, textOf(name)])) };
}

const inPages = (instead: Readonly<Record<string, string>>): Plugin => ({
  name: 'tierkv-in-pages',
  async resolveId(id, importer, options) {
    // a page has no packages beside its own code
    if (['tierkv:files', 'tierkv:file-worker', 'cli-table3'].includes(id)) return `\0${id}`;
    if (Object.hasOwn(instead, id)) return instead[id];
    if (id === 'node:path') return source('adapters/browser/paths.ts');
    if (id.startsWith('node:')) throw new Error(`${importer} imports ${id}, which a page does not have`);
    const found = await this.resolve(id, importer, { ...options, skipSelf: true });
    if (found === null) return null;
    const door = doorsOfPages.get(found.id);
    // the door of pages itself may stand on the other one
    return counterparts.get(found.id) ?? (door === importer ? undefined : door) ?? found;
  },
  async load(id) {
    if (id === '\0tierkv:file-worker') {
      return `export default ${JSON.stringify(await programText('adapters/browser/fileWorker.ts'))};`;
    }
    if (id === source('adapters/browser/noNode.ts')) return 'export {};';
    if (id === '\0tierkv:files') return `export default ${JSON.stringify(packageTexts())};`;
    // the printer of tables needs a terminal, and pages print none
    return id === '\0cli-table3' ? 'export default class {}' : null;
  },
});

/** One file as a text that a page starts a worker from. */
async function programText(file: string): Promise<string> {
  const build = await rolldown({
    cwd: root,
    input: source(file),
    platform: 'browser',
    tsconfig: false,
    plugins: [shadersInside(false), inPages({})],
    transform: { target: 'es2022' },
  });
  const { output } = await build.generate({ format: 'esm', minify: true, codeSplitting: false });
  await build.close();
  return output[0].code;
}

export interface BrowserBuild {
  /** Files by the names that the built ones get. */
  readonly input: Readonly<Record<string, string>>;
  readonly dir: string;
  readonly minify?: boolean;
  /** Folder of what several files have in common. Default `shared`. */
  readonly shared?: string;
  /** Packages that stay imports. Default: none. */
  readonly external?: readonly string[];
  /** Files that stand in the place of packages, by the package's name. */
  readonly instead?: Readonly<Record<string, string>>;
}

/** @returns the files that were written */
export async function buildForBrowsers({
  input,
  dir,
  minify = true,
  shared = 'shared',
  external = [],
  instead = {},
}: BrowserBuild): Promise<OutputChunk[]> {
  const build = await rolldown({
    cwd: root,
    input: { ...input },
    platform: 'browser',
    // its paths lead to declarations of packages, for the type check alone
    tsconfig: false,
    plugins: [shadersInside(false), inPages(instead)],
    external: (id) => external.some((name) => id === name || id.startsWith(`${name}/`)),
    transform: { target: 'es2022' },
    checks: { pluginTimings: false },
  });
  const { output } = await build.write({
    dir,
    format: 'esm',
    minify,
    comments: { annotation: true, jsdoc: false, legal: true },
    entryFileNames: '[name].js',
    chunkFileNames: `${shared}/[name]-[hash].js`,
  });
  await build.close();
  return output.filter((file) => file.type === 'chunk');
}
