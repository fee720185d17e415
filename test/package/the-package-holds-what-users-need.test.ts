import { execFileSync } from 'node:child_process';
import { existsSync, globSync, readFileSync } from 'node:fs';
import { isBuiltin } from 'node:module';
import { basename, dirname, join } from 'node:path';
import { describe, expect, it } from 'vitest';

const root = join(import.meta.dirname, '..', '..');
const text = (path: string): string => readFileSync(join(root, path), 'utf8');

interface Manifest {
  exports: Record<string, string | { types: string; default: string }>;
  bin: Record<string, string>;
  dependencies: Record<string, string>;
  devDependencies: Record<string, string>;
  peerDependencies: Record<string, string>;
  peerDependenciesMeta: Record<string, { optional?: boolean }>;
}
const manifest = JSON.parse(text('package.json')) as Manifest;

/** Names of packages that a source file imports, and whether it can do without them until it needs them. */
function importsOf(path: string): { name: string; lazy: boolean }[] {
  const found = text(path).matchAll(/^\s*(?:import|export)\b[^;]*?from '([^']+)'|\bimport\('([^']+)'\)/gm);
  return (
    [...found]
      .filter(([whole]) => !/^\s*(import|export) type\b/.test(whole))
      .map(([, eager, lazy]) => ({ specifier: eager ?? lazy, lazy: lazy !== undefined }))
      // `tierkv:` is made by the build for browsers
      .filter(({ specifier }) => !/^(\.|tierkv:)/.test(specifier) && !isBuiltin(specifier))
      .map(({ specifier, lazy }) => ({
        name: /^(@[^/]+\/)?[^/]+/.exec(specifier)![0],
        lazy,
      }))
  );
}

