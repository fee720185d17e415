/** What the tidy test is told: doors, names of variants, mechanisms, and where a rule does not hold. */

import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { flagOf, knobs, paths } from '../../src/sim/description/knobs.ts';
import { doors } from '../package/doors.ts';
import type { TidyRules } from './tidyScan.ts';

/** What users import from. */
const packageDoors = doors().flatMap(({ file, page }) => (page === undefined ? [file] : [file, page]));

/** Where all tiers may be named. */
const everyTier = [
  // the registration: names in order, and rows
  'src/runtime/tier/tier.ts',
  'src/backends/tierRows.ts',
  // views that have the names of the original design notes, which are a contract: KVStore's and TieredKVStorage's settings
  'src/views',
  // measures each link of this package beside plain calls that are written for its two ends
  'src/studies/measure/contestants.ts',
  'src/studies/measure/links.ts',
  // what people and other systems call each tier
  'src/observe/report/model.ts',
  'src/serve/gateway/events/publisher.ts',
];
/** Rows of tiers for pages, and the ready configuration of a page. */
const pageRows = ['filesInWorker', 'index', 'opfsFolder', 'remoteTier', 'transformers'].map(
  (name) => `src/adapters/browser/${name}.ts`,
);

/** Policies and models of time as a bundle, a plan or a choice of ours writes them: data, as a user's. */
const written = [
  'src/policy/evolve/bundle/presets.ts',
  'src/policy/evaluate/plans.ts',
  'src/studies/plan/choice.ts',
];

/** Words that mean another thing in these files, or a field of a format of others. */
const foreignNames: Readonly<Record<string, readonly string[]>> = {
  // lengths of one request, of which the settings are means
  promptTokens: ['src'],
  outputTokens: ['src'],
  // a model of time and a signal of routers, as things
  latencyModel: ['src'],
  shadowKv: ['src'],
  // a key of upstream's specifications and of its traces
  numRequests: ['src/sim'],
  workloadSpec: ['src/sim/workload/traceV2.ts'],
  // of a candidate of a plan, beside all instances
  prefillInstances: ['src/studies/plan'],
};

export const rules: TidyRules = {
  // biome-ignore format: one line
  layers: ['runtime', 'backends', 'compute', 'embed', 'views', 'io', 'adapters', 'sim', 'studies', 'policy', 'observe', 'serve', 'cli', 'testing'],
  mostRooms: 14,
  mostLines: 600,
  leastLines: 60,
  variantFolders: ['src/runtime/eviction', 'src/sim/control/routing', 'src/sim/control/catalogue'],
  doors: [
    ...packageDoors,
    // what a build for browsers puts in the place of a module
    ...['adapter', 'blockPort', 'inputs', 'noteCipher', 'opfsFolder'].map(
      (name) => `src/adapters/browser/${name}.ts`,
    ),
    ...['packageFiles', 'paths', 'posix', 'remoteTier', 'weights'].map(
      (name) => `src/adapters/browser/${name}.ts`,
    ),
    'src/embed/noteCipher.ts',
    'src/embed/kvRuntime.ts',
    'src/nodeVersion.ts',
    'src/requireNode.ts',
  ],
  variants: {
    hbm: [...everyTier, 'src/backends/webgpu', ...pageRows],
    HBM: [...everyTier, 'src/backends/webgpu', 'src/testing/faults.ts'],
    ddr: [...everyTier, 'src/backends/host', 'src/sim/links/machineTiers.ts'],
    DDR: [...everyTier, 'src/backends/host'],
    nvme: [...everyTier, 'src/backends/file', 'src/sim/links/machineTiers.ts', ...pageRows],
    NVME: [...everyTier, 'src/backends/file', 'src/testing/faults.ts'],
    remote: [...everyTier, 'src/backends/remote', 'src/sim/links/machineTiers.ts', ...pageRows],
    REMOTE: [...everyTier, 'src/backends/remote'],
    // fairness of the gateway's queue has a rule of the same name
    'round-robin': ['src/sim/control/routing', 'src/sim/control/flowControl.ts'],
    'always-admit': ['src/sim/control/admission.ts', ...written],
    // a way to put objectives together has the same name
    weighted: ['src/sim/control/routing', 'src/policy/evolve/fitness/objectives.ts', ...written],
    calibrated: ['src/sim/latency', 'src/sim/fitting', ...written],
    'trained-physics': ['src/sim/latency', 'src/sim/fitting', 'src/sim/description/knobs/engine.ts'],
  },
  // of texts alone: as a word of code it is anything that is elsewhere
  everydayWords: ['remote', 'weighted', 'calibrated'],
  spellFlags: ['src/cli', 'src/sim/description/knobs.ts', 'src/sim/description/knobs'],
  otherNames: thirdNames(),
  // two ways (ADR 0032); a third one is a decision, and a test holds their number
  checks: {
    'a table of kinds': [
      'src/runtime/kinds.ts',
      'src/runtime/options.ts',
      'src/runtime/errors.ts',
      // the same by three writers: a word, a key of a file, a field
      'src/sim/description/kinds.ts',
    ],
    'a reader of files that knows the line': [
      'src/sim/description/fields.ts',
      'src/sim/workload/traceLines.ts',
    ],
  },
  mechanisms: [
    // a value is checked by a table of kinds (ADR 0032), or by the reader of YAML
    {
      text: /\b(optionNames|require(Options|Shapes|Object|Array|Function|Flag|Text))\s*[(<]/,
      file: 'no file: use optionTable, checkInputs or a kind',
    },
    { text: /new Worker\(/, file: 'src/io/workerPool.ts' },
  ],
};

/** `--max-num-seqs` in camel case, where the path of the setting ends otherwise. */
function thirdNames(): TidyRules['otherNames'] {
  const ends = new Set(paths.map((path) => path.slice(path.lastIndexOf('.') + 1)));
  return Object.fromEntries(
    paths.flatMap((path) => {
      const { alias } = knobs[path];
      return [flagOf(path), ...(alias === undefined ? [] : [alias])].flatMap((flag) => {
        const camel = flag.slice(2).replace(/-([a-z])/g, (_, letter: string) => letter.toUpperCase());
        // a word of one part is a word of code: rate, model
        if (ends.has(camel) || !/[A-Z]/.test(camel)) return [];
        return [[camel, { path, files: foreignNames[camel] ?? [] }]];
      });
    }),
  );
}

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
