/** Command line and environment of the server. */

import { parseArgs } from 'node:util';
import { TierKVError } from '../../../src/index.ts';
import { tinyModelDirectory } from '../tinyModel/make.ts';

export interface ServerOptions {
  readonly directory: string;
  readonly name: string;
  readonly host: string;
  readonly port: number;
  readonly hbmBytes: number;
  readonly ddrBytes: number;
  /** Where KV outlives the process; undefined: nowhere. */
  readonly state: string | undefined;
  readonly nvmeBytes: number;
  readonly contextTokens: number;
  readonly maxSequences: number;
  readonly maxWaiting: number;
  readonly steps: string | undefined;
  readonly log: string | undefined;
  readonly apiKeys: ReadonlyMap<string, string>;
}

export const usage = `usage: npm run server -- [options]

  --model DIR           checkpoint: config.json, tokenizer.json and weights (default: the tiny model here)
  --name NAME           name of the model in the API (default: tierkv-tiny, or the directory's name)
  --host HOST           default 127.0.0.1
  --port PORT           default 8000; 0: any that is free
  --hbm-mib N           device memory for KV (default 64)
  --ddr-mib N           host memory for KV (default 256; 0: none)
  --state DIR           directory, for this server alone, in which KV outlives it (default: none)
  --nvme-mib N          size of the files in it (default 1024)
  --context N           most tokens of prompt and answer together (default: what the model and HBM allow)
  --max-sequences N     most requests in a step (default 64)
  --max-waiting N       most requests that wait; others get 429 (default 256)
  --steps FILE          where step times are written at the end, for "tierkv latency fit --steps FILE"
  --log FILE            decision log, for "tierkv replay --inputs FILE"

  TIERKV_API_KEYS       key=tenant pairs, separated by commas; without it, everybody is one tenant`;

const mib = 2 ** 20;

/** @throws TKV_CONFIG naming the option at fault */
export function serverOptions(args: readonly string[], env: NodeJS.ProcessEnv): ServerOptions {
  const values = parse(args);
  const text = (name: string): string | undefined => {
    if (values[name]?.trim() !== '') return values[name];
    throw optionError(`--${name}`, 'is empty', 'Name one, or leave it out');
  };
  const integer = (name: string, otherwise: number, min: number, max: number): number => {
    const given = text(name);
    const value = given === undefined ? otherwise : Number(given);
    if (Number.isSafeInteger(value) && value >= min && value <= max) return value;
    throw optionError(`--${name}`, `is ${given}`, `Give an integer from ${min} to ${max}`);
  };
  const directory = text('model') ?? tinyModelDirectory;
  const base = directory
    .split(/[\\/]/)
    .filter((part) => part !== '')
    .at(-1);
  return {
    directory,
    name: text('name') ?? (text('model') === undefined ? 'tierkv-tiny' : (base ?? 'model')),
    host: text('host') ?? '127.0.0.1',
    port: integer('port', 8000, 0, 65_535),
    hbmBytes: integer('hbm-mib', 64, 1, 2 ** 20) * mib,
    ddrBytes: integer('ddr-mib', 256, 0, 2 ** 20) * mib,
    state: text('state'),
    nvmeBytes: integer('nvme-mib', 1024, 1, 2 ** 24) * mib,
    contextTokens: integer('context', 8192, 2, 2 ** 24),
    maxSequences: integer('max-sequences', 64, 1, 4096),
    maxWaiting: integer('max-waiting', 256, 0, 2 ** 20),
    steps: text('steps'),
    log: text('log'),
    apiKeys: keysOf(env.TIERKV_API_KEYS ?? ''),
  };
}

const optionNames = [
  'model',
  'name',
  'host',
  'port',
  'hbm-mib',
  'ddr-mib',
  'state',
  'nvme-mib',
  'context',
  'max-sequences',
  'max-waiting',
  'steps',
  'log',
] as const;

function parse(args: readonly string[]): Readonly<Record<string, string | undefined>> {
  const options = Object.fromEntries(optionNames.map((name) => [name, { type: 'string' as const }]));
  try {
    return parseArgs({ args: [...args], options, strict: true }).values as Record<string, string | undefined>;
  } catch (error) {
    const why = error instanceof Error ? error.message : String(error);
    throw new TierKVError('TKV_CONFIG', `${why} See --help.`, { cause: error });
  }
}

function keysOf(pairs: string): Map<string, string> {
  const keys = new Map<string, string>();
  for (const pair of pairs.split(',').filter((each) => each.trim() !== '')) {
    const [key, tenant, ...more] = pair.split('=').map((part) => part.trim());
    if (!key || !tenant || more.length > 0 || keys.has(key)) {
      throw optionError('TIERKV_API_KEYS', 'has a part that is no key=tenant', 'Write key=tenant,key=tenant');
    }
    keys.set(key, tenant);
  }
  return keys;
}

function optionError(field: string, problem: string, remedy: string): TierKVError {
  return new TierKVError('TKV_CONFIG', `${field} ${problem}. ${remedy}.`, { field });
}
