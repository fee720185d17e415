/**
 * Writes the page of the settings of a deployment, `docs/reference/settings.md`, and their shapes in the schema of results, from
 * the table that the program itself reads: `node tools/settings.ts`. A test holds that both are as they would be written.
 */

import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { needs } from '../src/sim/build/needs.ts';
import {
  flagOf,
  type Knob,
  knobGroups,
  knobs,
  type NeedName,
  type Path,
  paths,
} from '../src/sim/description/knobs.ts';

const root = join(import.meta.dirname, '..');
export const pageFile: string = join(root, 'docs/reference/settings.md');
export const schemaFile: string = join(root, 'docs/reference/result.schema.json');

const code = (text: string): string => `\`${text}\``;
/** Text within a cell. */
const cell = (text: string): string => text.replaceAll('|', '\\|').replaceAll('<', '&lt;');

const words: Readonly<Record<Knob['kind'], string>> = {
  integer: 'integer',
  number: 'number',
  time: 'time',
  size: 'size',
  flag: 'flag',
  text: 'text',
  file: 'file',
  name: 'name',
  seed: 'integer of 64 bits',
  numbers: 'numbers',
  targets: 'times by class',
  microseconds: 'microseconds by class',
  weights: 'weights by scorer',
  parameters: 'values by parameter',
  texts: 'texts',
};
const units = { us: 'µs', ms: 'ms', s: 's' } as const;

function rangeOf({ kind, min, max, counts, names }: Knob): string {
  if (names !== undefined) return names.map(code).join(', ');
  const unit = counts === undefined ? '' : ` in ${units[counts]}`;
  const from = min === undefined ? '' : `, from ${min}`;
  return `${words[kind]}${unit}${from}${max === undefined ? '' : ` to ${max}`}`;
}

function defaultOf({ or, upstream }: Knob): string {
  const own = or === undefined ? '' : code(String(or));
  return upstream === undefined ? own : `${own}${own === '' ? '' : ', '}BLIS ${code(String(upstream))}`;
}

/** Where a deployment file has it: `engine: max_num_seqs`. */
function keyOf(path: Path): string {
  const { in: mapping, key = flagOf(path).slice(2).replaceAll('-', '_') } = knobs[path];
  return mapping === undefined ? '' : code(`${mapping}: ${key}`);
}

function row(path: Path): string {
  const { about, alias, needs: names = [] } = knobs[path];
  const others = alias === undefined ? '' : `, ${code(alias)}`;
  const needed = names.length === 0 ? '' : ` *${names.join(', ')}*`;
  const cells = [
    `${code(flagOf(path))}${others}`,
    code(path),
    keyOf(path),
    rangeOf(knobs[path]),
    defaultOf(knobs[path]),
    `${cell(about)}${needed}`,
  ];
  return `| ${cells.join(' | ')} |`;
}

function needRows(): string[] {
  const used = new Set(paths.flatMap((path) => (knobs[path].needs ?? []) as readonly NeedName[]));
  return [...used].sort().map((name) => {
    const { lacks, remedy } = needs[name];
    return `| *${name}* | ${cell(lacks(flagOf))} | ${cell(remedy(flagOf))} |`;
  });
}

export function settingsPage(): string {
  const head =
    '| option | path | key of a file | takes | default | what it is for |\n|---|---|---|---|---|---|';
  const groups = knobGroups.map(
    ({ title, paths: all }) => `## ${title}\n\n${head}\n${all.map(row).join('\n')}\n`,
  );
  return `# Settings of a deployment

This page is for a person who describes a deployment: in options of \`tierkv simulate\`, in fields of the object that \`simulate()\`
takes, or in a deployment file. It is made of the table that all three are read by (\`node tools/settings.ts\` in the repository).

A path is the field of the object: \`engine.maxSequences\` is \`{ engine: { maxSequences: 64 } }\`. A key stands in the mapping that is
named before it. Provenance of a result has each setting that acted, by its path. Sizes and times are as in [options.md](options.md).
What stands in italics is needed for a setting to have an effect; the table at the end says how a setting without it is refused.

${groups.join('\n')}
## What settings need

| need | a setting without it | what to do |
|---|---|---|
${needRows().join('\n')}
`;
}

type Schema = Record<string, unknown>;

/** The value of a setting as a result has it. */
function valueSchema({ kind, min, max, names }: Knob): Schema {
  const range = {
    ...(min === undefined ? {} : { minimum: min }),
    ...(max === undefined ? {} : { maximum: max }),
  };
  switch (kind) {
    case 'integer':
      return { type: 'integer', ...range };
    case 'number':
    case 'time':
      return { type: 'number', ...range };
    case 'flag':
      return { type: 'boolean' };
    case 'seed':
      return { type: 'string', pattern: '^-?\\d+$' };
    case 'name':
      return { enum: names };
    case 'numbers':
      return { type: 'array', items: { type: 'number' } };
    case 'texts':
      return { type: 'array', items: { type: 'string' } };
    case 'targets':
    case 'microseconds':
    case 'weights':
      return { type: 'object', additionalProperties: { type: 'number', exclusiveMinimum: 0 } };
    case 'parameters':
      return { type: 'object', additionalProperties: { type: ['string', 'number', 'boolean'] } };
    default:
      return { type: 'string' };
  }
}

/** The schema of results with the settings that the table has. */
export function withSettings(schema: Schema): Schema {
  const { $defs } = schema as { readonly $defs: Record<string, Schema> };
  const properties = Object.fromEntries(
    paths.toSorted().map((path) => [path, { description: knobs[path].about, ...valueSchema(knobs[path]) }]),
  );
  const settings = {
    description: 'Settings of a deployment that acted, by path: docs/reference/settings.md.',
    type: 'object',
    additionalProperties: false,
    properties,
  };
  const simulate = $defs.simulate as { readonly properties: Record<string, Schema> };
  const refers = { $ref: '#/$defs/settings' };
  const provenance = {
    ...simulate.properties.provenance,
    properties: {
      settings: refers,
      pools: { type: 'array', items: { type: 'object', properties: { settings: refers } } },
    },
  };
  return {
    ...schema,
    $defs: {
      ...$defs,
      simulate: { ...simulate, properties: { ...simulate.properties, provenance } },
      settings,
    },
  };
}

if (process.argv[1] === import.meta.filename) {
  writeFileSync(pageFile, settingsPage());
  const schema = JSON.parse(readFileSync(schemaFile, 'utf8')) as Schema;
  writeFileSync(schemaFile, JSON.stringify(withSettings(schema)));
  console.log('wrote both; then: npx biome format --write docs/reference/result.schema.json');
}
