/**
 * The three ways to write a deployment: words of a command line, fields of an object, keys of a file. Each reader leaves the
 * typed values with the place of each; what a setting may hold is told by its row, in all three.
 */

import { configError, described, nearestName, type SourcePlace, unknownName } from '../../runtime/errors.ts';

import type { SpecNode } from './fields.ts';
import { readValue, type Written } from './kinds.ts';
import { accepted, outputRows, refused } from './knobs/beside.ts';
import {
  aliases,
  deployedPaths,
  type FileMapping,
  flagOf,
  isPath,
  keysOf,
  knobs,
  negationOf,
  type Path,
  pathOfFlag,
  paths,
  type ValueAt,
} from './knobs.ts';
import { type Deployment, fault, get, nameOf } from './settings.ts';

/** A deployment that is being read. */
class DeploymentReading implements Deployment {
  readonly values: { [P in Path]?: ValueAt<P> };
  readonly places: { [P in Path]?: SourcePlace };
  readonly words: Deployment['words'];
  readonly under: string;

  constructor({ values, places, words, under = '' }: Deployment) {
    this.under = under;
    this.values = { ...values };
    this.places = { ...places };
    this.words = words;
  }

  /** Reads a value of a setting. @throws where the setting cannot hold it, or holds one from another place */
  put(path: Path, written: Written): void {
    const before = this.places[path];
    const isTwice = this.values[path] !== undefined && before?.name !== written.at.name;
    this.places[path] = written.at;
    if (isTwice) throw fault(this, path, `excludes ${before?.name}`, 'Keep one of them.');
    const value = readValue(knobs[path], written, (...said) => fault(this, path, ...said));
    // the row says the type of its value
    (this.values as Record<string, unknown>)[path] = value;
  }

  plain(): Deployment {
    const { values, places, words, under } = this;
    return { values, places, words, ...(under === '' ? {} : { under }) };
  }
}

//  Words of a command line.

/** A command line of `tierkv simulate`, read. */
export interface AskedSimulation {
  readonly deployment: Deployment;
  /** The outputs that the run writes, by option. */
  readonly outputs: Outputs;
}
export type Outputs = Readonly<Record<string, string | true>>;

/** Words of a command line by their kind. */
export interface ReadWords {
  /** Each option with its value, in their order. */
  readonly options: readonly (readonly [flag: string, value: string | boolean])[];
  /** The others. */
  readonly words: readonly string[];
}

