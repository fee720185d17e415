/**
 * Ends this very process with SIGKILL at the n-th change that it makes to its store's files: before it, after
 * it, or when part of it is done. Every change passes here: writes, fdatasync, allocation, and changes of
 * names.
 *
 * `power` goes further than a kill can: what no finished sync covers is taken back in part, block by block
 * and in no order, as a disk's cache loses it when its power goes.
 */

import { existsSync, fstatSync, openSync, readSync, renameSync, writeSync } from 'node:fs';
import { join } from 'node:path';
import type { DataFile, DirectoryOps } from '../../src/backends/file/dataFile.ts';
import type { NodeDataFile } from '../../src/backends/file/posixFolder.ts';
import type { SeededRandom } from '../../src/testing/index.ts';

/** `head`, `tail`, `some`: only the first half of the bytes, only the second, or blocks here and there. */
export const moments = ['before', 'after', 'head', 'tail', 'some', 'power'] as const;
export type Moment = (typeof moments)[number];

export interface KillPlan {
  /** Number of the change, from 1; 0 for none. */
  readonly at: number;
  readonly moment: Moment;
}

interface Undo {
  /** A descriptor of our own: those of the store come and go. */
  readonly fd: number;
  readonly inode: number;
  readonly position: number;
  readonly before: Uint8Array;
  synced: boolean;
}

const BLOCK = 4096;
const SECTOR = 512;

export class KillSeam {
  changes = 0;
  readonly #dir: string;
  readonly #plan: KillPlan;
  readonly #random: SeededRandom;
  /** Told which change it is, right before the end. */
  readonly #last: (change: string) => void;
  readonly #undo: Undo[] = [];
  #renames: { from: string; to: string }[] = [];
  #underWay = 0;
  #dying = false;

  constructor(dir: string, plan: KillPlan, random: SeededRandom, last: (change: string) => void) {
    this.#dir = dir;
    this.#plan = plan;
    this.#random = random;
    this.#last = last;
  }

  wrapFile(file: DataFile, name: string): DataFile {
    const fd = openSync(`/proc/self/fd/${(file as NodeDataFile).fd}`, 'r+');
    const inode = fstatSync(fd).ino;
    return {
      readv: (parts, at) => file.readv(parts, at),
      writev: (parts, at) =>
        this.#change(
          `writev ${name}`,
          () => this.#write(file, fd, inode, parts, at),
          () => this.#writePartly(fd, parts, at),
        ),
      allocate: (at, bytes) =>
        this.#change(
          `allocate ${name}`,
          () => file.allocate(at, bytes),
          () => file.allocate(at, Math.ceil(bytes / 2)),
        ),
      sync: () => this.#change(`sync ${name}`, () => this.#sync(file, inode)),
      close: () => file.close(),
    };
  }

  wrapDirectory(ops: DirectoryOps): DirectoryOps {
    return {
      rename: (from, to) =>
        this.#change(`rename ${to}`, async () => {
          const isNew = !existsSync(join(this.#dir, to));
          await ops.rename(from, to);
          if (isNew) this.#renames.push({ from, to });
        }),
      remove: (name) => this.#change(`remove ${name}`, () => ops.remove(name)),
      sync: () =>
        this.#change('sync directory', async () => {
          await ops.sync();
          this.#renames = [];
        }),
    };
  }

  /** @param partly what the moments within a change do; a change that has no parts is done whole */
  async #change(what: string, act: () => Promise<void>, partly?: () => Promise<void>): Promise<void> {
    if (this.#dying) await new Promise(() => {}); // nothing begins any more
    const { at } = this.#plan;
    const within = !['before', 'after', 'power'].includes(this.#plan.moment);
    const moment = within && partly === undefined ? 'after' : this.#plan.moment;
    if (++this.changes !== at) {
      this.#underWay++;
      await act().finally(() => this.#underWay--);
      return;
    }
    if (moment === 'power') this.#dying = true;
    this.#last(`${moment} ${what}`);
    if (moment === 'after') await act();
    else if (moment === 'power') await this.#losePower();
    else if (moment !== 'before') await partly?.();
    process.kill(process.pid, 'SIGKILL');
    await new Promise(() => {});
  }

  async #write(
    file: DataFile,
    fd: number,
    inode: number,
    parts: readonly Uint8Array[],
    position: number,
  ): Promise<void> {
    if (this.#plan.moment !== 'power') return file.writev(parts, position);
    const before = new Uint8Array(parts.reduce((sum, part) => sum + part.byteLength, 0));
    readSync(fd, before, 0, before.byteLength, position);
    await file.writev(parts, position);
    this.#undo.push({ fd, inode, position, before, synced: false });
  }

  async #sync(file: DataFile, inode: number): Promise<void> {
    const covered = this.#undo.filter((one) => one.inode === inode);
    await file.sync();
    for (const one of covered) one.synced = true;
  }

  /** The part of a write that the moment lets through: by blocks, or by sectors of a single block. */
  async #writePartly(fd: number, parts: readonly Uint8Array[], position: number): Promise<void> {
    const bytes = Buffer.concat(parts);
    const unit = bytes.byteLength > BLOCK ? BLOCK : SECTOR;
    const half = Math.max(1, Math.floor(bytes.byteLength / unit / 2)) * unit;
    for (let at = 0; at < bytes.byteLength; at += unit) {
      const { moment } = this.#plan;
      const passes = moment === 'some' ? this.#random.chance(0.5) : at < half === (moment === 'head');
      if (passes) writeSync(fd, bytes, at, Math.min(unit, bytes.byteLength - at), position + at);
    }
  }

  async #losePower(): Promise<void> {
    while (this.#underWay > 0) await new Promise((resolve) => setTimeout(resolve, 1));
    for (const { fd, position, before, synced } of this.#undo.reverse()) {
      if (synced) continue;
      for (let at = 0; at < before.byteLength; at += BLOCK) {
        if (this.#random.chance(0.5)) writeSync(fd, before.subarray(at, at + BLOCK), 0, null, position + at);
      }
    }
    for (const { from, to } of this.#renames.reverse()) {
      if (this.#random.chance(0.5)) renameSync(join(this.#dir, to), join(this.#dir, from));
    }
  }
}
