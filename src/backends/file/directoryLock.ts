/**
 * Makes one process the owner of a tier's directory. An owner has both:
 *
 * - The kernel's lock on the directory, if native calls are available. Removing a file does not break the
 *   lock, and it ends with its process.
 * - A claim: a file whose name identifies the process, for people and for processes without native calls. A
 *   process creates its claim first and then looks for living claims of others, so of two processes that come
 *   at once at most one goes on. A claim of a dead process is ignored and removed, so a crash does not lock
 *   the directory.
 *
 *     tierkv.lock.<pid>-<start time>-<boot>-<host and pid namespace>
 *
 * The claim of a thread of this process stands as long as its lock does, which ends with the thread.
 * If the claim's process is on this host and in this pid namespace, /proc says whether it lives. Else the
 * kernel's lock on the claim says so. Without such locks the process is assumed to live.
 */

import { createHash } from 'node:crypto';
import * as fs from 'node:fs';
import { hostname } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { namedError, type TierKVError } from '../../runtime/errors.ts';
import type { Libc } from '../host/posix.ts';
import { errnoOf } from './dataFile.ts';

const PREFIX = 'tierkv.lock.';
const ATTEMPTS = 4;

interface Identity {
  readonly pid: number;
  /** Clock ticks from boot to the start of the process, '0' if the system does not say. */
  readonly start: string;
  readonly boot: string;
  /** Hash of host name and pid namespace, within which process ids are unique. */
  readonly host: string;
}

export class DirectoryLock {
  readonly #path: string;
  readonly #fd: number;
  /** Descriptor that holds the directory's own lock; undefined if the system has no such locks. */
  readonly #dirFd: number | undefined;

  private constructor(path: string, fd: number, dirFd: number | undefined) {
    this.#path = path;
    this.#fd = fd;
    this.#dirFd = dirFd;
  }

  /**
   * @throws TKV_LOCKED if a living process owns it; an error with errno if the directory cannot be written
   */
  static async acquire(dir: string, libc: Libc | undefined): Promise<DirectoryLock> {
    const path = join(dir, PREFIX + nameOf(ownIdentity()));
    for (let attempt = 1; ; attempt++) {
      const dirFd = lockDirectory(dir, libc, 'exclusive');
      let lock: DirectoryLock;
      try {
        const owner = livingClaim(dir, path, libc);
        if (owner !== undefined) throw locked(dir, owner);
        lock = DirectoryLock.#claim(dir, path, dirFd, libc);
      } catch (error) {
        if (dirFd !== undefined) fs.closeSync(dirFd);
        throw error;
      }
      const rival = livingClaim(dir, path, libc);
      if (rival === undefined && lock.#isIntact(libc)) return lock;
      lock.release();
      if (attempt === ATTEMPTS) throw locked(dir, rival ?? path);
      await delay(crypto.getRandomValues(new Uint8Array(1))[0]);
    }
  }

  static #claim(dir: string, path: string, dirFd: number | undefined, libc: Libc | undefined): DirectoryLock {
    let fd: number;
    try {
      fd = fs.openSync(path, 'wx', 0o600);
    } catch (error) {
      if (errnoOf(error) !== 'EEXIST') throw error;
      // A thread of this process claimed it: a thread that was ended leaves its claim, and holds no lock any more.
      if (isLocked(path, libc)) throw locked(dir, path);
      fs.rmSync(path, { force: true });
      fd = fs.openSync(path, 'wx', 0o600);
    }
    return new DirectoryLock(path, fd, dirFd);
  }

  /**
   * Locks the claim, and checks that no other process removed it as dead before it was locked. On a file
   * system without locks only the name is checked.
   */
  #isIntact(libc: Libc | undefined): boolean {
    return libc?.tryFlock(this.#fd) !== 'EAGAIN' && this.#isNamed();
  }

