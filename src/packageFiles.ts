/**
 * Where the files of the tierkv package lie: its manifest, its data, its programs. All other files ask here, since
 * the build puts code of several folders into one file. From the sources the programs are `src/*.ts`, from the
 * build `dist/*.js`; the data is the same.
 */

import { existsSync, readFileSync } from 'node:fs';

const fromSources: boolean = import.meta.url.endsWith('.ts');

interface Manifest {
  readonly name: string;
  readonly version: string;
}

function manifestAt(file: URL): Manifest {
  return JSON.parse(readFileSync(file, 'utf8')) as Manifest;
}

/**
 * The folder of tierkv's `package.json`, looked for from here upwards. In a bundle that left the package behind
 * it is missing: the answer is this file's own folder, so that loading never fails and a read names its file.
 */
function rootFolder(): URL {
  const own = new URL('./', import.meta.url);
  for (let at = own; ; at = new URL('../', at)) {
    const manifest = new URL('package.json', at);
    if (existsSync(manifest) && manifestAt(manifest).name === 'tierkv') return at;
    if (at.href === new URL('../', at).href) return own;
  }
}

let known: URL | undefined;

function inPackage(relative: string): URL {
  known ??= rootFolder();
  return new URL(relative, known);
}

/** Version in `package.json`. */
export function packageVersion(): string {
  return manifestAt(inPackage('package.json')).version;
}

/** The folder of the data that comes with tierkv; the URL ends in a slash. */
export function dataFolder(): URL {
  return inPackage('data/');
}

/** The folder of the code that runs: `src`, `dist`, or where a test built it. The URL ends in a slash. */
export function codeFolder(): URL {
  const [folder] = import.meta.url.slice(inPackage('./').href.length).split('/', 1);
  return inPackage(`${folder}/`);
}

/** A program that a thread runs. @param name its path below `src`, without extension */
export function threadProgram(name: string): URL {
  return new URL(`${name}.${fromSources ? 'ts' : 'js'}`, codeFolder());
}
