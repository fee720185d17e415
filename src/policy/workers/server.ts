/**
 * The Redis server through which machines share cases: how it is reached, who is there, and what lies in it.
 *
 * - `tierkv:result:KEY`: the answer of a case by its content, with that key. Every worker computes the same one, so it is kept.
 * - `tierkv:answer:RUN:KEY`: why a case of one run has no result. It is of the machine, and only that run reads it.
 * - `tierkv:blob:HASH`: how many pieces a file has, which lie beside it; written once all pieces are there.
 * - `tierkv:worker:ID`: a worker that lives, and its version.
 * - the keys of the queue, which are BullMQ's.
 *
 * All but the last expire, so that there is nothing to clean up.
 */

import { createHash, randomUUID } from 'node:crypto';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import type { Redis } from 'ioredis';
import { packageVersion } from '../../packageFiles.ts';
import { configError, namedError, TierKVError } from '../../runtime/errors.ts';
import * as is from '../../runtime/kinds.ts';
import { engineName, programHash } from '../evaluate/caseCache.ts';

/** Lifetime of results, in seconds: a week, in which a search may be repeated or gone on with. */
const RESULT_S = 7 * 86_400;
/** Lifetime of answers for one run, in seconds. */
const ANSWER_S = 86_400;
/** Lifetime of the note that a worker lives, in seconds; it is renewed several times in that time. */
const ALIVE_S = 15;
/** Bytes of one piece of a file: far below the 512 MB that a value may have. */
const PIECE_BYTES = 8 * 2 ** 20;
/** Most pieces of a file, 128 GiB: their number is fetched, and counted to. */
const PIECES_MAX = 2 ** 14;
/** Bytes of the note of a worker, and of a number of pieces. */
const NOTE_BYTES = 4096;
/** Limit of the first connection, in milliseconds. */
const CONNECT_MS = 10_000;

const prefix = 'tierkv';

/** Identity of the program that computes: workers of another one never see a case of this one. */
interface ProgramIdentity {
  readonly version: string;
  /** Hash of the files of tierkv, cut short. */
  readonly program: string;
  /** Engines differ in the last bits of exp and log. */
  readonly engine: string;
}

let identity: ProgramIdentity | undefined;

export function ownIdentity(): ProgramIdentity {
  identity ??= {
    version: packageVersion(),
    program: programHash().slice(0, 12),
    engine: engineName(),
  };
  return identity;
}

/** The identity as people read it. */
export function identityText({ version, program, engine }: ProgramIdentity): string {
  return `tierkv ${version} (program ${program}, ${engine})`;
}

const isSame = (a: ProgramIdentity, b: ProgramIdentity): boolean =>
  a.version === b.version && a.program === b.program && a.engine === b.engine;

/** A worker's note of itself. */
interface LivingWorker extends ProgramIdentity {
  readonly host: string;
  readonly pid: number;
  readonly threads: number;
}

const workerNote = is.fields<LivingWorker>({
  version: is.text(),
  program: is.text(),
  engine: is.text(),
  host: is.text(),
  pid: is.number(),
  threads: is.number(),
});

/** Undefined for a note of another kind. */
function noteOf(text: string): LivingWorker | undefined {
  try {
    return workerNote.read(JSON.parse(text), 'the note');
  } catch {
    return undefined;
  }
}

