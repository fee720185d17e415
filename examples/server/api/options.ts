/** Command line and environment of the server. */

import { parseArgs } from 'node:util';
import { TierKVError } from '../../../src/index.ts';
import { operatorPortOf } from '../../../src/observe/dashboard/operatorAccess.ts';
import { tinyModelDirectory } from '../tinyModel/make.ts';
import { type HandoffOptions, type Role, roles } from './handoffs.ts';

export interface ServerOptions {
  readonly engine: EngineName;
  /** Of the model: its directory, or its file. */
  readonly directory: string;
  readonly name: string;
  readonly host: string;
  readonly port: number;
  /** Where the operator reads metrics, dashboard and hand-offs; 0: any port that is free. */
  readonly operatorPort: number;
  /** Asked of the operator; undefined: this machine alone is answered. */
  readonly operatorToken: string | undefined;
  readonly hbmBytes: number;
  readonly ddrBytes: number;
  /** Where KV outlives the process; undefined: nowhere. */
  readonly state: string | undefined;
  readonly nvmeBytes: number;
  /** undefined: what the model and HBM allow, at most 8192. */
  readonly contextTokens: number | undefined;
  readonly maxSequences: number;
  /** Of an engine that computes on processors; undefined: its own choice. */
  readonly threads: number | undefined;
  readonly maxWaiting: number;
  readonly steps: string | undefined;
  readonly log: string | undefined;
  /** A file, or `-`; undefined: none. */
  readonly accessLog: string | undefined;
  readonly apiKeys: ReadonlyMap<string, string>;
  /** Header in which a gateway before this server names the tenant; undefined: the key alone says who it is. */
  readonly tenantHeader: string | undefined;
  /** Origins whose pages may call the API; `*`: all. */
  readonly allowedOrigins: readonly string[];
  /** How long requests under way may take at the stop. */
  readonly graceMs: number;
  /** A file with the secret of the keys, which servers share; undefined: a secret of this server's own. */
  readonly secretFile: string | undefined;
  /** A tier that servers share. */
  readonly remote: { readonly url: string; readonly bytes: number } | undefined;
  /** Which legs of requests this server takes; undefined: it answers requests alone. */
  readonly handoffs: HandoffOptions | undefined;
}

