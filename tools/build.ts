/**
 * Makes `dist`: declarations by tsc, JavaScript by rolldown, in three bundles.
 *
 * - Doors: one file for each door of package.json. What they share lies in `dist/shared`, once, so that a class
 *   that comes through two doors is one class. Packages are imported.
 * - Doors of pages (browserBuild.ts): the same for browsers, below `dist/browser`.
 * - Programs: the command and what its threads run, each with the name it has in `src`; every command is a part that
 *   is loaded when it is called. Packages are inside, since a program loads one file faster than a hundred; their
 *   licences stand in `dist/cli/LICENSES`. Only packages with native code, and what may be absent, are imported.
 *
 * The code has no comments, is not minified and has no source maps: it keeps names and lines, so the stack of an
 * error leads to its place. `--out FOLDER` builds elsewhere, `--programs`
 * the programs alone, `--no-declarations` all but the declarations.
 */

import { execFileSync } from 'node:child_process';
import { globSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join, relative, resolve } from 'node:path';
import { parseArgs } from 'node:util';
import { type OutputChunk, rolldown } from 'rolldown';
import { buildForBrowsers } from './browserBuild.ts';
import { shadersInside } from './shaderModule.ts';

const root = resolve(import.meta.dirname, '..');
const { values } = parseArgs({
  allowNegative: true,
  options: {
    out: { type: 'string', default: join(root, 'dist') },
    programs: { type: 'boolean' },
    declarations: { type: 'boolean', default: true },
  },
});
const out = resolve(values.out);

interface Manifest {
  readonly exports: Readonly<Record<string, string | { readonly default: string }>>;
  readonly bin: Readonly<Record<string, string>>;
  readonly dependencies: Readonly<Record<string, string>>;
  readonly optionalDependencies: Readonly<Record<string, string>>;
  readonly peerDependencies: Readonly<Record<string, string>>;
}
const manifest = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8')) as Manifest;
const mayBeAbsent = [
  ...Object.keys(manifest.optionalDependencies),
  ...Object.keys(manifest.peerDependencies),
];

/** `sim/index` of `./dist/sim/index.js`: the name below `src`, without extension. */
const nameOf = (file: string): string => /^(?:\.\/)?dist\/(.+)\.js$/.exec(file)![1];

const allDoors = Object.values(manifest.exports).flatMap((door) =>
  typeof door === 'string' ? [] : [nameOf(door.default)],
);
const doors = allDoors.filter((name) => !name.startsWith('browser/'));
/** Doors of pages are built together, and share no file with those of Node. */
const pageDoors = allDoors.filter((name) => name.startsWith('browser/'));

/** What `src/packageFiles.ts` is asked for: programs of threads. */
const threads = globSync('src/**/*.ts', { cwd: root }).flatMap((file) =>
  [...readFileSync(join(root, file), 'utf8').matchAll(/\bthreadProgram\('([^']+)'\)/g)].map(
    ([, name]) => name,
  ),
);

/** @param external packages that stay imports; all others come into the bundle */
async function bundle(
  names: readonly string[],
  shared: string,
  external: readonly string[],
): Promise<OutputChunk[]> {
  const build = await rolldown({
    cwd: root,
    input: Object.fromEntries(names.map((name) => [name, join(root, 'src', `${name}.ts`)])),
    platform: 'node',
    external: (id) => external.some((name) => id === name || id.startsWith(`${name}/`)),
    plugins: [shadersInside(true)],
    transform: { target: 'es2024' },
  });
  const { output } = await build.write({
    dir: out,
    format: 'esm',
    comments: { annotation: true, jsdoc: false, legal: true },
    entryFileNames: '[name].js',
    chunkFileNames: `${shared}/[name]-[hash].js`,
  });
  await build.close();
  return output.filter((file) => file.type === 'chunk');
}

/** The licence of each package that has code in `chunks`. */
function licencesOf(chunks: readonly OutputChunk[]): string {
  const folders = new Set<string>();
  for (const id of chunks.flatMap(({ moduleIds }) => moduleIds)) {
    const folder = /^.*\/node_modules\/(?:@[^/]+\/)?[^/]+(?=\/)/.exec(id)?.[0];
    if (folder !== undefined) folders.add(folder);
  }
  const parts = [...folders].sort().map((folder) => {
    const { name, version } = JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8'));
    const [file] = globSync('{LICENSE,LICENCE,license}*', { cwd: folder });
    if (file === undefined) throw new Error(`${name} goes into the bundle and has no licence`);
    return `${name} ${version}\n\n${readFileSync(join(folder, file), 'utf8').trim()}\n`;
  });
  return parts.join(`\n${'-'.repeat(80)}\n\n`);
}

rmSync(out, { recursive: true, force: true });
const tsc = join(root, 'node_modules', 'typescript', 'bin', 'tsc');
if (!values.programs && values.declarations) {
  execFileSync(process.execPath, [tsc, '-p', join(root, 'tsconfig.build.json'), '--outDir', out], {
    stdio: 'inherit',
  });
}
const ofDoors = values.programs
  ? []
  : await bundle(doors, 'shared', [...Object.keys(manifest.dependencies), ...mayBeAbsent]);
const ofPages = values.programs
  ? []
  : await buildForBrowsers({
      input: Object.fromEntries(pageDoors.map((name) => [name, join(root, 'src', `${name}.ts`)])),
      dir: out,
      shared: 'browser/shared',
      minify: false,
      external: ['yaml', '@huggingface/transformers'],
    });
const programs = [...Object.values(manifest.bin).map(nameOf), ...new Set(threads)];
const ofPrograms = await bundle(programs, 'cli/shared', ['webgpu', ...mayBeAbsent]);
writeFileSync(join(out, 'cli', 'LICENSES'), licencesOf(ofPrograms));

const megabytes = (chunks: readonly OutputChunk[]): string =>
  (chunks.reduce((sum, { code }) => sum + Buffer.byteLength(code), 0) / 1e6).toFixed(2);
console.log(
  `${relative(process.cwd(), out)}: doors in ${ofDoors.length} files, ${megabytes(ofDoors)} MB; ` +
    `doors of pages in ${ofPages.length} files, ${megabytes(ofPages)} MB; ` +
    `${programs.length} programs in ${ofPrograms.length} files, ${megabytes(ofPrograms)} MB`,
);