  #isNamed(): boolean {
    const named = fs.statSync(this.#path, { throwIfNoEntry: false });
    return named !== undefined && named.ino === fs.fstatSync(this.#fd).ino;
  }

  /** Gives up the directory. Does not fail if the directory has vanished. */
  release(): void {
    if (this.#isNamed()) fs.rmSync(this.#path, { force: true });
    fs.closeSync(this.#fd);
    if (this.#dirFd !== undefined) fs.closeSync(this.#dirFd);
  }
}

/**
 * Locks the directory's inode.
 * @returns the descriptor that holds the lock; undefined without native calls, or if the file system cannot
 * lock directories
 * @throws TKV_LOCKED if another open file description holds the lock
 */
function lockDirectory(
  dir: string,
  libc: Libc | undefined,
  mode: 'exclusive' | 'shared',
  remedy?: string,
): number | undefined {
  if (libc === undefined) return undefined;
  const fd = fs.openSync(dir, fs.constants.O_RDONLY | fs.constants.O_DIRECTORY);
  const error = libc.tryFlock(fd, mode);
  if (error === '') return fd;
  fs.closeSync(fd);
  if (error === 'EAGAIN') throw locked(dir, livingClaim(dir, '', libc, false), remedy);
  return undefined;
}

/**
 * Unlike `acquire` it changes nothing.
 * @param remedy what the caller can do where a process owns it
 * @throws TKV_LOCKED if a living process owns the directory
 */
export function requireUnowned(dir: string, libc: Libc | undefined, remedy: string): void {
  const fd = lockDirectory(dir, libc, 'shared', remedy);
  if (fd !== undefined) fs.closeSync(fd);
  const owner = livingClaim(dir, '', libc, false);
  if (owner !== undefined) throw locked(dir, owner, remedy);
}

/** The claim of a living process other than `own`, if there is one. Removes claims of dead processes. */
function livingClaim(
  dir: string,
  own: string,
  libc: Libc | undefined,
  remove: boolean = true,
): string | undefined {
  for (const name of fs.readdirSync(dir)) {
    const path = join(dir, name);
    if (!name.startsWith(PREFIX) || path === own) continue;
    const identity = identityIn(name);
    if (identity === undefined || !isDead(path, identity, libc, remove)) return path;
  }
  return undefined;
}

/** @param remove whether to remove the claim of a dead process, before another process can lock it */
function isDead(path: string, claim: Identity, libc: Libc | undefined, remove: boolean): boolean {
  const own = ownIdentity();
  if (claim.host === own.host) {
    const isOwn = claim.boot === own.boot && claim.pid === own.pid && claim.start === own.start;
    if (claim.boot === own.boot && isAlive(claim) && (!isOwn || isLocked(path, libc))) return false;
    if (remove) fs.rmSync(path, { force: true });
    return true;
  }
  const dead = !isLocked(path, libc);
  if (dead && remove) fs.rmSync(path, { force: true });
  return dead;
}

/** Whether a process or a thread holds the lock on the claim. Without such locks it counts as held. */
function isLocked(path: string, libc: Libc | undefined): boolean {
  if (libc === undefined) return true;
  let fd: number;
  try {
    fd = fs.openSync(path, 'r+');
  } catch (error) {
    return errnoOf(error) !== 'ENOENT';
  }
  try {
    return libc.tryFlock(fd) !== '';
  } finally {
    fs.closeSync(fd);
  }
}

function isAlive(claim: Identity): boolean {
  try {
    process.kill(claim.pid, 0);
  } catch (error) {
    if (errnoOf(error) === 'ESRCH') return false;
  }
  const now = processFacts(claim.pid);
  if (now === undefined) return true;
  return now.state !== 'Z' && now.state !== 'X' && now.start === claim.start;
}

let own: Identity | undefined;

function ownIdentity(): Identity {
  own ??= {
    pid: process.pid,
    start: processFacts(process.pid)?.start ?? '0',
    boot: shortHash(textOf(() => fs.readFileSync('/proc/sys/kernel/random/boot_id', 'utf8'))),
    host: shortHash(`${hostname()} ${textOf(() => fs.readlinkSync('/proc/self/ns/pid'))}`),
  };
  return own;
}

/** State and start time of a process from /proc; undefined if it is not there. */
function processFacts(pid: number): { state: string; start: string } | undefined {
  const stat = textOf(() => fs.readFileSync(`/proc/${pid}/stat`, 'utf8'));
  // Field 2, the command in parentheses, may contain any character. Field 3, the state, follows the last ')'.
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
  return fields.length < 20 ? undefined : { state: fields[0], start: fields[19] };
}

function textOf(read: () => string): string {
  try {
    return read();
  } catch {
    return '';
  }
}

function shortHash(text: string): string {
  return createHash('sha256').update(text).digest('hex').slice(0, 12);
}

function nameOf({ pid, start, boot, host }: Identity): string {
  return [pid, start, boot, host].join('-');
}

function identityIn(name: string): Identity | undefined {
  const found = /^(\d+)-(\d+)-([0-9a-f]+)-([0-9a-f]+)$/.exec(name.slice(PREFIX.length));
  return found === null
    ? undefined
    : { pid: Number(found[1]), start: found[2], boot: found[3], host: found[4] };
}

/** @param claim the owner's claim; undefined if only the kernel's lock shows the owner */
function locked(
  dir: string,
  claim: string | undefined,
  remedy: string = 'Use another directory, or end that process',
): TierKVError {
  const pid = claim === undefined ? undefined : identityIn(claim.slice(claim.lastIndexOf(PREFIX)))?.pid;
  if (pid === process.pid) {
    return namedError('TKV_LOCKED', { field: 'dir', path: dir }, (name) => {
      const close = 'Close the runtime that has it, or use another directory';
      return `${name('dir')} ${dir} belongs to this process. ${close}.`;
    });
  }
  const owner = pid === undefined ? 'another process' : `process ${pid}`;
  const unless = claim === undefined ? '' : `; if it no longer runs, remove ${claim}`;
  return namedError(
    'TKV_LOCKED',
    { field: 'dir', path: dir },
    (name) => `${name('dir')} ${dir} belongs to ${owner}. ${remedy}${unless}.`,
  );
}
