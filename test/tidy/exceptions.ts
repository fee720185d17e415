/** What the tidy test is told: doors, names of variants, mechanisms, and where a rule does not hold. */

import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { TidyRules } from './tidyScan.ts';

const rooms = [
  ...[
    'runtime',
    'backends',
    'compute',
    'embed',
    'views',
    'sim',
    'simulate',
    'evolve',
    'gateway',
    'metrics',
    'dashboard',
    'explain',
    'report',
  ],
  'testing',
];

export const rules: TidyRules = {
  mostLines: 600,
  leastLines: 60,
  doors: [
    'src/index.ts',
    'src/adapters/transformers/index.ts',
    // doors of pages, and what a build for browsers puts in the place of a module
    ...['index', 'simulate', 'compute', 'adapter', 'blockPort', 'inputs', 'noteCipher', 'opfsFolder'].map(
      (name) => `src/browser/${name}.ts`,
    ),
    ...['packageFiles', 'paths', 'posix', 'remoteTier'].map((name) => `src/browser/${name}.ts`),
    'src/embed/noteCipher.ts',
    'src/testing/contract.ts',
    'src/embed/kvRuntime.ts',
    'src/nodeVersion.ts',
    'src/requireNode.ts',
    'src/backends/webgpu/shaderTexts.ts', // made from shaders/
    ...rooms.map((room) => `src/${room}/index.ts`),
  ],
  variants: {},
  mechanisms: [{ text: /new Worker\(/, file: 'src/workers/workerPool.ts' }],
};

interface Debts {
  /** By rule and place: the reason, or what is left to do. An entry that nothing needs fails the test. */
  readonly places: Readonly<Record<string, string>>;
  /** By file: banned phrases that are left. The numbers only fall. */
  readonly phrases: Readonly<Record<string, number>>;
}

/** Where the rules did not hold when the sources were moved into one file an idea. The list only shrinks. */
export const debts: Debts = JSON.parse(
  readFileSync(join(import.meta.dirname, 'debts.json'), 'utf8'),
) as Debts;