/** The address without its password. @throws TKV_CONFIG for another kind of address */
function addressOf(url: string, field: string): { readonly url: URL; readonly shown: string } {
  let parsed: URL | undefined;
  try {
    parsed = new URL(url);
  } catch {
    // told below
  }
  if (parsed === undefined || !/^rediss?:$/.test(parsed.protocol) || parsed.hostname === '') {
    const shown = url.replace(/\/\/[^@/]*@/, '//***@');
    throw configError(field, `is "${shown}"`, 'Write redis://host:6379, or redis://:password@host:6379.');
  }
  const base = parsed.pathname.replace(/^\//, '');
  if (base !== '' && !/^\d{1,4}$/.test(base)) {
    throw configError(field, `names the database "${base}"`, 'Write its number, as redis://host:6379/1.');
  }
  return { url: parsed, shown: `${parsed.protocol}//${parsed.host}${base === '' ? '' : `/${base}`}` };
}

/** An optional package. @throws TKV_CONFIG where it is not installed */
async function optional<T>(load: () => Promise<T>, name: string, field: string): Promise<T> {
  try {
    return await load();
  } catch (cause) {
    throw namedError(
      'TKV_CONFIG',
      { field, cause },
      (called) =>
        `${called(field)} with a server needs the package ${name}, which is not installed. Install it: npm install bullmq ioredis`,
    );
  }
}

export function loadQueue(field: string): Promise<typeof import('bullmq')> {
  return optional(() => import('bullmq'), 'bullmq', field);
}

/** Why a first connection failed, in words about the option. */
function connectError(error: Error, isConnected: boolean, shown: string, field: string): TierKVError {
  const text = error.message;
  const say = (problem: string, remedy: string): TierKVError =>
    namedError('TKV_IO', { field, cause: error }, (name) => `${name(field)}: ${shown} ${problem}. ${remedy}`);
  if (/WRONGPASS|NOAUTH|invalid (username-)?password|AUTH/i.test(text)) {
    return say(
      `refused the password (${text})`,
      'Write redis://user:password@host:port with the one that the server has.',
    );
  }
  if (/LOADING/.test(text)) return say('still loads its data', 'Wait until it is up.');
  if (isConnected) {
    return say(`does not answer as Redis does (${text})`, 'Name the host and port of a Redis server.');
  }
  return say(`cannot be reached: ${text}`, 'Start a Redis server there, or name another one.');
}

/** Errors of a server that starts, or has another one to ask first. */
const passing = /^(LOADING|MASTERDOWN|TRYAGAIN|CLUSTERDOWN|BUSY|NOSCRIPT)/;

/** A server that answers, and its keys. */
export class CaseServer {
  /** Commands wait here while the server is gone. */
  readonly redis: Redis;
  /** The address without its password. */
  readonly shown: string;
  readonly queueName: string;
  readonly prefix: string = prefix;
  /** How often it came back; what it knew before may be lost. */
  life = 0;
  #lost = 0;

  private constructor(redis: Redis, shown: string) {
    this.redis = redis;
    this.shown = shown;
    const { program, engine } = ownIdentity();
    this.queueName = `cases-${program}-${engine}`;
  }

  /**
   * @param field option that names the server
   * @param changed told when the server is lost, and when it is there again
   * @throws TKV_CONFIG for another kind of address, or without the packages; TKV_IO where the server cannot be
   * reached, refuses the password, is too old, or is something else than Redis
   */
  static async open(
    address: string,
    field: string,
    changed: (isThere: boolean) => void = () => {},
  ): Promise<CaseServer> {
    const { url, shown } = addressOf(address, field);
    const { Redis } = await optional(() => import('ioredis'), 'ioredis', field);
    const options = {
      host: url.hostname.replace(/^\[|\]$/g, ''),
      port: url.port === '' ? 6379 : Number(url.port),
      db: Number(url.pathname.slice(1) || 0),
      ...(url.username === '' ? {} : { username: decodeURIComponent(url.username) }),
      ...(url.password === '' ? {} : { password: decodeURIComponent(url.password) }),
      ...(url.protocol === 'rediss:' ? { tls: {} } : {}),
      connectTimeout: CONNECT_MS,
      // BullMQ waits without end for its server
      maxRetriesPerRequest: null,
    };
    await probe(new Redis({ ...options, lazyConnect: true, retryStrategy: () => null }), shown, field);
    const redis = new Redis({ ...options, retryStrategy: (times: number) => Math.min(100 * times, 2000) });
    const server = new CaseServer(redis, shown);
    redis.on('error', () => {}); // told by `close`
    redis.on('close', () => {
      if (server.#lost++ === 0) changed(false);
    });
    redis.on('ready', () => {
      if (server.#lost === 0) return;
      server.#lost = 0;
      server.life++;
      changed(true);
    });
    return server;
  }

  /** The error of a server that answers, and refuses; undefined where it may do so in a moment, or is gone. */
  refusal(error: unknown, field: string): TierKVError | undefined {
    if (!(error instanceof Error) || error.name !== 'ReplyError' || passing.test(error.message))
      return undefined;
    const remedy = /^OOM/.test(error.message)
      ? 'Give it more memory (maxmemory), or delete old keys that begin with tierkv.'
      : 'Look at its configuration.';
    // of a script it says where in the script
    const [, said] = /^(.*?)\.?(?: script: .*)?$/s.exec(error.message) as RegExpExecArray;
    return namedError(
      'TKV_IO',
      { field, cause: error },
      (name) => `${name(field)}: ${this.shown} refuses: ${said}. ${remedy}`,
    );
  }

  get isThere(): boolean {
    return this.redis.status === 'ready';
  }

  close(): void {
    this.redis.removeAllListeners('close');
    this.redis.disconnect();
  }

  // Answers.

  resultKey(key: string): string {
    return `${prefix}:result:${key}`;
  }

  answerKey(run: string, key: string): string {
    return `${prefix}:answer:${run}:${key}`;
  }

  /**
   * The values, none fetched further than its limit. A longer one, or one of another type, is not text of ours.
   * @returns undefined where the server has no value, and an empty text for what is not ours
   */
  async textsOf(
    wanted: readonly { readonly name: string; readonly bytes: number }[],
  ): Promise<(string | undefined)[]> {
    const lengths = this.redis.pipeline();
    for (const { name } of wanted) lengths.exists(name).strlen(name);
    const told = (await lengths.exec()) ?? [];
    const texts: (string | undefined)[] = [];
    for (const [i, { name, bytes }] of wanted.entries()) {
      const [failure, isThere] = told[2 * i] ?? [null, 0];
      if (failure !== null) throw failure;
      const [isOther, length] = told[2 * i + 1] ?? [null, 0];
      if (isThere === 0) texts.push(undefined);
      else if (isOther !== null || Number(length) > bytes) texts.push('');
      // it may have grown since
      else texts.push(await this.redis.getrange(name, 0, bytes - 1));
    }
    return texts;
  }

  async keepResult(key: string, text: string): Promise<void> {
    await this.redis.set(this.resultKey(key), text, 'EX', RESULT_S);
  }

  async keepAnswer(run: string, key: string, text: string): Promise<void> {
    await this.redis.set(this.answerKey(run, key), text, 'EX', ANSWER_S);
  }

  // Workers.

  async noteWorker(id: string, threads: number): Promise<void> {
    const note: LivingWorker = { ...ownIdentity(), host: os.hostname(), pid: process.pid, threads };
    await this.redis.set(`${prefix}:worker:${id}`, JSON.stringify(note), 'EX', ALIVE_S);
  }

  async forgetWorker(id: string): Promise<void> {
    await this.redis.del(`${prefix}:worker:${id}`);
  }

  async workers(): Promise<{
    readonly own: readonly LivingWorker[];
    readonly other: readonly LivingWorker[];
  }> {
    const notes: LivingWorker[] = [];
    let cursor = '0';
    do {
      const [next, keys] = await this.redis.scan(cursor, 'MATCH', `${prefix}:worker:*`, 'COUNT', 1000);
      cursor = next;
      for (const text of await this.textsOf(keys.map((name) => ({ name, bytes: NOTE_BYTES })))) {
        const note = text === undefined ? undefined : noteOf(text);
        if (note !== undefined) notes.push(note);
      }
    } while (cursor !== '0');
    const mine = ownIdentity();
    return {
      own: notes.filter((note) => isSame(note, mine)),
      other: notes.filter((note) => !isSame(note, mine)),
    };
  }

  // Files by their content, in pieces.

  /** Puts a file there unless it is there. @param hash its SHA-256 @throws TKV_INPUT where it has other bytes now */
  async putFile(file: string, hash: string): Promise<void> {
    const name = `${prefix}:blob:${hash}`;
    const known = await this.#piecesOf(name);
    if (known !== undefined && (await this.#renewFile(name, known))) return;
    if ((await fs.promises.stat(file)).size > PIECES_MAX * PIECE_BYTES) {
      const problem = `${file} has more than ${(PIECES_MAX * PIECE_BYTES) / 2 ** 30} GiB, too much for a server`;
      throw new TierKVError('TKV_INPUT', `${problem}. Run it on this machine.`, { path: file });
    }
    const handle = await fs.promises.open(file, 'r');
    try {
      let pieces = 0;
      const digest = createHash('sha256');
      const piece = Buffer.allocUnsafe(PIECE_BYTES);
      for (;;) {
        const { bytesRead } = await handle.read(piece, 0, PIECE_BYTES);
        if (bytesRead === 0) break;
        const bytes = Buffer.from(piece.subarray(0, bytesRead));
        digest.update(bytes);
        await this.redis.set(`${name}:${pieces++}`, bytes, 'EX', RESULT_S);
      }
      if (digest.digest('hex') !== hash) {
        throw new TierKVError('TKV_INPUT', `${file} changed while it was used. Run it again.`, {
          path: file,
        });
      }
      await this.redis.set(name, String(pieces), 'EX', RESULT_S);
    } finally {
      await handle.close();
    }
  }

  /** How many pieces a file has; undefined where it is not there, or its number is not ours. */
  async #piecesOf(name: string): Promise<number | undefined> {
    const [text] = await this.textsOf([{ name, bytes: NOTE_BYTES }]);
    return text !== undefined && /^\d{1,9}$/.test(text) && Number(text) <= PIECES_MAX
      ? Number(text)
      : undefined;
  }

  /** Whether all pieces are there still; then for as long again. */
  async #renewFile(name: string, pieces: number): Promise<boolean> {
    const names = [name, ...Array.from({ length: pieces }, (_, i) => `${name}:${i}`)];
    for (const each of names) if ((await this.redis.expire(each, RESULT_S)) === 0) return false;
    return true;
  }

  /** Writes the file to `target`, whole or not at all. @returns false where it is not there, or is not what it was */
  async getFile(hash: string, target: string): Promise<boolean> {
    const name = `${prefix}:blob:${hash}`;
    const pieces = await this.#piecesOf(name);
    if (pieces === undefined) return false;
    const draft = path.join(path.dirname(target), `${hash}-${randomUUID()}`);
    const digest = createHash('sha256');
    const handle = await fs.promises.open(draft, 'wx', 0o600);
    try {
      for (let i = 0; i < pieces; i++) {
        // one byte more than a piece has: a longer one is seen, and not fetched
        const bytes = await this.redis.getrangeBuffer(`${name}:${i}`, 0, PIECE_BYTES);
        const isLast = i === pieces - 1;
        if (isLast ? bytes.length > PIECE_BYTES : bytes.length !== PIECE_BYTES) break;
        digest.update(bytes);
        await handle.write(bytes);
      }
    } finally {
      await handle.close();
    }
    const isWhole = digest.digest('hex') === hash;
    if (isWhole) await fs.promises.rename(draft, target);
    else await fs.promises.rm(draft, { force: true });
    return isWhole;
  }
}

/** Connects once and asks who is there; what fails here would fail for ever. */
async function probe(redis: Redis, shown: string, field: string): Promise<void> {
  let failure: Error | undefined;
  let isConnected = false;
  redis.on('connect', () => {
    isConnected = true;
  });
  redis.on('error', (error: Error) => {
    failure ??= error;
  });
  const late = new Promise<never>((_, reject) => {
    setTimeout(() => reject(new Error(`no answer in ${CONNECT_MS / 1000} s`)), CONNECT_MS).unref();
  });
  try {
    const about = redis.connect().then(() => redis.info('server'));
    about.catch(() => {}); // told by the race, or too late
    const text = await Promise.race([about, late]);
    const version = /^(?:redis|valkey)_version:(\d+)\.(\d+)/m.exec(text);
    if (version === null) {
      throw new Error('it does not say its version');
    }
    if (Number(version[1]) < 6 || (version[1] === '6' && Number(version[2]) < 2)) {
      const problem = `is Redis ${version[1]}.${version[2]}, and the queue needs 6.2`;
      throw namedError(
        'TKV_MISMATCH',
        { field },
        (name) => `${name(field)}: ${shown} ${problem}. Install a newer server.`,
      );
    }
  } catch (error) {
    if (error instanceof TierKVError) throw error;
    throw connectError(failure ?? (error as Error), isConnected, shown, field);
  } finally {
    redis.disconnect();
  }
}