const ofSettings = paths.flatMap((path): [string, boolean][] => {
  const { flags, negated } = knobs[path];
  const flag = flagOf(path);
  return [
    [flag, flags.includes('<')],
    ...(negated === undefined ? [] : [[negationOf(flag), false] as const]),
  ].map(([each, takes]) => [String(each), takes === true]);
});
const takesValue: ReadonlyMap<string, boolean> = new Map([
  ...ofSettings,
  ...[...outputRows, ...accepted, ...refused].map(([flags]): [string, boolean] => [
    flags.split(' ')[0],
    /[<[]/.test(flags),
  ]),
]);

/** The option behind any of its names. */
const shownFlag = (flag: string): string => aliases[flag] ?? flag;

/**
 * Reads arguments as `tierkv simulate` does.
 * @throws TKV_CONFIG with the argument that is not known, lacks its value, or is empty
 */
export function readWords(args: readonly string[]): ReadWords {
  const options: [string, string | boolean][] = [];
  const words: string[] = [];
  for (let i = 0; i < args.length; i++) {
    const word = args[i];
    if (word === '--') {
      words.push(...args.slice(i + 1));
      break;
    }
    if (!word.startsWith('-') || word === '-') {
      words.push(word);
      continue;
    }
    const [, flag, inside] = /^([^=]*)(?:=(.*))?$/s.exec(word) as RegExpExecArray;
    const takes = takesValue.get(shownFlag(flag));
    if (takes === undefined) throw unknownOption(flag);
    if (!takes) {
      if (inside !== undefined) throw configError(flag, 'takes no value', `Write ${flag} alone.`);
      options.push([flag, true]);
      continue;
    }
    const value = inside ?? args[++i];
    if (value === undefined) throw configError(flag, 'has no value', 'Give it one.');
    if (value.trim() === '') throw configError(flag, 'is empty', 'Give it a value, or leave it out.');
    options.push([flag, value]);
  }
  return { options, words };
}

function unknownOption(flag: string): Error {
  const near = nearestName(flag, [...takesValue.keys()]);
  const remedy = near === undefined ? 'Help of tierkv simulate lists all.' : `Did you mean ${near}?`;
  return configError(flag, 'is an unknown option', remedy);
}

/**
 * The settings among options of a command; later ones go before earlier ones. Options that are no settings are left.
 * @param over settings that are there already
 */
export function fromOptions(options: ReadWords['options'], over?: Deployment): Deployment {
  const reading = new DeploymentReading(over ?? { values: {}, places: {}, words: 'options' });
  for (const [flag, value] of options) {
    const path = pathOfFlag(flag);
    if (path === undefined) continue;
    const name = flag === negationOf(flagOf(path)) ? flag : shownFlag(flag);
    const isList = knobs[path].kind === 'texts' && typeof value === 'string';
    const all = isList ? [...((get(reading, path) as readonly string[] | undefined) ?? []), value] : value;
    const held = flag === negationOf(flagOf(path)) ? false : all;
    if (reading.places[path]?.name !== name) delete reading.values[path];
    reading.put(path, { at: { name }, value: held, from: 'word' });
  }
  return reading.plain();
}

/**
 * Reads the words; later options go before earlier ones.
 * @throws TKV_CONFIG where the deployment is missing or given twice, where an option has no part here, and for more
 * than one workload
 */
export function askedBy(...parts: readonly ReadWords[]): AskedSimulation {
  const options = parts.flatMap((part) => part.options);
  const words = parts.flatMap((part) => part.words);
  if (words[0]?.trim() === '') throw configError('workload', 'is empty', 'Name one, or leave it out.');
  if (words.length > 1) {
    throw configError('workload', `is named ${words.length} times`, `Keep one of ${words.join(', ')}.`);
  }
  return asked(options, words[0]);
}

/** @param workload file that is named without an option */
export function asked(options: ReadWords['options'], workload: string | undefined): AskedSimulation {
  for (const [flags, problem, remedy] of refused) {
    const [flag] = flags.split(' ');
    if (options.some(([given]) => given === flag)) {
      throw configError(flag, `is upstream's and ${problem}`, remedy);
    }
  }
  const outputs: Record<string, string | true> = {};
  const names = new Map(outputRows.map(([flags]) => [flags.split(' ')[0], outputName(flags)]));
  for (const [flag, value] of options) {
    const name = names.get(flag);
    if (name !== undefined && value !== false) outputs[name] = value;
  }
  return { deployment: checkDescribed(withWorkload(fromOptions(options), workload)), outputs };
}

/** The name of an output: its option in camel case. */
function outputName(flags: string): string {
  const [flag] = flags.split(' ');
  return flag.slice(2).replace(/-([a-z])/g, (_, letter: string) => letter.toUpperCase());
}

/** The option of an output. */
export function outputFlag(name: string): string {
  return `--${name.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`)}`;
}

/** The deployment with a workload that is named without an option. */
export function withWorkload(deployment: Deployment, workload: string | undefined): Deployment {
  if (workload === undefined) return deployment;
  for (const path of ['workload.file', 'workload.traceData'] as const) {
    if (get(deployment, path) === undefined) continue;
    throw fault(deployment, path, `excludes ${workload}`, 'Keep one of them.');
  }
  const reading = new DeploymentReading(deployment);
  reading.put('workload.file', { at: { name: workload }, value: workload, from: 'word' });
  return reading.plain();
}

/** @throws TKV_CONFIG where the deployment is missing or said twice */
function checkDescribed(deployment: Deployment): Deployment {
  const { values } = deployment;
  const name = (path: Path): string => nameOf(deployment, path);
  if (values.file === undefined) {
    if (values.set !== undefined) {
      throw fault(deployment, 'set', `has no ${name('file')}`, 'Name the file whose field it is.');
    }
    if (values.model !== undefined) return deployment;
    const isTyped = deployment.words === 'options';
    const remedy = isTyped ? `Name a model, or a file with ${name('file')}.` : 'Name a model.';
    throw fault(deployment, 'model', 'is missing', remedy);
  }
  const twice = paths.find((path) => deployedPaths.has(path) && values[path] !== undefined);
  if (twice === undefined) return deployment;
  const remedy = `Write it into the file, or change the file with ${name('set')}.`;
  throw fault(deployment, twice, `is given beside ${name('file')}`, remedy);
}

//  Fields of an object.

/** Names directly below a path. */
function namesBelow(path: string): string[] {
  const start = path === '' ? '' : `${path}.`;
  const below = paths.filter((each) => each.startsWith(start));
  return [...new Set(below.map((each) => each.slice(start.length).split('.')[0]))];
}

function readFields(reading: DeploymentReading, object: object, path: string, under: string): void {
  for (const [key, value] of Object.entries(object)) {
    if (value === undefined) continue;
    const at = path === '' ? key : `${path}.${key}`;
    const name = `${under}${at}`;
    if (isPath(at)) {
      reading.put(at, { at: { name }, value, from: 'field' });
      continue;
    }
    const below = namesBelow(at);
    if (below.length === 0) throw unknownName(name, key, namesBelow(path));
    const lone = below.map((each) => `${at}.${each}`).find((each) => isPath(each) && knobs[each].isLone);
    if (typeof value === 'object' && value !== null && !Array.isArray(value)) {
      readFields(reading, value, at, under);
    } else if (lone !== undefined) reading.put(lone as Path, { at: { name }, value, from: 'field' });
    else throw configError(name, `must be an object, and is ${described(value)}`, 'Give its fields.');
  }
}

/** Counts by role are counts of all instances too, unless these are said. */
function countInstances(reading: DeploymentReading): void {
  const { values, places } = reading;
  const roles = ['pools.prefill', 'pools.decode', 'pools.instances'] as const;
  if (values['pools.total'] !== undefined || !roles.some((path) => values[path] !== undefined)) return;
  const [prefill, decode, both] = roles.map((path) => values[path] ?? 0);
  const hasRoles = prefill + decode > 0;
  const at = places['pools.instances'] ?? places['pools.prefill'] ?? places['pools.decode'];
  const total = hasRoles ? prefill + decode + both : values['pools.instances'] === undefined ? 1 : both;
  reading.put('pools.total', { at: at as SourcePlace, value: total, from: 'field' });
  if (!hasRoles) delete values['pools.instances'];
}

/**
 * @param under what stands before the name of each field, where the object is a part of another one: `deployment.`
 * @throws TKV_CONFIG with the field that is not known or cannot hold its value
 */
export function fromFields(object: object, under: string = ''): Deployment {
  const reading = new DeploymentReading({ values: {}, places: {}, words: 'fields', under });
  readFields(reading, object, '', under);
  countInstances(reading);
  return checkDescribed(reading.plain());
}

//  Keys of a file.

/** The settings in a mapping of a deployment file, over what is there. */
export function fromMapping(node: SpecNode | undefined, mapping: FileMapping, over: Deployment): Deployment {
  const reading = new DeploymentReading(over);
  if (node === undefined) return over;
  const all = keysOf(mapping);
  // a setting that is not said has its place too: where it would stand
  for (const [key, path] of all.toReversed()) reading.places[path] = node.place(key);
  const given = new Set<Path>();
  for (const [key, path] of all) {
    if (!node.says(key)) continue;
    if (!given.has(path)) delete reading.values[path];
    given.add(path);
    reading.put(path, { at: node.place(key), value: node.scalar(key), from: 'file' });
  }
  return reading.plain();
}

/** A setting under a key of another name. @param value default: what stands there */
export function fromKey(
  node: SpecNode,
  key: string,
  path: Path,
  over: Deployment,
  value: unknown = node.scalar(key),
): Deployment {
  const reading = new DeploymentReading(over);
  reading.put(path, { at: node.place(key), value, from: 'file' });
  return reading.plain();
}
