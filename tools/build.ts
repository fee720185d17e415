/**
 * Makes `dist`: declarations by tsc, JavaScript by rolldown, in two bundles.
 *
 * - For Node: one file for each door of package.json, and one for each program: the command, and what its threads run. What they
 *   share lies in `dist/shared`, once, so that a class that comes through two doors is one class; every command is a part that
 *   is loaded when it is called. Packages are inside, since a program loads one file faster than a hundred and a user installs
 *   less; their licences stand in `dist/LICENSES`. Only packages with native code, and what may be absent, are imported.
 * - Doors of pages (browserBuild.ts): the same for browsers, below `dist/adapters/browser`.
 *
 * The code has no comments, is not minified and has no source maps: it keeps names and lines, so the stack of an
 * error leads to its place. Declarations that no door leads to are left out. `--out FOLDER` builds elsewhere, `--programs`
 * the programs alone, `--no-declarations` all but the declarations.
 */

import { execFileSync } from 'node:child_process';
import { globSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join, relative, resolve } from 'node:path';
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
  readonly exports: Readonly<
    Record<string, string | { readonly default: string; readonly browser?: { readonly default: string } }>
  >;
  readonly bin: Readonly<Record<string, string>>;
  readonly peerDependencies: Readonly<Record<string, string>>;
}
const manifest = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8')) as Manifest;
const mayBeAbsent = Object.keys(manifest.peerDependencies);

/** `sim/index` of `./dist/sim/index.js`: the name below `src`, without extension. */
const nameOf = (file: string): string => /^(?:\.\/)?dist\/(.+)\.js$/.exec(file)![1];

const targets = Object.values(manifest.exports).flatMap((door) => (typeof door === 'string' ? [] : [door]));
const inPages = (name: string): boolean => name.startsWith('adapters/browser/');
const doors = targets.map((door) => nameOf(door.default)).filter((name) => !inPages(name));
/** Doors of pages, and what pages get of others, are built together, and share no file with those of Node. */
const pageDoors = targets.flatMap((door) =>
  [nameOf(door.default)]
    .filter(inPages)
    .concat(door.browser === undefined ? [] : nameOf(door.browser.default)),
);

/** What `src/packageFiles.ts` is asked for: programs of threads. */
const threads = globSync('src/**/*.ts', { cwd: root }).flatMap((file) =>
  [...readFileSync(join(root, file), 'utf8').matchAll(/\bthreadProgram\('([^']+)'\)/g)].map(
    ([, name]) => name,
  ),
);

async function bundle(names: readonly string[]): Promise<OutputChunk[]> {
  const build = await rolldown({
    cwd: root,
    input: Object.fromEntries(names.map((name) => [name, join(root, 'src', `${name}.ts`)])),
    platform: 'node',
    external: (id) => mayBeAbsent.some((name) => id === name || id.startsWith(`${name}/`)),
    plugins: [shadersInside(true)],
    transform: { target: 'es2024' },
  });
  const { output } = await build.write({
    dir: out,
    format: 'esm',
    comments: { annotation: true, jsdoc: false, legal: true },
    entryFileNames: '[name].js',
    chunkFileNames: 'shared/[name]-[hash].js',
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

/** Removes all declarations but those of `doors` and what they import. */
function keepReachable(doors: readonly string[]): void {
  const kept = new Set(doors);
  for (const file of kept) {
    for (const [, from] of readFileSync(file, 'utf8').matchAll(/(?:from|import\() ?['"](\.[^'"]+)['"]/g)) {
      kept.add(resolve(dirname(file), from.replace(/(?<!\.d)\.[jt]s$/, '.d.ts')));
    }
  }
  for (const file of globSync('**/*.d.ts', { cwd: out })) {
    if (!kept.has(join(out, file))) rmSync(join(out, file));
  }
}

rmSync(out, { recursive: true, force: true });
const tsc = join(root, 'node_modules', 'typescript', 'bin', 'tsc');
if (!values.programs && values.declarations) {
  execFileSync(process.execPath, [tsc, '-p', join(root, 'tsconfig.build.json'), '--outDir', out], {
    stdio: 'inherit',
  });
  keepReachable([...doors, ...pageDoors].map((name) => join(out, `${name}.d.ts`)));
}
const programs = [...Object.values(manifest.bin).map(nameOf), ...new Set(threads)];
const ofNode = await bundle(values.programs ? programs : [...doors, ...programs]);
writeFileSync(join(out, 'LICENSES'), licencesOf(ofNode));
const ofPages = values.programs
  ? []
  : await buildForBrowsers({
      input: Object.fromEntries(pageDoors.map((name) => [name, join(root, 'src', `${name}.ts`)])),
      dir: out,
      shared: 'adapters/browser/shared',
      minify: false,
      external: ['yaml', '@huggingface/transformers'],
    });

const megabytes = (chunks: readonly OutputChunk[]): string =>
  (chunks.reduce((sum, { code }) => sum + Buffer.byteLength(code), 0) / 1e6).toFixed(2);
console.log(
  `${relative(process.cwd(), out)}: ${values.programs ? 0 : doors.length} doors and ${programs.length} programs in ${ofNode.length} files, ` +
    `${megabytes(ofNode)} MB; doors of pages in ${ofPages.length} files, ${megabytes(ofPages)} MB`,
);
