/**
 * The process of a command: how a failure or a stop from outside ends it, and what `-` stands for.
 */

import fs from 'node:fs';
import { constants } from 'node:os';
import path from 'node:path';
import { type Command, CommanderError } from 'commander';
import { type TemporaryDirectory, temporaryDirectory } from '../io/files/temporaryDirectory.ts';
import { printable } from '../io/printing/text.ts';
import { configError, renamed, TierKVError } from '../runtime/errors.ts';
import { takeStandardOutput } from './output.ts';

// How a command's failure ends the process. What the user can mend is one line on stderr and exit code 2,
// never a stack; a fault of ours says so and exits with 1; a stop from outside exits as shells expect.
// TIERKV_DEBUG=1 adds the stack.

export interface ProcessEnding {
  readonly exitCode: number;
  /** For stderr, without a newline at its end; empty for nothing to say. */
  readonly text: string;
}

/** Longest message. Of a longer one the beginning and the end stay: what is wrong, and what to do. */
const maxCharacters = 2000;

/**
 * One line whatever the message holds: file names and trace lines may carry line ends, terminal codes and any
 * length.
 */
function oneLine(message: string): string {
  const half = maxCharacters / 2;
  const short =
    message.length <= maxCharacters ? message : `${message.slice(0, half)} ... ${message.slice(-half)}`;
  return printable(short.replace(/\s+/g, ' ')).trim();
}

/** The command that refused its arguments, where it is known better than by the caller. */
function callOf(error: CommanderError): string | undefined {
  return 'call' in error && typeof error.call === 'string' ? error.call : undefined;
}

function isSystemError(error: unknown): error is NodeJS.ErrnoException {
  return error instanceof Error && 'syscall' in error && 'errno' in error;
}

/** @param help the command whose `--help` shows the way: `tierkv replay`. */
export function endingOf(error: unknown, help: string): ProcessEnding {
  // what failed first says more than what could not be closed after it; Node 22 has no class for the pair
  if (error instanceof Error && error.name === 'SuppressedError' && 'suppressed' in error)
    return endingOf(error.suppressed, help);
  if (error instanceof Interrupted) return { exitCode: error.exitCode, text: `tierkv: ${error.message}` };
  if (error instanceof TierKVError) {
    return { exitCode: 2, text: `tierkv: ${oneLine(error.message)} [${error.code}]` };
  }
  if (error instanceof CommanderError) {
    if (error.exitCode === 0) return { exitCode: 0, text: '' }; // --help, --version
    const [, told = ''] = /^(?:error: )?(.*?)\.?$/s.exec(oneLine(error.message)) ?? [];
    const message = error.code === 'commander.help' ? 'name one of the commands' : told;
    return { exitCode: 2, text: `tierkv: ${message}. See ${callOf(error) ?? help} --help.` };
  }
  if (isSystemError(error)) {
    return { exitCode: 2, text: `tierkv: the system refused: ${oneLine(error.message)} [TKV_IO]` };
  }
  const message = error instanceof Error ? `${error.name}: ${error.message}` : String(error);
  return {
    exitCode: 1,
    text:
      `tierkv: unexpected ${oneLine(message)}\n` +
      'This is a fault in tierkv, not in what you asked for. TIERKV_DEBUG=1 shows where; please ' +
      'report it with that.',
  };
}

export function withStack(ending: ProcessEnding, error: unknown): ProcessEnding {
  if (ending.text === '' || !(error instanceof Error) || error.stack === undefined) return ending;
  const cause = error.cause instanceof Error ? `\ncaused by ${error.cause.stack}` : '';
  return { ...ending, text: `${ending.text}\n${error.stack}${cause}` };
}

// Stopping a command from outside. The first SIGINT, SIGTERM or SIGHUP raises an abort signal, so that the
// command closes what it holds and ends; a later one ends the process at once. Commands that hold nothing need
// none of this: without a handler the signal just ends them.

const stopSignals = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const;
/** A signal so soon after the first is the same one: a terminal sends Ctrl+C to npm too, and npm passes it on. */
const ECHO_MS = 500;

/** The `signal.reason` after a stop. The process then ends with 128 + the signal's number, as shells expect. */
export class Interrupted extends Error {
  override readonly name: string = 'Interrupted';
  readonly exitCode: number;

  constructor(signal: NodeJS.Signals) {
    super(`stopped by ${signal}`);
    this.exitCode = 128 + constants.signals[signal];
  }
}

/** Runs `work` with an abort signal that the stop signals raise. */
export async function interruptible<T>(work: (signal: AbortSignal) => Promise<T>): Promise<T> {
  const controller = new AbortController();
  let firstMs = Infinity;
  const stop = (name: NodeJS.Signals): void => {
    const reason = new Interrupted(name);
    if (performance.now() - firstMs > ECHO_MS) process.exit(reason.exitCode);
    firstMs = Math.min(firstMs, performance.now());
    controller.abort(reason);
  };
  for (const name of stopSignals) process.on(name, stop);
  try {
    return await work(controller.signal);
  } finally {
    for (const name of stopSignals) process.off(name, stop);
  }
}

// `-` on the command line: standard output where a file is written, standard input where one is read. What is
// read comes into a file first, since most inputs are read more than once and known by the end of their name.

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
  plan: ['out'],
  calibrate: ['out'],
  fit: ['out'],
  export: ['out'],
};
/** Options of which the file is read again, or that stand for several files. */
const noStreams = ['log', 'traceOutput', 'cache', 'dir', 'payloads'];
/** Options that name a file to be read. */
const inputs = [
  ...[
    'workloadSpec',
    'traceData',
    'traceHeader',
    'policyConfig',
    'kvOffloadConfig',
    'sharedTier',
    'deployment',
    'model',
  ],
  ...[
    ...['gpu', 'hardware', 'hardwareConfig'],
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
/** Names of the library's fields as options of the running command. */
const called = new Map<string, string>();

/** Takes `-` in the options and arguments of a command that is about to run. */
export async function useStandardStreams(command: Command): Promise<void> {
  await nameFields(command);
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

/** Options by the fields that they set: by their own names, and of settings by path and by the last word of the path. */
export async function nameFields(command: Command): Promise<void> {
  const { pathOfFlag } = await import('../sim/description/knobs.ts');
  called.clear();
  const flags = command.options.filter(({ negate, hidden }) => !negate && !hidden);
  for (const option of flags) called.set(option.attributeName(), option.long ?? option.flags);
  for (const { long = '' } of flags) {
    const path = pathOfFlag(long);
    if (path === undefined) continue;
    for (const name of [path, path.slice(path.lastIndexOf('.') + 1)]) {
      if (!called.has(name)) called.set(name, long);
    }
  }
  // an argument has its own name
  for (const argument of command.registeredArguments) called.delete(argument.name());
}

/**
 * The error in the words of the call. A field of the library that an option of the command sets is that option, unless it was
 * written in a line of a file. The file in which standard input is kept is standard input.
 */
export function inCallersWords(error: unknown): unknown {
  const ofFile = error instanceof TierKVError && error.line !== undefined ? error.field : undefined;
  return renamed((name) => {
    if (kept !== undefined && name === kept.file) return 'standard input';
    return name === ofFile ? undefined : called.get(name);
  }, error);
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
