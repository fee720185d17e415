/**
 * The tier that instances share, as the runtime has it on a Valkey or Redis (`src/backends/remote`): a server with a
 * capacity, which forgets what was used longest ago, and a link into it and one out of it, on which the transfers of
 * all instances follow each other. There are no bytes.
 *
 * - A block is there from the end of its write on, for every instance of the same space: pools whose blocks
 *   have the same bytes and the same model.
 * - A block is written once: who comes later is told so by a lookup's time.
 * - What is read when it was forgotten is missing, after a lookup's time.
 */

import { configError } from '../../runtime/errors.ts';
import * as is from '../../runtime/kinds.ts';
import { type Kinds, optionTable } from '../../runtime/options.ts';
import type { StateVisitor } from '../../runtime/snapshot.ts';

export interface SharedServerConfig {
  /** Bytes of blocks that the server holds. */
  readonly capacityBytes: number;
  /** Microseconds of an answer without a block: what is missing, or is there already. */
  readonly lookupUs: number;
  /** Microseconds that a transfer takes beside its bytes, in which the server's link carries other transfers. */
  readonly delayUs: number;
  /** The server's links, which all instances share. */
  readonly readBytesPerS: number;
  readonly writeBytesPerS: number;
  /** The link of each instance, in each direction. Default: as the server's. */
  readonly instanceBytesPerS?: number;
}

const serverTable = optionTable(
  {
    capacityBytes: is.integer(1),
    lookupUs: is.finite(),
    delayUs: is.finite(),
    readBytesPerS: is.positive(),
    writeBytesPerS: is.positive(),
    instanceBytesPerS: is.optional(is.positive()),
  } satisfies Kinds<SharedServerConfig>,
  'TKV_CONFIG',
);

/** @throws TKV_CONFIG with the field at fault */
export function checkSharedServer(config: SharedServerConfig, blockBytes: number): SharedServerConfig {
  serverTable.read(config, 'shared');
  if (config.capacityBytes < blockBytes) {
    const problem = `is ${config.capacityBytes}, less than a block of ${blockBytes} bytes`;
    throw configError('shared.capacityBytes', problem, 'Give it room for a block or more.');
  }
  return config;
}

/** A link of an instance to the server: each transfer waits its turn, and takes the delay beside its bytes. */
interface ServerLink {
  readonly baseLatencyUs: 0;
  readonly bandwidthBytesPerS: number;
  readonly delayUs: number;
}

/**
 * Links of an instance to the server, by direction, for the bytes of one GPU. The server's own links come on top.
 * @param ranks GPUs of the instance, which share its link
 */
export function instanceLinks(
  { readBytesPerS, writeBytesPerS, instanceBytesPerS, delayUs }: SharedServerConfig,
  ranks: number,
): Readonly<Record<'read' | 'write', ServerLink>> {
  const profile = (bandwidthBytesPerS: number): ServerLink => {
    return {
      baseLatencyUs: 0,
      bandwidthBytesPerS: (instanceBytesPerS ?? bandwidthBytesPerS) / ranks,
      delayUs,
    };
  };
  return { read: profile(readBytesPerS), write: profile(writeBytesPerS) };
}

/** The server's counts over all instances. */
interface SharedServerCounts {
  lookups: number;
  /** Blocks that lookups found. */
  found: number;
  /** Blocks read and written, and their bytes. */
  reads: number;
  writes: number;
  readBytes: number;
  writtenBytes: number;
  /** Blocks that were forgotten for others. */
  evictions: number;
  /** Reads of what was forgotten, and writes of what was there. */
  missing: number;
  writtenByOthers: number;
}

/** Reads of forgotten blocks, by reads of blocks, above which the capacity is worth a warning. */
const MISSING_SHARE = 0.1;

export class SharedServer {
  readonly config: SharedServerConfig;
  readonly counts: SharedServerCounts = {
    lookups: 0,
    found: 0,
    reads: 0,
    writes: 0,
    readBytes: 0,
    writtenBytes: 0,
    evictions: 0,
    missing: 0,
    writtenByOthers: 0,
  };
  /** Bytes by name, in order of use: the first goes first. */
  readonly #blocks: Map<string, number> = new Map();
  readonly #links = { bytes: 0, readFreeAtUs: 0, writeFreeAtUs: 0 };

