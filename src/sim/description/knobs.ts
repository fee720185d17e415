/**
 * The settings of a deployment. Each exists in one row: its path in a description, its option, what it may hold, its default
 * and upstream's, what it is for, and what it needs to have an effect. The options of a command, its help, the keys of a
 * deployment file, the type of a description and its defaults are made of these rows.
 */

import { tierTitle } from '../../runtime/tier/tier.ts';
import type { LatencyBackend } from '../latency/latencyNames.ts';
import { deviceClasses, type SizedTierName, sizedTierRows } from '../links/machineTiers.ts';
import type { WorkloadRequest } from '../workload/request.ts';
import type { SettingKind, ValueOf, WrittenOf } from './kinds.ts';
import { clusterKnobs, gatewayKnobs, handoffKnobs } from './knobs/control.ts';
import { memoryKnobs, modelKnobs } from './knobs/engine.ts';
import { fileKnobs, targetKnobs, workloadKnobs } from './knobs/workload.ts';

export interface Knob extends SettingKind {
  /** The option, with `<what>` where it takes a value. */
  readonly flags: string;
  readonly about: string;
  /** The default. */
  readonly or?: string | number | boolean;
  /** Upstream's default, where that is another one. */
  readonly upstream?: string | number | boolean;
  /** Help of `--no-FLAG`, where there is such an option. */
  readonly negated?: string;
  /** Another name of the option, which help leaves out. */
  readonly alias?: string;
  /** The mapping of a deployment file in which it stands, under its option's name with underscores. */
  readonly in?: FileMapping;
  /** The key there, where it is another one. */
  readonly key?: string;
  /** Whether it shapes a preset, and so changes nothing of another workload. */
  readonly shapesPreset?: true;
  /** Whether the value of the whole section is this field's: `prompt: 7` is `prompt: { mean: 7 }`. */
  readonly isLone?: true;
  /** Whether a value that ends with `.json` is the path of a file. */
  readonly isFile?: true;
  /** Changes each request of a recorded trace; a setting that has this needs no other file. */
  readonly shapes?: (request: WorkloadRequest, value: never) => WorkloadRequest;
  /** Names of what a run must have for it to have an effect (`needs.ts`). */
  readonly needs?: readonly string[];
}

/** A mapping of a deployment file whose keys are settings. */
export type FileMapping =
  | 'model'
  | 'engine'
  | 'workload'
  | 'control'
  | 'control.signals'
  | 'control.gateway'
  | 'handoff';

interface SizedTierKnob<Kind extends string> {
  readonly flags: string;
  readonly about: string;
  readonly kind: Kind;
  readonly in: 'engine';
}
type SizedTierKnobs = { readonly [Name in SizedTierName as `tiers.${Name}`]: SizedTierKnob<'size'> };
type TierSpeedKnobs = {
  readonly [Name in SizedTierName as `tiers.${Name}Gbps`]: SizedTierKnob<'number'> & {
    readonly needs: readonly [`${Name}Tier`];
  };
} & {
  readonly [Name in SizedTierName as `tiers.${Name}Class`]: SizedTierKnob<'name'> & {
    readonly names: readonly string[];
    readonly needs: readonly [`${Name}Tier`];
  };
};

/** The rows with their own types. */
type Table = typeof modelKnobs &
  typeof memoryKnobs &
  SizedTierKnobs &
  TierSpeedKnobs &
  typeof clusterKnobs &
  typeof gatewayKnobs &
  typeof handoffKnobs &
  typeof workloadKnobs &
  typeof fileKnobs &
  typeof targetKnobs;

export type Path = keyof Table;

/** Settings whose texts are names that TypeScript knows. */
interface NamesInTypes {
  readonly 'latency.model': LatencyBackend;
}

/** The value of a setting as readers leave it. */
export type ValueAt<P extends Path> = P extends keyof NamesInTypes ? NamesInTypes[P] : ValueOf<Table[P]>;
/** The same with its default: undefined only where it has none. */
export type SettledAt<P extends Path> = Table[P] extends { readonly or: unknown }
  ? ValueAt<P>
  : ValueAt<P> | undefined;
type WrittenAt<P extends Path> = P extends keyof NamesInTypes ? NamesInTypes[P] : WrittenOf<Table[P]>;

/** Names of what settings need. */
export type NeedName = Table[Path] extends infer Row
  ? Row extends { readonly needs: readonly (infer Name)[] }
    ? Name
    : never
  : never;

const sizedTierKnobs = Object.fromEntries(
  sizedTierRows.map(({ tier, about }): [string, Knob] => [
    `tiers.${tier}`,
    { flags: `--${tier} <size>`, about, kind: 'size', in: 'engine' },
  ]),
) as SizedTierKnobs;

/** How fast the device of a tier is, in place of the usual one. */
const tierSpeedKnobs = Object.fromEntries(
  sizedTierRows.flatMap(({ tier }): [string, object][] => [
    [
      `tiers.${tier}Class`,
      {
        flags: `--${tier}-class <name>`,
        about: `device of ${tierTitle(tier)}: bandwidths and latency`,
        kind: 'name',
        names: Object.keys(deviceClasses),
        in: 'engine',
        needs: [`${tier}Tier`],
      },
    ],
    [
      `tiers.${tier}Gbps`,
      {
        flags: `--${tier}-gbps <n>`,
        about: `bandwidth of ${tierTitle(tier)} in GB/s, for reads and for writes`,
        kind: 'number',
        min: 1e-6,
        max: 1e6,
        in: 'engine',
        needs: [`${tier}Tier`],
      },
    ],
  ]),
) as TierSpeedKnobs;