export const usage = `usage: npm run server -- [options]

  --engine NAME         what computes: tierkv, the decoder of this example, or llama, llama.cpp by node-llama-cpp
                        (default tierkv)
  --model DIR           checkpoint: config.json, tokenizer.json and weights (default: the tiny model here); with
                        --engine llama a .gguf file
  --name NAME           name of the model in the API (default: tierkv-tiny, or the directory's name)
  --host HOST           default 127.0.0.1
  --port PORT           default 8000; 0: any that is free
  --operator-port PORT  where this machine reads metrics, dashboard and hand-offs (default: 1000 above --port)
  --hbm-mib N           device memory for KV (default 64)
  --ddr-mib N           host memory for KV (default 256; 0: none)
  --state DIR           directory, for this server alone, in which KV outlives it (default: none)
  --nvme-mib N          size of the files in it, with --state (default 1024)
  --context N           most tokens of prompt and answer together (default: what the model and HBM allow, at
                        most 8192)
  --max-sequences N     most requests in a step (default 64; llama: 4)
  --threads N           threads of llama.cpp (default: its own choice)
  --max-waiting N       most requests that wait; others get 429 (default 256). With keys, one tenant
                        takes at most half of what the others leave
  --grace-seconds N     how long requests under way may take at the stop (default 10)
  --allowed-origins O   origins whose pages may call the API, separated by commas, or * (default: none)
  --tenant-header NAME  header in which a gateway before this server names the tenant, such as x-tenant-id; let
                        nothing else reach the server then (default: none, the key says who it is)
  --secret-file FILE    16 to 32 secret bytes, the same for servers that share KV (default: a secret of its own)
  --remote URL          Valkey or Redis that servers share, such as redis://127.0.0.1:6380 (needs --secret-file)
  --remote-mib N        what this server keeps in mind of it (default 1024)
  --role ROLE           prefill, decode or both: take the legs of requests that two servers answer (needs --secret-file)
  --handoff-port PORT   where a prefill server gives its KV to decode servers (0: any that is free; default: it goes
                        by the server of --remote)
  --handoff-host HOST   address of this machine for it (default 127.0.0.1)
  --handoff-advertise H what decode servers reach it by (default: --handoff-host)
  --handoff-answer WHEN early, while the prompt is computed, or whole (default early; whole by --remote)
  --handoff-lease-seconds N
                        how long KV is held for the server that fetches it (default 30)
  --steps FILE          where step times are written at the end, for "tierkv latency fit --steps FILE"
  --access-log FILE     a line of JSON for each request that ended; - for standard output (default: none)
  --log FILE            decision log, for "tierkv replay --inputs FILE"

  TIERKV_API_KEYS       key=tenant pairs, separated by commas; without it, all clients are one tenant
  TIERKV_OPERATOR_TOKEN asked of the operator, who may then come from other machines (default: none)`;

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
  if (values['nvme-mib'] !== undefined && values.state === undefined) {
    throw optionError(
      '--nvme-mib',
      'is given, and --state is not',
      'Name the directory of the files with --state',
    );
  }
  const port = integer('port', 8000, 0, 65_535);
  const engine = engineOf(values, text);
  const directory = text('model') ?? tinyModelDirectory;
  const base = directory
    .split(/[\\/]/)
    .filter((part) => part !== '')
    .at(-1);
  return {
    engine,
    directory,
    name:
      text('name') ??
      (text('model') === undefined ? 'tierkv-tiny' : (base?.replace(/\.gguf$/, '') ?? 'model')),
    host: text('host') ?? '127.0.0.1',
    port,
    operatorPort: integer('operator-port', operatorPortOf(port), 0, 65_535),
    operatorToken: tokenOf(env.TIERKV_OPERATOR_TOKEN),
    hbmBytes: integer('hbm-mib', 64, 1, 2 ** 20) * mib,
    ddrBytes: integer('ddr-mib', 256, 0, 2 ** 20) * mib,
    state: text('state'),
    nvmeBytes: integer('nvme-mib', 1024, 1, 2 ** 24) * mib,
    contextTokens: values.context === undefined ? undefined : integer('context', 8192, 2, 2 ** 24),
    maxSequences: integer('max-sequences', engines[engine].sequences, 1, engines[engine].sequencesMost),
    threads: values.threads === undefined ? undefined : integer('threads', 1, 1, 1024),
    maxWaiting: integer('max-waiting', 256, 0, 2 ** 20),
    steps: text('steps'),
    log: text('log'),
    accessLog: text('access-log'),
    apiKeys: keysOf(env.TIERKV_API_KEYS ?? ''),
    tenantHeader: headerOf(text('tenant-header')),
    allowedOrigins: originsOf(text('allowed-origins') ?? ''),
    graceMs: integer('grace-seconds', 10, 0, 86_400) * 1000,
    ...sharing(values, text, integer),
  };
}

export type EngineName = 'tierkv' | 'llama';

/** Engines by name, with what the command line must know of them. */
const engines: Readonly<
  Record<
    EngineName,
    {
      readonly sequences: number;
      readonly sequencesMost: number;
      /** Options that act on nothing of it. */
      readonly without: readonly string[];
    }
  >
> = {
  tierkv: { sequences: 64, sequencesMost: 4096, without: ['threads'] },
  llama: {
    sequences: 4,
    sequencesMost: 256,
    without: [
      ...['hbm-mib', 'steps', 'remote', 'remote-mib', 'role', 'handoff-port', 'handoff-host'],
      ...['handoff-advertise', 'handoff-answer', 'handoff-lease-seconds'],
    ],
  },
};