  constructor(config: SharedServerConfig) {
    this.config = config;
  }

  get residentBytes(): number {
    return this.#links.bytes;
  }

  /** Leading blocks [from, to) of a chain that are here: one lookup. */
  find(space: string, keys: Uint32Array, from: number, to: number): number {
    this.counts.lookups++;
    let found = 0;
    while (from + found < to && this.#use(nameOf(space, keys, 4 * (from + found)))) found++;
    this.counts.found += found;
    return found;
  }

  /** @returns when the server has sent the block, or undefined where it was forgotten */
  readEndUs(space: string, keys: Uint32Array, at: number, bytes: number, nowUs: number): number | undefined {
    if (!this.#use(nameOf(space, keys, at))) {
      this.counts.missing++;
      return undefined;
    }
    this.counts.reads++;
    this.counts.readBytes += bytes;
    const end = endUs(this.#links.readFreeAtUs, nowUs, bytes, this.config.readBytesPerS);
    this.#links.readFreeAtUs = end;
    return end + Math.ceil(this.config.delayUs);
  }

  /** @returns when the server has taken the block, or undefined where it is here already */
  writeEndUs(space: string, keys: Uint32Array, at: number, bytes: number, nowUs: number): number | undefined {
    if (this.#use(nameOf(space, keys, at))) {
      this.counts.writtenByOthers++;
      return undefined;
    }
    const end = endUs(this.#links.writeFreeAtUs, nowUs, bytes, this.config.writeBytesPerS);
    this.#links.writeFreeAtUs = end;
    return end + Math.ceil(this.config.delayUs);
  }

  /** The write of a block has ended. */
  store(space: string, keys: Uint32Array, at: number, bytes: number): void {
    const name = nameOf(space, keys, at);
    if (this.#use(name) || bytes > this.config.capacityBytes) return;
    this.counts.writes++;
    this.counts.writtenBytes += bytes;
    this.#blocks.set(name, bytes);
    this.#links.bytes += bytes;
    for (const [oldest, size] of this.#blocks) {
      if (this.#links.bytes <= this.config.capacityBytes) break;
      this.#blocks.delete(oldest);
      this.#links.bytes -= size;
      this.counts.evictions++;
    }
  }

  /** Warnings about a run that has ended, for a person who sized the server. */
  warnings(): string[] {
    const { writes, reads, missing, evictions } = this.counts;
    if (writes > 0 && reads === 0) {
      return [
        `the shared tier took ${writes} blocks, and none was read: no instance missed what another had computed ` +
          'before. Look at the routing policy, and whether prompts share prefixes.',
      ];
    }
    if (missing > reads * MISSING_SHARE) {
      return [
        `the shared tier had forgotten ${missing} blocks that were asked for, beside ${reads} that were read ` +
          `(${evictions} were forgotten in all). Raise capacity_bytes.`,
      ];
    }
    return [];
  }

  /** Microseconds until the link out of the server is free. */
  readQueueUs(nowUs: number): number {
    return Math.max(0, this.#links.readFreeAtUs - nowUs);
  }

  visitState(visitor: StateVisitor): void {
    visitor.fields(this.counts);
    visitor.fields(this.#links);
    visitor.value(
      () => [...this.#blocks],
      (saved) => {
        this.#blocks.clear();
        for (const [name, bytes] of saved) this.#blocks.set(name, bytes);
      },
    );
  }

  /** Whether it is here; it is then the last to go. */
  #use(name: string): boolean {
    const bytes = this.#blocks.get(name);
    if (bytes === undefined) return false;
    this.#blocks.delete(name);
    this.#blocks.set(name, bytes);
    return true;
  }
}

function endUs(freeAtUs: number, nowUs: number, bytes: number, bytesPerS: number): number {
  return Math.max(nowUs, freeAtUs) + Math.ceil((bytes * 1e6) / bytesPerS);
}

/** The key as text, two characters a word: short, and quick to make. */
function nameOf(space: string, keys: Uint32Array, at: number): string {
  let name = space;
  for (let i = at; i < at + 4; i++) name += String.fromCharCode(keys[i] & 0xffff, keys[i] >>> 16);
  return name;
}
