/**
 * Page-aligned host memory in chunks: in huge pages, populated and locked, as far as the system grants it.
 * `facts` says what was granted; too little memory is an error. Every chunk is a WebAssembly memory, so that
 * it is digested in place. Such a memory takes some GiB of addresses; where a limit (ulimit -v) forbids that,
 * a chunk is ordinary memory, digested through a copy.
 *
 * `dispose` returns the pages to the system at once. The address range is released with the last buffer
 * object, so a forgotten view or a system call under way finds zeros there, never the bytes of another owner.
 */

import { configError } from '../../runtime/errors.ts';
import * as is from '../../runtime/kinds.ts';
import { type Kinds, optionTable } from '../../runtime/options.ts';
import { nextTurn } from '../runningClock.ts';
import { settleCopiesOn } from './copyThreads.ts';
import { memoryOf, wasmBytes } from './hostDigest.ts';
import {
  type AddressRange,
  Advice,
  availableMemoryBytes,
  hugePageBytesIn,
  type Libc,
  loadLibc,
} from './posix.ts';

interface ArenaOptions {
  /** Sizes of the chunks in bytes. Each is a buffer of at least that size that starts at a page boundary. */
  readonly chunkBytes: readonly number[];
  /** Whether to populate and lock the pages now; false for scratch memory. Default true. */
  readonly resident?: boolean;
  /** Whether native calls may be used. Default true. */
  readonly native?: boolean;
  /** Name of the setting, for errors. */
  readonly field: string;
}

const arenaOptionsTable = optionTable(
  {
    chunkBytes: is.passed(),
    resident: is.optional(is.flag(), true),
    native: is.optional(is.flag(), true),
    field: is.passed(),
  } satisfies Kinds<ArenaOptions>,
  'TKV_CONFIG',
);

interface ArenaFacts {
  readonly bytes: number;
  readonly pageAligned: boolean;
  readonly populated: boolean;
  readonly locked: boolean;
  /** Bytes in huge pages when the arena was opened. */
  readonly hugePageBytes: number;
  /** Requests that were not granted, and why; empty if all were. */
  readonly notGranted: string;
}

const PAGE_BYTES = 4096;
/** Bytes populated in one step: populating blocks the event loop. */
const POPULATE_STEP_BYTES = 128 * 1024 * 1024;

export class HostArena implements Disposable {
  readonly facts: ArenaFacts;
  #chunks: readonly ArrayBuffer[];
  readonly #giveBack: () => void;

  private constructor(chunks: readonly ArrayBuffer[], facts: ArenaFacts, giveBack: () => void) {
    this.#chunks = chunks;
    for (const chunk of chunks) arenaBuffers.add(chunk);
    this.facts = facts;
    this.#giveBack = giveBack;
  }

  /** @throws TKV_CONFIG on `field` if the system has too little memory */
  static async open(options: ArenaOptions): Promise<HostArena> {
    arenaOptionsTable.read(options);
    is.array('Pass the bytes of each chunk.').read(options.chunkBytes, 'chunkBytes', 'TKV_CONFIG');
    const { chunkBytes, field, resident = true, native = true } = options;
    const bytes = chunkBytes.reduce((sum, one) => sum + one, 0);
    if (bytes === 0) throw configError(field, 'asks for no memory at all', (name) => `Raise ${name(field)}.`);
    const availableBytes = availableMemoryBytes();
    if (resident && bytes > availableBytes * 0.95) throw tooLittle(field, bytes, availableBytes);
    const libc = native ? await loadLibc() : 'native calls are switched off';
    const chunks = allocate(chunkBytes, field, libc);
    if (typeof libc !== 'string') return HostArena.#granted(chunks, libc, resident);
    if (resident) for (const chunk of chunks) touchPages(chunk);
    const facts: ArenaFacts = {
      bytes: bytesIn(chunks),
      pageAligned: true,
      populated: resident,
      locked: false,
      hugePageBytes: 0,
      notGranted: libc,
    };
    return new HostArena(chunks, facts, () => {});
  }

  /** The memory. Empty after `dispose`. */
  get chunks(): readonly ArrayBuffer[] {
    return this.#chunks;
  }