describe('the exports map', () => {
  it('has its doors, each with types and code made from one file', () => {
    const { './package.json': packageJson, ...doors } = manifest.exports;
    expect(packageJson).toBe('./package.json');
    const files = {
      '.': 'index',
      './views': 'views/index',
      './compute': 'compute/index',
      './sim': 'policy/index',
      './serve': 'serve/index',
      './observe': 'observe/index',
      './transformers': 'adapters/transformers/index',
      './node-llama-cpp': 'adapters/llama/index',
      './browser': 'adapters/browser/index',
      './testing': 'testing/index',
    };
    const inPages: Readonly<Record<string, string>> = {
      './compute': 'adapters/browser/compute',
      './sim': 'sim/page',
      './observe': 'observe/page',
      './transformers': 'adapters/browser/transformers',
    };
    const target = (file: string): object => ({ types: `./dist/${file}.d.ts`, default: `./dist/${file}.js` });
    expect(Object.keys(doors)).toEqual(Object.keys(files));
    for (const [door, file] of Object.entries(files)) {
      const page = inPages[door];
      expect(doors[door]).toEqual({
        ...(page === undefined ? {} : { browser: target(page) }),
        ...target(file),
      });
      // a bundler takes the first condition that holds
      if (page !== undefined) expect(Object.keys(doors[door])[0]).toBe('browser');
      for (const each of page === undefined ? [file] : [file, page]) {
        expect(existsSync(join(root, 'src', `${each}.ts`)), each).toBe(true);
        // the build writes declarations of these files, and of what they import
        const { include } = JSON.parse(text('tsconfig.build.json')) as { include: string[] };
        const isDeclared = /(^|\/)index$/.test(each) || include.includes(`src/${each}.ts`);
        expect(isDeclared, `${each} in tsconfig.build.json`).toBe(true);
      }
    }
  });

  it('gives nothing that only the inside needs, and what the front page names', async () => {
    const doors = [
      await import('../../src/index.ts'),
      await import('../../src/views/index.ts'),
      await import('../../src/testing/index.ts'),
    ];
    const inside = ['fillPattern', 'patternWord', 'SlotPool', 'LinkQueue', 'StagingSlots', 'slotOffsetBytes'];
    const names = doors.flatMap((door) => Object.keys(door));
    expect(names.filter((name) => inside.includes(name))).toEqual([]);
    expect(Object.keys(doors[0])).toEqual(expect.arrayContaining(['KVRuntime', 'kvLayout', 'TierKVError']));
    expect(names).toEqual(expect.arrayContaining(['KVManager', 'newKVStore', 'registerTier', 'FaultStore']));
  });

  it('the binary is made from an executable source', () => {
    expect(manifest.bin).toEqual({ tierkv: 'dist/cli/main.js' });
    expect(text('src/cli/main.ts')).toMatch(/^#!\/usr\/bin\/env node\n/);
  });
});

describe('dependencies', () => {
  const { dependencies: extras } = JSON.parse(text('tools/extras/package.json')) as Manifest;
  const sources = globSync('src/**/*.ts', { cwd: root });

  it('every package that the sources import is declared, and one that may be absent is imported when it is needed', () => {
    const always = new Set(Object.keys(manifest.dependencies));
    const maybe = new Set(Object.keys(manifest.peerDependencies));
    // the build puts them into the package (tools/build.ts)
    const bundled = new Set(Object.keys(manifest.devDependencies).filter((name) => !maybe.has(name)));
    const wrong = sources.flatMap((path) =>
      importsOf(path)
        .filter(({ name, lazy }) => {
          const testDoor = name === 'vitest' && path.startsWith(join('src', 'testing'));
          return !always.has(name) && !bundled.has(name) && !(maybe.has(name) && (lazy || testDoor));
        })
        .map(({ name }) => `${path} imports ${name}`),
    );
    expect(sources.length).toBeGreaterThan(20);
    expect(wrong).toEqual([]);
  });

  it('every dependency that users install is used by the sources', () => {
    const used = sources.map(text).join('\n');
    const unused = Object.keys(manifest.dependencies).filter(
      (name) => name !== '@webgpu/types' && !used.includes(`'${name}`),
    );
    expect(unused).toEqual([]);
  });

  it('peers are optional, so that installing tierkv installs none of them', () => {
    for (const name of Object.keys(manifest.peerDependencies)) {
      expect(manifest.peerDependenciesMeta[name], name).toEqual({ optional: true });
      expect(manifest.devDependencies[name] ?? extras[name], `${name} for our own tests`).toBeDefined();
    }
  });

  it('each one has its reason in docs/reference/dependencies.md', () => {
    const reasons = text('docs/reference/dependencies.md');
    const { dependencies, devDependencies, peerDependencies } = manifest;
    const names = Object.keys({
      ...dependencies,
      ...devDependencies,
      ...peerDependencies,
      ...extras,
    });
    expect(names.filter((name) => !reasons.includes(`| \`${name}\``))).toEqual([]);
  });
});

/**
 * Files of the checkout alone that a page names where neither its head nor the section itself says that they
 * are in the repository.
 */
function unexplainedFiles(page: string): string[] {
  const [head, ...sections] = page.split(/^## /m);
  const says = (part: string): boolean => /\brepository\b/.test(part);
  if (says(head)) return [];
  return [head, ...sections]
    .filter((part) => !says(part))
    .flatMap((part) => part.match(/(?<![\w/.-])(src|test|bench|examples|tools)\/[\w.*/-]*/g) ?? []);
}

describe('the tarball', () => {
  interface PackedFile {
    path: string;
    size: number;
  }
  const listing = JSON.parse(
    execFileSync('npm', ['pack', '--dry-run', '--json', '--ignore-scripts'], {
      cwd: root,
      encoding: 'utf8',
      stdio: ['ignore', 'pipe', 'ignore'],
    }),
  ) as Record<string, { files: PackedFile[] }>; // a list in npm 11, by name in npm 12
  const files = Object.values(listing)[0].files;
  const paths = files.map((file) => file.path);

  it('carries the licence, the README, and the excerpt with its own licence', () => {
    expect(paths).toEqual(
      expect.arrayContaining([
        'LICENSE',
        'README.md',
        'data/LICENSE-mooncake',
        'data/README.md',
        'data/mooncake-conversation-excerpt.jsonl.gz',
      ]),
    );
  });

  it('carries the licences of what others wrote and the sources hold', () => {
    const licences = globSync('src/**/licences/*', { cwd: root });
    expect(licences.filter((path) => !paths.includes(path))).toEqual([]);
  });

  it('carries nothing of the workshop: no Node, no tests, no sources, no benches', () => {
    const isLicence = (path: string): boolean => /^src\/.*\/licences\//.test(path);
    const tops = new Set(paths.filter((path) => !isLicence(path)).map((path) => path.split('/')[0]));
    const allowed = ['LICENSE', 'README.md', 'data', 'dist', 'docs', 'package.json', 'shaders'];
    expect([...tops].filter((top) => !allowed.includes(top))).toEqual([]);
    expect(paths.filter((path) => /\.test\.|(?<!\.d)\.ts$/.test(path))).toEqual([]);
  });

  it('carries no data that a README beside it or above it does not explain', () => {
    const data = paths.filter((path) => path.startsWith('data/') && !path.endsWith('/README.md'));
    const readmes = paths.filter((path) => path.startsWith('data/') && path.endsWith('/README.md'));
    const names = (readme: string): RegExp[] =>
      [...text(readme).matchAll(/`([^`\s]+)`/g)].map(([, name]) => {
        const pattern = name.replace(/[.+?^${}()|[\]\\]/g, '\\$&').replaceAll('*', '[^/]*');
        return new RegExp(`^${pattern}$`);
      });
    const explained = (path: string): boolean =>
      readmes.some((readme) => {
        const within = path.slice(dirname(readme).length + 1);
        return (
          path.startsWith(dirname(readme)) &&
          names(readme).some((name) => name.test(within) || name.test(basename(path)))
        );
      });
    expect(data.filter((path) => !explained(path))).toEqual([]);
  });

  it('names no file that it does not carry without saying where that is', () => {
    const pages = paths.filter((path) => path.endsWith('.md'));
    expect(pages.length).toBeGreaterThan(8);
    expect(pages.flatMap((page) => unexplainedFiles(text(page)).map((name) => `${page}: ${name}`))).toEqual(
      [],
    );
    // in both directions
    expect(unexplainedFiles('# A\n\n`src/x.ts`\n')).toEqual(['src/x.ts']);
    expect(unexplainedFiles('# A\n\n## B\nIn the repository.\n\n## C\n`bench/x.ts`\n')).toEqual([
      'bench/x.ts',
    ]);
    expect(unexplainedFiles('# A\n\n## B\n`test/x.ts` in the repository\n')).toEqual([]);
    expect(unexplainedFiles('# A\nAll in the repository.\n\n## B\n`test/x.ts`\n')).toEqual([]);
  });

  it('stays small', () => {
    expect(files.filter((file) => file.size > 1_000_000)).toEqual([]);
    // what is built is there in some checkouts; `npm run check:package` weighs it
    const beside = files.filter(({ path }) => !path.startsWith('dist/'));
    expect(beside.reduce((sum, file) => sum + file.size, 0)).toBeLessThan(3_000_000);
  });
});
