/**
 * `-` on the command line: standard output where a file is written, standard input where one is read. What is
 * read comes into a file first, since most inputs are read more than once and known by the end of their name.
 */

import fs from 'node:fs';
import path from 'node:path';
import type { Command } from 'commander';
import { configError, TierKVError } from '../../runtime/errors.ts';
import { takeStandardOutput } from '../output/resultFile.ts';
import { type TemporaryDirectory, temporaryDirectory } from './temporaryDirectory.ts';

/** Options that name a file to be written, by command where a name has two meanings. */
const outputs = [
  'json',
  'plot',
  'metricsPath',
  'resultsPath',
  'decisions',
  'chromeTrace',
  'report',
  'fio',
  'trace',
  'output',
];
const ownOutputs: Readonly<Record<string, readonly string[]>> = {
  simulate: ['requests'],
  calibrate: ['out'],
  fit: ['out'],
  export: ['out'],
};
/** Options of which the file is read again, or that stand for several files. */
const noStreams = ['log', 'traceOutput', 'cache', 'dir', 'payloads'];
/** Options that name a file to be read. */
const inputs = [
  ...['workloadSpec', 'traceData', 'traceHeader', 'policyConfig', 'kvOffloadConfig', 'deployment', 'model'],
  ...[
    'hardware',
    'hardwareConfig',
    'coefficients',
    'links',
    'plan',
    'simResults',
    'runs',
    'steps',
    'requests',
  ],
];

let kept: { readonly folder: TemporaryDirectory; readonly file: string } | undefined;

/** Takes `-` in the options and arguments of a command that is about to run. */
export async function useStandardStreams(command: Command): Promise<void> {
  const dashes = command.options.filter((option) => {
    const name = option.attributeName();
    return command.getOptionValueSource(name) === 'cli' && command.getOptionValue(name) === '-';
  });
  const written = [...outputs, ...(ownOutputs[command.name()] ?? [])];
  const targets = dashes.filter((option) => written.includes(option.attributeName()));
  if (targets.length > 1) {
    const [first, second] = targets.map(({ long }) => String(long));
    throw configError(second, `is standard output, as ${first} is`, 'Name a file for one of them.');
  }
  if (targets.length === 1) takeStandardOutput();
  const refused = dashes.find((option) => noStreams.includes(option.attributeName()));
  if (refused !== undefined) {
    throw configError(String(refused.long), 'is -, and cannot be a stream', 'Name a file or a folder.');
  }
  const sources = dashes.filter(
    (option) => !targets.includes(option) && inputs.includes(option.attributeName()),
  );
  const places = command.processedArgs.flatMap((value: unknown, i) =>
    value === '-' || (Array.isArray(value) && value.includes('-')) ? [i] : [],
  );
  const count = sources.length + command.args.filter((arg) => arg === '-').length;
  if (count === 0) return;
  if (count > 1) {
    const field = sources.at(-1)?.long ?? command.registeredArguments[places[0]].name();
    throw configError(field, 'is standard input, as another one is', 'Name a file for one of them.');
  }
  const takesPolicies = places.length > 0 && ['evaluate', 'evolve'].includes(command.name());
  const file = await keepStandardInput(takesPolicies);
  for (const option of sources) command.setOptionValue(option.attributeName(), file);
  for (const i of places) {
    const value: unknown = command.processedArgs[i];
    command.processedArgs[i] = Array.isArray(value)
      ? value.map((each: unknown) => (each === '-' ? file : each))
      : file;
  }
}

/** An error about the file in which standard input is kept is one about standard input. */
export function inStandardInputsWords(error: unknown): unknown {
  if (kept === undefined || !(error instanceof TierKVError) || !error.message.includes(kept.file)) {
    return error;
  }
  const { code, field, line } = error;
  return new TierKVError(code, error.message.replaceAll(kept.file, 'standard input'), {
    path: '-',
    cause: error,
    ...(field === undefined ? {} : { field }),
    ...(line === undefined ? {} : { line }),
  });
}

const maxBytes = 2 ** 32;

async function keepStandardInput(isPolicy: boolean): Promise<string> {
  const folder = temporaryDirectory('tierkv-stdin-');
  const draft = path.join(folder.path, 'stdin');
  const handle = fs.openSync(draft, 'wx', 0o600);
  let bytes = 0;
  try {
    for await (const chunk of process.stdin as AsyncIterable<Buffer>) {
      bytes += chunk.length;
      if (bytes > maxBytes) {
        throw new TierKVError('TKV_INPUT', 'standard input has more than 4 GiB. Name a file.', { path: '-' });
      }
      fs.writeSync(handle, chunk);
    }
  } finally {
    fs.closeSync(handle);
  }
  const file = `${draft}${endOfName(draft, isPolicy)}`;
  fs.renameSync(draft, file);
  kept = { folder, file };
  return file;
}

/** The end of a file's name by what is in it, since readers go by names. */
function endOfName(file: string, isPolicy: boolean): string {
  const head = Buffer.alloc(4096);
  const handle = fs.openSync(file, 'r');
  const count = fs.readSync(handle, head, 0, head.length, 0);
  fs.closeSync(handle);
  const magic = count >= 4 ? head.readUInt32BE(0) : 0;
  if (magic >>> 16 === 0x1f8b) return '.gz';
  if (magic === 0x28b52ffd) return '.zst';
  if (magic === 0x0061736d) return '.wasm';
  const text = head
    .toString('utf8', 0, count)
    .replace(/^\u{feff}/u, '')
    .trimStart();
  if (text.startsWith('{') || text.startsWith('[')) return '.json';
  if (isPolicy) return '.star';
  const [line] = text.split('\n');
  return line.includes(',') && !line.includes(': ') ? '.csv' : '.yaml';
}
