/**
 * A server from start to stop. At the stop it takes no more requests, gives requests under way a while to end,
 * and saves the KV, so that the next start goes on with it.
 */

import { randomBytes } from 'node:crypto';
import fs from 'node:fs';
import { createServer } from 'node:net';
import nodePath from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import type { FastifyInstance } from 'fastify';
import { TierKVError } from '../../../src/index.ts';
import { type CacheConfig, Engine, type ServedEngine } from '../engine/index.ts';
import { LlamaEngine } from '../engines/llamaEngine.ts';
import { AccessLog } from './accessLog.ts';
import { makeApp } from './app.ts';
import { Handoffs } from './handoffs.ts';
import { metricsPage } from './metricsText.ts';
import { makeOperators } from './operators.ts';
import { asOptionError, optionError, type ServerOptions } from './options.ts';

/** How long the last bytes of answers may take at the stop. */
const farewellMs = 2000;

export class Serving<Served extends ServedEngine = ServedEngine> {
  readonly engine: Served;
  readonly app: FastifyInstance;
  readonly url: string;
  /** Metrics, dashboard and hand-offs, for its operator. */
  readonly operators: FastifyInstance;
  readonly operatorsUrl: string;
  /** What it does with the legs of requests that two servers answer. */
  readonly handoffs: Handoffs | undefined;
  readonly #options: ServerOptions;
  #stopped: Promise<number> | undefined;

  private constructor(
    engine: Served,
    app: FastifyInstance,
    url: string,
    operators: FastifyInstance,
    operatorsUrl: string,
    options: ServerOptions,
    handoffs: Handoffs | undefined,
  ) {
    this.engine = engine;
    this.app = app;
    this.url = url;
    this.operators = operators;
    this.operatorsUrl = operatorsUrl;
    this.#options = options;
    this.handoffs = handoffs;
  }

  /**
   * @param device one that is there already; it stays its owner's
   * @throws {TierKVError} by the name of the option at fault, before the device is opened where that can be
   */
  static async start(
    options: ServerOptions,
    log: (line: string) => void,
    device?: CacheConfig['device'],
  ): Promise<Serving> {
    const { apiKeys, maxWaiting, host, port, name, allowedOrigins } = options;
    if (options.steps !== undefined) requireWritable(options.steps); // better now than at the end
    await requireFree(host, port);
    const { operatorPort, operatorToken } = options;
    const operatorHost = operatorToken === undefined ? '127.0.0.1' : host;
    if (operatorPort !== 0) await requireFree(operatorHost, operatorPort, '--operator-port');
    const accessLog = options.accessLog === undefined ? undefined : new AccessLog(options.accessLog, log);
    const engine = await openEngine(options, log, device);
    const handoffs = await openHandoffs(engine, options, log);
    const metrics = metricsPage(engine, name);
    const operators = makeOperators(engine, { model: name, metrics, token: operatorToken, handoffs });
    const app = makeApp(engine, {
      model: name,
      metrics,
      apiKeys,
      maxWaiting,
      allowedOrigins,
      log,
      ...(handoffs === undefined ? {} : { handoffs }),
      ...(accessLog === undefined ? {} : { accessLog }),
      ...(options.tenantHeader === undefined ? {} : { tenantHeader: options.tenantHeader }),
    });
    try {
      const operatorsUrl = await operators.listen({ host: operatorHost, port: operatorPort });
      const url = await app.listen({ host, port });
      return new Serving(engine, app, url, operators, operatorsUrl, options, handoffs);
    } catch (error) {
      await Promise.all([app.close(), operators.close()]);
      await handoffs?.close();
      await engine.close();
      throw listenError(error, host, port);
    }
  }

  /** @returns blocks that were saved @throws TKV_IO when not all were; the server has stopped then too */
  stop(): Promise<number> {
    this.#stopped ??= this.#stop();
    return this.#stopped;
  }