function engineOf(
  values: Readonly<Record<string, string | undefined>>,
  text: (name: string) => string | undefined,
): EngineName {
  const given = text('engine') ?? 'tierkv';
  const names = Object.keys(engines) as EngineName[];
  const name = names.find((each) => each === given);
  if (name === undefined) throw optionError('--engine', `is ${given}`, `Give one of ${names.join(', ')}`);
  const useless = engines[name].without.find((each) => values[each] !== undefined);
  if (useless !== undefined)
    throw optionError(`--${useless}`, `is given, and does nothing with --engine ${name}`, 'Leave it out');
  if (name === 'llama' && !values.model?.endsWith('.gguf'))
    throw optionError('--model', `must be a .gguf file with --engine ${name}`, 'Name one');
  return name;
}

/** What servers share, and the legs that this one takes. */
function sharing(
  values: Readonly<Record<string, string | undefined>>,
  text: (name: string) => string | undefined,
  integer: (name: string, otherwise: number, min: number, max: number) => number,
): Pick<ServerOptions, 'secretFile' | 'remote' | 'handoffs'> {
  const needs = (name: string, other: string, remedy: string): void => {
    if (values[name] === undefined || values[other] !== undefined) return;
    throw optionError(`--${name}`, `is given, and --${other} is not`, remedy);
  };
  for (const name of ['remote', 'role']) {
    needs(name, 'secret-file', 'Name a file with 32 secret bytes, the same on all servers');
  }
  needs('remote-mib', 'remote', 'Name the server with --remote');
  for (const name of [
    'handoff-port',
    'handoff-host',
    'handoff-advertise',
    'handoff-answer',
    'handoff-lease-seconds',
  ]) {
    needs(name, 'role', 'Give --role prefill, or leave it out');
  }
  const url = text('remote');
  const remote =
    url === undefined ? undefined : { url, bytes: integer('remote-mib', 1024, 1, 2 ** 24) * mib };
  const choice = <Name extends string>(name: string, names: readonly Name[], otherwise: Name): Name => {
    const given = text(name) ?? otherwise;
    if ((names as readonly string[]).includes(given)) return given as Name;
    throw optionError(`--${name}`, `is ${given}`, `Give one of ${names.join(', ')}`);
  };
  const secretFile = text('secret-file');
  if (values.role === undefined) return { secretFile, remote, handoffs: undefined };
  const role: Role = choice('role', roles, 'both');
  const answer = choice('handoff-answer', ['early', 'whole'], remote === undefined ? 'early' : 'whole');
  const leaseMs = integer('handoff-lease-seconds', 30, 1, 86_400) * 1000;
  const host = text('handoff-host') ?? '127.0.0.1';
  const advertise = text('handoff-advertise') ?? host;
  const hasPort = values['handoff-port'] !== undefined;
  if (!hasPort && remote === undefined && role !== 'decode') {
    const remedy =
      'Give the port at which decode servers fetch its KV, or a server that they share with --remote';
    throw optionError('--handoff-port', `is missing for --role ${role}`, remedy);
  }
  if (role === 'decode' && hasPort) {
    throw optionError('--handoff-port', 'is given for --role decode, which gives no KV away', 'Leave it out');
  }
  const listen = hasPort ? { host, port: integer('handoff-port', 0, 0, 65_535), advertise } : undefined;
  return { secretFile, remote, handoffs: { role, answer: hasPort ? answer : 'whole', leaseMs, listen } };
}

