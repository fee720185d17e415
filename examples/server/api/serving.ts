/**
 * A server from start to stop. At the stop it takes no more requests, gives those under way a while to end,
 * and saves the KV, so that the next start goes on with it.
 */

import { randomBytes } from 'node:crypto';
import fs from 'node:fs';
import nodePath from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import type { FastifyInstance } from 'fastify';
import { TierKVError } from '../../../src/index.ts';
import { Engine } from '../engine/index.ts';
import { makeApp } from './app.ts';
import type { ServerOptions } from './options.ts';

/** How long requests under way may take at the stop. */
const graceMs = 10_000;

export class Serving {
  readonly engine: Engine;
  readonly app: FastifyInstance;
  readonly url: string;
  readonly #options: ServerOptions;
  #stopped: Promise<number> | undefined;

  private constructor(engine: Engine, app: FastifyInstance, url: string, options: ServerOptions) {
    this.engine = engine;
    this.app = app;
    this.url = url;
    this.#options = options;
  }

  /** @throws {TierKVError} as `Engine.open`; an error of the operating system when the port is taken */
  static async start(options: ServerOptions, log: (line: string) => void): Promise<Serving> {
    if (options.steps !== undefined) fs.closeSync(fs.openSync(options.steps, 'a')); // better now than at the end
    const { directory, name, state, hbmBytes, ddrBytes, nvmeBytes, maxSequences, contextTokens } = options;
    const nvme = state === undefined ? undefined : { dir: directoryIn(state, 'kv'), bytes: nvmeBytes };
    const engine = await Engine.open({
      directory,
      model: `${name} ${fingerprint(directory)}`,
      cache: {
        secretKey: state === undefined ? randomBytes(32) : secretIn(state),
        hbmBytes,
        ddrBytes,
        notice: log,
        ...(options.log === undefined ? {} : { log: options.log }),
        ...(nvme === undefined ? {} : { nvme: { ...nvme, allocation: 'extents' } }),
      },
      contextTokens,
      maxSequences,
      onError: (error) => log(error instanceof Error ? (error.stack ?? error.message) : String(error)),
    });
    const { apiKeys, maxWaiting, host, port } = options;
    const app = makeApp(engine, { model: name, apiKeys, maxWaiting, log });
    try {
      const url = await app.listen({ host, port });
      return new Serving(engine, app, url, options);
    } catch (error) {
      await app.close();
      await engine.close();
      throw error;
    }
  }

  /** @returns blocks that were saved */
  stop(): Promise<number> {
    this.#stopped ??= this.#stop();
    return this.#stopped;
  }

  async #stop(): Promise<number> {
    const { steps, directory } = this.#options;
    const closing = this.app.close();
    for (let waited = 0; this.engine.size > 0 && waited < graceMs; waited += 20) await sleep(20);
    const saved = await this.engine.close();
    this.app.server.closeAllConnections();
    await closing;
    if (steps !== undefined)
      fs.writeFileSync(steps, this.engine.steps.csv('server', nodePath.join(directory, 'config.json')));
    return saved;
  }
}

/** Blocks of other weights are never found: sizes and times of the files that hold them are in their name. */
function fingerprint(directory: string): string {
  if (!fs.existsSync(directory)) return ''; // opening the engine says what is wrong
  const files = fs.readdirSync(directory).filter((name) => /\.(safetensors|gguf)$|^config\.json$/.test(name));
  return files
    .sort()
    .map((name) => {
      const { size, mtimeMs } = fs.statSync(nodePath.join(directory, name));
      return `${name}:${size}:${Math.floor(mtimeMs)}`;
    })
    .join(' ');
}

/** Made one by one: with `recursive`, Node tries for ever where a file system makes none, such as /proc. */
function directoryIn(state: string, name: string): string {
  const directory = nodePath.resolve(state, name);
  const missing: string[] = [];
  for (let at = directory; !fs.existsSync(at); at = nodePath.dirname(at)) missing.push(at);
  try {
    for (const each of missing.reverse()) fs.mkdirSync(each, { mode: 0o700 });
    if (!fs.statSync(directory).isDirectory()) throw new Error(`${directory} is no directory`);
  } catch (cause) {
    const why = cause instanceof Error ? cause.message : String(cause);
    const problem = `--state ${state} cannot hold the KV: ${why}. Name another directory.`;
    throw new TierKVError('TKV_IO', problem, { field: '--state', path: state, cause });
  }
  return directory;
}

/** The secret under which block keys are made: the same after a restart, and for this user alone. */
function secretIn(state: string): Uint8Array {
  const path = nodePath.join(directoryIn(state, '.'), 'secret.key');
  try {
    fs.writeFileSync(path, randomBytes(32), { flag: 'wx', mode: 0o600 });
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
  }
  return new Uint8Array(fs.readFileSync(path));
}