  [Symbol.dispose](): void {
    if (this.#chunks.length === 0) return;
    // a thread that is stuck keeps the memory, which goes with the process
    const mayGo = settleCopiesOn(new Set(this.#chunks));
    this.#chunks = [];
    if (mayGo) this.#giveBack();
  }

  /** Asks the system for huge pages, populated and locked, and notes what it grants. */
  static async #granted(chunks: readonly ArrayBuffer[], libc: Libc, resident: boolean): Promise<HostArena> {
    const ranges = chunks.map(
      (chunk): AddressRange => ({ address: libc.addressOf(new Uint8Array(chunk)), bytes: chunk.byteLength }),
    );
    const problems = new Set<string>();
    if (chunks.some((chunk) => memoryOf(chunk) === undefined)) problems.add('no memory of WebAssembly');
    const granted = (call: string, error: string): boolean => {
      if (error !== '') problems.add(`${call}: ${error}`);
      return error === '';
    };
    for (const { address, bytes } of ranges) {
      granted('madvise(HUGEPAGE)', libc.advise(address, bytes, Advice.HUGEPAGE));
      libc.advise(address, bytes, Advice.DONTDUMP);
    }
    let populated = resident;
    for (const { address, bytes } of ranges) {
      for (let at = 0; at < bytes && populated; at += POPULATE_STEP_BYTES) {
        const step = Math.min(POPULATE_STEP_BYTES, bytes - at);
        const error = libc.advise(address + BigInt(at), step, Advice.POPULATE_WRITE);
        populated = granted('madvise(POPULATE_WRITE)', error);
        await nextTurn();
      }
    }
    const locked =
      resident && ranges.every(({ address, bytes }) => granted('mlock', libc.lock(address, bytes)));
    const facts: ArenaFacts = {
      bytes: bytesIn(chunks),
      pageAligned: true,
      populated: populated || locked,
      locked,
      hugePageBytes: resident ? hugePageBytesIn(ranges) : 0,
      notGranted: [...problems].join(', '),
    };
    return new HostArena(chunks, facts, () => {
      for (const { address, bytes } of ranges) {
        if (resident) libc.unlock(address, bytes);
        libc.advise(address, bytes, Advice.DONTNEED);
      }
    });
  }
}

/** Buffers of arenas, all of which start at a page. */
const arenaBuffers = new WeakSet<ArrayBufferLike>();

/**
 * Whether the bytes start at a page, as direct I/O needs. For memory of other owners only `libc` can tell.
 */
export function startsAtPage(bytes: Uint8Array, libc: Libc | undefined): boolean {
  if (arenaBuffers.has(bytes.buffer)) return bytes.byteOffset % PAGE_BYTES === 0;
  return libc !== undefined && libc.addressOf(bytes) % BigInt(PAGE_BYTES) === 0n;
}

/** @throws TKV_CONFIG on `field` */
function allocate(chunkBytes: readonly number[], field: string, libc: Libc | string): ArrayBuffer[] {
  let bytes = 0;
  return chunkBytes.map((one) => {
    bytes += one;
    const chunk = wasmBytes(one) ?? (typeof libc === 'string' ? undefined : mappedBytes(libc, one));
    if (chunk === undefined) throw tooLittle(field, bytes, bytes - one);
    return chunk;
  });
}

function bytesIn(chunks: readonly ArrayBuffer[]): number {
  return chunks.reduce((sum, chunk) => sum + chunk.byteLength, 0);
}

function touchPages(chunk: ArrayBuffer): void {
  const bytes = new Uint8Array(chunk);
  for (let at = 0; at < bytes.length; at += PAGE_BYTES) bytes[at] = 0;
}

function tooLittle(field: string, wantedBytes: number, availableBytes: number): Error {
  return configError(
    field,
    `needs ${wantedBytes} bytes of host memory, ${availableBytes} are available`,
    (name) => `Lower ${name(field)}, or free memory.`,
  );
}

// ---- memory from mmap, in huge pages where the system grants them; unmapped when the buffer is collected

const HUGE_PAGE_BYTES: number = 2 * 1024 * 1024;

interface Mapping {
  readonly address: bigint;
  readonly bytes: number;
  readonly unmap: (address: bigint, bytes: number) => string;
}

const mappings = new FinalizationRegistry<Mapping>(({ address, bytes, unmap }) => void unmap(address, bytes));

/** Zeroed memory that starts at the boundary of a huge page; undefined if the system has too little. */
function mappedBytes(libc: Libc, bytes: number): ArrayBuffer | undefined {
  const withRoom = bytes + HUGE_PAGE_BYTES;
  const { address, error } = libc.map(withRoom);
  if (error !== '') return undefined;
  const huge = BigInt(HUGE_PAGE_BYTES);
  const start = ((address + huge - 1n) / huge) * huge;
  libc.advise(start, bytes, Advice.HUGEPAGE); // a refusal leaves ordinary pages
  const buffer = libc.view(start, bytes);
  mappings.register(buffer, { address, bytes: withRoom, unmap: libc.unmap });
  return buffer;
}

// ---- memory for tables

/**
 * A function that allocates zeroed memory of at least the given bytes, for tables that are read at random,
 * such as the manager's index. Large tables are in huge pages where the system grants them, since most of the
 * time of a random read goes into finding the page.
 */
export async function tableMemory(): Promise<(bytes: number) => ArrayBuffer> {
  const libc = await loadLibc();
  if (typeof libc === 'string') return (bytes) => new ArrayBuffer(bytes);
  return (bytes) => {
    const mapped = bytes < HUGE_PAGE_BYTES ? undefined : mappedBytes(libc, bytes);
    return mapped ?? new ArrayBuffer(bytes);
  };
}