const optionNames = [
  'engine',
  'threads',
  'model',
  'name',
  'host',
  'port',
  'operator-port',
  'hbm-mib',
  'ddr-mib',
  'state',
  'nvme-mib',
  'context',
  'max-sequences',
  'max-waiting',
  'grace-seconds',
  'allowed-origins',
  'tenant-header',
  'secret-file',
  'remote',
  'remote-mib',
  'role',
  'handoff-port',
  'handoff-host',
  'handoff-advertise',
  'handoff-answer',
  'handoff-lease-seconds',
  'steps',
  'log',
  'access-log',
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
      throw optionError(
        'TIERKV_API_KEYS',
        'has a part that is not key=tenant',
        'Write key=tenant,key=tenant',
      );
    }
    keys.set(key, tenant);
  }
  // a server that is to have keys and has none would let everyone in
  if (pairs !== '' && keys.size === 0)
    throw optionError('TIERKV_API_KEYS', 'is set and has no key', 'Write key=tenant,key=tenant, or unset it');
  return keys;
}

function tokenOf(token: string | undefined): string | undefined {
  if (token === undefined || /^\S{16,256}$/.test(token)) return token;
  throw optionError(
    'TIERKV_OPERATOR_TOKEN',
    'is not 16 to 256 characters without spaces',
    'Make one with: openssl rand -hex 32',
  );
}

function headerOf(name: string | undefined): string | undefined {
  if (name === undefined || /^[A-Za-z0-9-]{1,64}$/.test(name)) return name?.toLowerCase();
  throw optionError(
    '--tenant-header',
    `is ${name}, which no header is called`,
    'Give a name such as x-tenant-id',
  );
}

function originsOf(list: string): string[] {
  const origins = list.split(',').map((each) => each.trim());
  return origins
    .filter((each) => each !== '')
    .map((origin) => {
      if (origin === '*' || (URL.canParse(origin) && new URL(origin).origin === origin)) return origin;
      const remedy = 'Write origins such as https://example.org, without a path, or *';
      throw optionError('--allowed-origins', `has ${origin}, which must be an origin`, remedy);
    });
}

/** Fields of the configurations that come of options. */
const optionOf: Readonly<Record<string, string>> = {
  hbmBytes: '--hbm-mib',
  'hbm.capacityBytes': '--hbm-mib',
  ddrBytes: '--ddr-mib',
  'ddr.capacityBytes': '--ddr-mib',
  'nvme.bytes': '--nvme-mib',
  'nvme.capacityBytes': '--nvme-mib',
  'nvme.dir': '--state',
  'remote.url': '--remote',
  'remote.bytes': '--remote-mib',
  'remote.capacityBytes': '--remote-mib',
  secretKey: '--secret-file',
  'listen.port': '--handoff-port',
  'listen.host': '--handoff-host',
  contextTokens: '--context',
  contextSize: '--context',
  model: '--model',
  sequences: '--max-sequences',
  threads: '--threads',
  maxSequences: '--max-sequences',
  log: '--log',
};

/** The same error by the option's name, with sizes in the option's unit. */
export function asOptionError(error: unknown): unknown {
  if (!(error instanceof TierKVError)) return error;
  const option = optionOf[error.field ?? ''];
  if (option === undefined) return error;
  let message = error.message;
  for (const [field, name] of Object.entries(optionOf)) {
    // names that are words too, such as model, are meant only in an error of their own
    if (/^[a-z]+$/.test(field) && field !== error.field) continue;
    message = message.replaceAll(
      new RegExp(`(?<![\\w./-])${field.replace('.', '\\.')}(?![\\w/.]\\w)\\b`, 'g'),
      name,
    );
  }
  const inMib = (_: string, bytes: string): string => `${Number((Number(bytes) / mib).toFixed(1))} MiB`;
  if (option.endsWith('-mib')) message = message.replaceAll(/\b(\d{7,16})\b(?: bytes)?/g, inMib);
  return new TierKVError(error.code, message, { field: option, cause: error });
}

export function optionError(field: string, problem: string, remedy: string, cause?: unknown): TierKVError {
  const facts = cause === undefined ? { field } : { field, cause };
  return new TierKVError('TKV_CONFIG', `${field} ${problem}. ${remedy}.`, facts);
}