  async #stop(): Promise<number> {
    const { steps, directory, graceMs } = this.#options;
    const closing = Promise.all([this.app.close(), this.operators.close()]);
    for (let waited = 0; this.engine.size > 0 && waited < graceMs; waited += 20) await sleep(20);
    await this.handoffs?.close();
    try {
      return await this.engine.close();
    } finally {
      // Answers that were cut are told so; a client that does not read is not waited for.
      await Promise.race([closing, sleep(farewellMs, undefined, { ref: false })]);
      this.app.server.closeAllConnections();
      this.operators.server.closeAllConnections();
      await closing;
      if (steps !== undefined)
        if (this.engine instanceof Engine)
          fs.writeFileSync(steps, this.engine.steps.csv('server', nodePath.join(directory, 'config.json')));
    }
  }
}

/**
 * KV of another model, another layout or under another secret is of no use to this server: it begins without.
 */
async function openEngine(
  options: ServerOptions,
  log: (line: string) => void,
  device: CacheConfig['device'],
): Promise<ServedEngine> {
  const { directory, state, hbmBytes, ddrBytes, nvmeBytes, maxSequences, contextTokens, threads } = options;
  const said = new Set<string>();
  const notice = (line: string): void => {
    if (!said.has(line)) log(line);
    said.add(line);
  };
  const onError = (error: unknown): void => log(textOf(error));
  const open = (): Promise<ServedEngine> => {
    const nvme = state === undefined ? undefined : { dir: directoryIn(state, 'kv'), bytes: nvmeBytes };
    const cache = {
      secretKey: secretOf(options, log),
      ddrBytes,
      notice,
      ...(options.log === undefined ? {} : { log: options.log }),
      ...(nvme === undefined ? {} : { nvme: { ...nvme, allocation: 'extents' as const } }),
    };
    if (options.engine === 'llama')
      return LlamaEngine.open({
        file: directory,
        contextTokens,
        sequences: maxSequences,
        threads,
        cache,
        onError,
      });
    const remote = options.remote === undefined ? {} : { remote: options.remote };
    return Engine.open({
      directory,
      cache: { ...cache, ...remote, hbmBytes, device },
      ...(contextTokens === undefined ? {} : { contextTokens }),
      maxSequences,
      onError,
    });
  };
  try {
    try {
      return await open();
    } catch (error) {
      const isMismatch = error instanceof TierKVError && error.code === 'TKV_MISMATCH';
      if (!isMismatch || state === undefined) throw error;
      log(beginEmpty(state, error));
      return await open();
    }
  } catch (error) {
    throw asOptionError(error);
  }
}

function textOf(error: unknown): string {
  if (error instanceof TierKVError || !(error instanceof Error)) return String(error);
  return error.stack ?? error.message;
}

/**
 * Files of a cache are removed, since nothing can be done with what they hold; files that are not of one are
 * set aside. @returns what is to be told
 */
function beginEmpty(state: string, { field, message }: TierKVError): string {
  const directory = nodePath.join(state, 'kv');
  const [why] = message.split('. Use the ');
  if (field !== 'dir') {
    fs.rmSync(directory, { recursive: true });
    return `The cache in ${directory} does not fit, and begins empty (${why}).`;
  }
  let aside = `${directory}.aside`;
  for (let i = 1; fs.existsSync(aside); i++) aside = `${directory}.aside-${i}`;
  fs.renameSync(directory, aside);
  return `The cache in ${directory} cannot be read, and begins empty (${message}). Its files are in ${aside} now.`;
}

function requireWritable(path: string): void {
  try {
    fs.closeSync(fs.openSync(path, 'a'));
  } catch (error) {
    const why = error instanceof Error ? error.message : String(error);
    throw optionError(
      '--steps',
      `cannot be written (${why})`,
      'Name a file in a directory that exists',
      error,
    );
  }
}

/** Told at once, and not when the device is open and the model is loaded. @throws TKV_CONFIG */
async function requireFree(host: string, port: number, option = '--port'): Promise<void> {
  const server = createServer();
  try {
    await new Promise<void>((resolve, reject) => {
      server.once('error', reject);
      server.listen({ host, port }, resolve);
    });
  } catch (error) {
    throw listenError(error, host, port, option);
  }
  await new Promise((resolve) => server.close(resolve));
}