/** Settings that a deployment file replaces. */
const deployed: Readonly<Record<string, Knob>> = {
  ...modelKnobs,
  ...memoryKnobs,
  ...sizedTierKnobs,
  ...tierSpeedKnobs,
  ...clusterKnobs,
  ...gatewayKnobs,
  ...handoffKnobs,
};

/** Every setting by its path. */
export const knobs: Readonly<Record<Path, Knob>> = {
  ...(deployed as Readonly<Record<keyof typeof deployed & Path, Knob>>),
  ...workloadKnobs,
  ...fileKnobs,
  ...targetKnobs,
};

export const paths = Object.keys(knobs) as readonly Path[];
/** Settings that a deployment file replaces. */
export const deployedPaths: ReadonlySet<Path> = new Set(Object.keys(deployed) as Path[]);
export const isPath = (name: string): name is Path => Object.hasOwn(knobs, name);

/** The option of a setting: `--max-num-seqs`. */
export function flagOf(path: Path): string {
  return knobs[path].flags.split(' ')[0];
}

const byFlag: ReadonlyMap<string, Path> = new Map(
  paths.flatMap((path) => {
    const { alias, negated } = knobs[path];
    const flag = flagOf(path);
    const all = [flag, ...(alias === undefined ? [] : [alias])];
    return [...all, ...(negated === undefined ? [] : [negationOf(flag)])].map((each) => [each, path]);
  }),
);

/** `--no-floor` of `--floor`. */
export function negationOf(flag: string): string {
  return flag.replace('--', '--no-');
}

/** The setting behind an option, under any of its names. */
export function pathOfFlag(flag: string): Path | undefined {
  return byFlag.get(flag);
}

/** Other names of options by the name that help shows. */
export const aliases: Readonly<Record<string, string>> = Object.fromEntries(
  paths.flatMap((path) => {
    const { alias } = knobs[path];
    return alias === undefined ? [] : [[alias, flagOf(path)]];
  }),
);

const keyOf = (flag: string): string => flag.replace('--', '').replaceAll('-', '_');

/** Keys of a mapping of a deployment file, each with its setting. */
export function keysOf(mapping: FileMapping): readonly (readonly [key: string, path: Path])[] {
  return paths
    .filter((path) => knobs[path].in === mapping)
    .flatMap((path) => {
      const { alias, key } = knobs[path];
      const flags = [flagOf(path), ...(alias === undefined ? [] : [alias])];
      return (key === undefined ? flags.map(keyOf) : [key]).map((each) => [each, path] as const);
    });
}

/** The default of a setting, or upstream's. */
export function defaultOf<P extends Path>(path: P, asUpstream: boolean): SettledAt<P> {
  const { or, upstream = or } = knobs[path];
  return (asUpstream ? upstream : or) as SettledAt<P>;
}

//  The options of the help text.

interface KnobGroup {
  readonly title: string;
  readonly paths: readonly Path[];
}

/** Settings that most runs need; help shows them first. */
const firstPaths: readonly Path[] = [
  ...(['model', 'hardware', 'tp', 'pools.total', 'workload.preset', 'workload.rate'] as const),
  'workload.requests',
  ...(Object.keys(sizedTierKnobs) as Path[]),
  'file',
];

const rest = (table: object): readonly Path[] =>
  (Object.keys(table) as Path[]).filter((path) => !firstPaths.includes(path));

export const knobGroups: readonly KnobGroup[] = [
  { title: 'Common options', paths: firstPaths },
  { title: 'Model and latency', paths: rest(modelKnobs) },
  { title: 'KV memory and batching', paths: rest({ ...memoryKnobs, ...tierSpeedKnobs }) },
  { title: 'Cluster and routing', paths: rest(clusterKnobs) },
  { title: 'Flow control', paths: rest(gatewayKnobs) },
  { title: 'Disaggregated prefill and decode', paths: rest(handoffKnobs) },
  { title: 'Workload', paths: rest(workloadKnobs) },
  { title: 'Deployment file', paths: rest(fileKnobs) },
  { title: 'Output and goodput', paths: rest(targetKnobs) },
];

//  The type of a description: the paths as nested fields.

type Sections<P extends string> = P extends `${infer Head}.${string}` ? Head : never;
type Below<P extends string, Head extends string> = P extends `${Head}.${infer Tail}` ? Tail : never;
type LoneOf<Prefix extends string> = {
  [P in Path]: P extends `${Prefix}.${infer Name}`
    ? Name extends `${string}.${string}`
      ? never
      : Table[P] extends { readonly isLone: true }
        ? WrittenAt<P>
        : never
    : never;
}[Path];

type FieldsOf<P extends string, Prefix extends string> = {
  readonly [Name in Exclude<P, `${string}.${string}`>]?: `${Prefix}${Name}` extends infer At extends Path
    ? WrittenAt<At>
    : never;
} & {
  readonly [Head in Sections<P>]?: FieldsOf<Below<P, Head>, `${Prefix}${Head}.`> | LoneOf<`${Prefix}${Head}`>;
};

/**
 * A deployment with its workload as an object: each setting at its path, `engine: { maxSequences: 64 }`. What is left out has
 * its default. A policy has a name and parameters, a length a mean or a distribution, a size blocks or bytes as `64GiB`.
 */
export interface DeploymentSpec extends FieldsOf<Path, ''> {}