function listenError(error: unknown, host: string, port: number, option = '--port'): unknown {
  const { code, syscall } = error as NodeJS.ErrnoException;
  if (code === undefined || syscall === undefined) return error;
  if (code === 'EADDRINUSE') {
    const problem = `is ${port}, at which another program listens on ${host}`;
    return optionError(
      option,
      problem,
      'Stop that one, or give another port; 0 takes any that is free',
      error,
    );
  }
  if (code === 'EACCES') {
    return optionError(option, `is ${port}, which this user may not take`, 'Give one above 1023', error);
  }
  const remedy = 'Give a name or an address of this machine, such as 127.0.0.1';
  return optionError('--host', `is ${host}, at which this machine cannot listen (${code})`, remedy, error);
}

/** Made one by one: with `recursive`, Node tries for ever where a file system makes none, such as /proc. */
function directoryIn(state: string, name: string): string {
  const directory = nodePath.resolve(state, name);
  const missing: string[] = [];
  for (let at = directory; !fs.existsSync(at); at = nodePath.dirname(at)) missing.push(at);
  try {
    for (const each of missing.reverse()) fs.mkdirSync(each, { mode: 0o700 });
    if (!fs.statSync(directory).isDirectory()) throw new Error(`${directory} must be a directory`);
  } catch (cause) {
    const why = cause instanceof Error ? cause.message : String(cause);
    const problem = `--state ${state} cannot hold the KV: ${why}. Name another directory.`;
    throw new TierKVError('TKV_IO', problem, { field: '--state', path: state, cause });
  }
  return directory;
}

async function openHandoffs(
  engine: ServedEngine,
  { handoffs }: ServerOptions,
  log: (line: string) => void,
): Promise<Handoffs | undefined> {
  // options refuse a role for other engines
  if (handoffs === undefined || !(engine instanceof Engine)) return undefined;
  try {
    return await Handoffs.open(engine, handoffs, log);
  } catch (error) {
    await engine.close(false);
    throw asOptionError(error);
  }
}

function secretOf({ state, secretFile }: ServerOptions, log: (line: string) => void): Uint8Array {
  if (secretFile !== undefined) return sharedSecret(secretFile);
  return state === undefined ? randomBytes(32) : secretIn(state, log);
}

/** @throws TKV_CONFIG */
function sharedSecret(path: string): Uint8Array {
  const remedy = `Make one with: head -c ${secretBytes} /dev/urandom > ${path}`;
  let found: Buffer;
  try {
    found = fs.readFileSync(path);
  } catch (error) {
    const why = error instanceof Error ? error.message : String(error);
    throw optionError('--secret-file', `cannot be read (${why})`, remedy, error);
  }
  if (found.length >= 16 && found.length <= secretBytes) return new Uint8Array(found);
  throw optionError('--secret-file', `${path} has ${found.length} bytes, not 16 to ${secretBytes}`, remedy);
}

const secretBytes = 32;

/**
 * The secret under which block keys are made: the same after a restart, and for this user alone. One that was
 * not written to its end is made anew.
 */
function secretIn(state: string, log: (line: string) => void): Uint8Array {
  const path = nodePath.join(directoryIn(state, '.'), 'secret.key');
  try {
    const found = fs.existsSync(path) ? fs.readFileSync(path) : undefined;
    if (found?.length === secretBytes) return new Uint8Array(found);
    if (found !== undefined) {
      log(
        `${path} has ${found.length} bytes, not ${secretBytes}. It is made anew, and what was cached is lost.`,
      );
    }
    const secret = randomBytes(secretBytes);
    fs.writeFileSync(`${path}.new`, secret, { mode: 0o600 });
    fs.renameSync(`${path}.new`, path);
    return secret;
  } catch (cause) {
    const why = cause instanceof Error ? cause.message : String(cause);
    const problem = `--state ${state} cannot hold the secret of the keys: ${why}. Name another directory.`;
    throw new TierKVError('TKV_IO', problem, { field: '--state', path, cause });
  }
}
