/**
 * Page-aligned host memory in chunks, as good as the system grants it. First choice is one private mapping, aligned to
 * 2 MiB, advised to huge pages, populated and locked; else WebAssembly.Memory, which V8 aligns to pages, unlocked.
 * `facts` says what came of it; a refusal to lock or to give huge pages is a fact, too little memory an error.
 *
 * After `dispose` nobody reaches the memory: mapped buffers are detached, so that a forgotten view has length 0 and
 * cannot bring the process down. Their pages go back at once; the address range only when no buffer object is left,
 * since a system call in flight may still write to it.
 */

import { readFileSync } from 'node:fs';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { configError } from '../../runtime/errors.ts';
import { Advice, type Libc, loadLibc } from '../posix/index.ts';

export interface ArenaOptions {
  /** Sizes of the chunks; each is one ArrayBuffer of at least that many bytes, starting at a page boundary. */
  readonly chunkBytes: readonly number[];
  /** Populate and lock the pages now. Scratch memory that comes and goes does without. Default true. */
  readonly resident?: boolean;
  /** Whether native calls may be used. Default true. */
  readonly native?: boolean;
  /** The setting that an error names. */
  readonly field: string;
}

export interface ArenaFacts {
  readonly bytes: number;
  readonly source: 'mmap' | 'wasm';
  readonly pageAligned: boolean;
  readonly populated: boolean;
  readonly locked: boolean;
  /** Bytes that lay in huge pages when the arena was opened. */
  readonly hugePageBytes: number;
  /** Why something above was not granted; empty where everything was. */
  readonly notGranted: string;
}

/** The part of the global that neither the ES library nor @types/node declares. */
declare const WebAssembly: {
  readonly Memory: new (descriptor: { readonly initial: number }) => { readonly buffer: ArrayBuffer };
};

const PAGE_BYTES = 4096;
const HUGE_PAGE_BYTES = 2 * 1024 * 1024;
const WASM_PAGE_BYTES = 65536;
const WASM_MEMORY_BYTES_MAX = 4 * 1024 ** 3;
/** Populating blocks the event loop, so it goes in steps. */
const POPULATE_STEP_BYTES = 128 * 1024 * 1024;

export class HostArena implements Disposable {
  readonly facts: ArenaFacts;
  #chunks: readonly ArrayBuffer[];
  readonly #release: (chunks: readonly ArrayBuffer[]) => void;

  private constructor(
    chunks: readonly ArrayBuffer[],
    facts: ArenaFacts,
    release: (chunks: readonly ArrayBuffer[]) => void,
  ) {
    this.#chunks = chunks;
    for (const chunk of chunks) arenaBuffers.add(chunk);
    this.facts = facts;
    this.#release = release;
  }

  /** @throws TKV_CONFIG on `field` when the system has not that much memory. */
  static async open(options: ArenaOptions): Promise<HostArena> {
    const { chunkBytes, field, resident = true } = options;
    const bytes = chunkBytes.reduce((sum, one) => sum + one, 0);
    if (bytes === 0) throw configError(field, 'asks for no memory at all', `Raise ${field}.`);
    const availableBytes = process.availableMemory();
    if (resident && bytes > availableBytes * 0.95) throw tooLittle(field, bytes, availableBytes);
    const libc = options.native === false ? 'native calls are switched off' : await loadLibc();
    if (typeof libc === 'string') return HostArena.#wasm(options, libc);
    return HostArena.#mapped(options, libc, resident);
  }

  /** The memory. Empty after `dispose`. */
  get chunks(): readonly ArrayBuffer[] {
    return this.#chunks;
  }

  [Symbol.dispose](): void {
    const chunks = this.#chunks;
    this.#chunks = [];
    if (chunks.length > 0) this.#release(chunks);
  }

  static async #mapped(options: ArenaOptions, libc: Libc, resident: boolean): Promise<HostArena> {
    const offsets: number[] = [];
    let bytes = 0;
    for (const one of options.chunkBytes) {
      offsets.push(bytes);
      bytes = roundUp(bytes + one, HUGE_PAGE_BYTES);
    }
    const mappedBytes = bytes + HUGE_PAGE_BYTES;
    const mapping = libc.map(mappedBytes);
    if (mapping.error !== '') return HostArena.#wasm(options, `mmap: ${mapping.error}`);
    const huge = BigInt(HUGE_PAGE_BYTES);
    const start = ((mapping.address + huge - 1n) / huge) * huge;

    const problems: string[] = [];
    const note = (call: string, error: string): boolean => {
      if (error !== '') problems.push(`${call}: ${error}`);
      return error === '';
    };
    note('madvise(HUGEPAGE)', libc.advise(start, bytes, Advice.HUGEPAGE));
    libc.advise(start, bytes, Advice.DONTDUMP);
    let populated = resident;
    for (let at = 0; at < bytes && populated; at += POPULATE_STEP_BYTES) {
      const step = Math.min(POPULATE_STEP_BYTES, bytes - at);
      populated = note(
        'madvise(POPULATE_WRITE)',
        libc.advise(start + BigInt(at), step, Advice.POPULATE_WRITE),
      );
      await nextTurn();
    }
    const locked = resident && note('mlock', libc.lock(start, bytes));
    const chunks = options.chunkBytes.map((one, index) => libc.view(start + BigInt(offsets[index]!), one));
    const facts: ArenaFacts = {
      bytes,
      source: 'mmap',
      pageAligned: true,
      populated: populated || locked,
      locked,
      hugePageBytes: resident ? hugePageBytesAt(start, start + BigInt(bytes)) : 0,
      notGranted: problems.join(', '),
    };
    return new HostArena(chunks, facts, (old) => {
      if (locked) libc.unlock(start, bytes);
      unmapLater(old, () => libc.unmap(mapping.address, mappedBytes));
      libc.advise(start, bytes, Advice.DONTNEED);
    });
  }

  static #wasm(options: ArenaOptions, why: string): HostArena {
    let bytes = 0;
    const chunks = options.chunkBytes.map((one) => {
      const rounded = roundUp(one, WASM_PAGE_BYTES);
      bytes += rounded;
      if (rounded > WASM_MEMORY_BYTES_MAX) throw tooLittle(options.field, rounded, WASM_MEMORY_BYTES_MAX);
      try {
        return new WebAssembly.Memory({ initial: rounded / WASM_PAGE_BYTES }).buffer;
      } catch (cause) {
        if (cause instanceof RangeError) throw tooLittle(options.field, bytes, bytes - rounded);
        throw cause;
      }
    });
    if (options.resident ?? true) for (const chunk of chunks) touchPages(chunk);
    const facts: ArenaFacts = {
      bytes,
      source: 'wasm',
      pageAligned: true,
      populated: options.resident ?? true,
      locked: false,
      hugePageBytes: 0,
      notGranted: why,
    };
    return new HostArena(chunks, facts, () => {});
  }
}

/** The buffers handed out here, all of which start at a page. */
const arenaBuffers = new WeakSet<ArrayBufferLike>();

/** Whether the bytes start at a page boundary, as direct I/O wants it. Memory of others is only known through `libc`. */
export function startsAtPage(bytes: Uint8Array, libc: Libc | undefined): boolean {
  if (arenaBuffers.has(bytes.buffer)) return bytes.byteOffset % PAGE_BYTES === 0;
  return libc !== undefined && libc.addressOf(bytes) % BigInt(PAGE_BYTES) === 0n;
}

interface Grave {
  left: number;
  readonly unmap: () => void;
}

const graves = new FinalizationRegistry<Grave>((grave) => {
  grave.left -= 1;
  if (grave.left === 0) grave.unmap();
});

/** Detaches the buffers, and runs `unmap` once the last of them is garbage, with every call that used it. */
function unmapLater(chunks: readonly ArrayBuffer[], unmap: () => void): void {
  const grave: Grave = { left: chunks.length, unmap };
  for (const chunk of chunks) {
    graves.register(chunk, grave);
    chunk.transfer(0);
  }
}

function touchPages(chunk: ArrayBuffer): void {
  const bytes = new Uint8Array(chunk);
  for (let at = 0; at < bytes.length; at += PAGE_BYTES) bytes[at] = 0;
}

/** Bytes of [start, end) that the kernel backs with huge pages, from /proc/self/smaps; 0 where it does not say. */
function hugePageBytesAt(start: bigint, end: bigint): number {
  let kibibytes = 0;
  let inside = false;
  try {
    for (const line of readFileSync('/proc/self/smaps', 'utf8').split('\n')) {
      const range = /^([0-9a-f]+)-([0-9a-f]+) /.exec(line);
      if (range !== null) inside = BigInt(`0x${range[1]}`) < end && BigInt(`0x${range[2]}`) > start;
      else if (inside && line.startsWith('AnonHugePages:')) kibibytes += Number(/\d+/.exec(line)![0]);
    }
  } catch {
    return 0;
  }
  return kibibytes * 1024;
}

function roundUp(bytes: number, unit: number): number {
  return Math.ceil(bytes / unit) * unit;
}

function tooLittle(field: string, wantedBytes: number, availableBytes: number): Error {
  return configError(
    field,
    `needs ${wantedBytes} bytes of host memory, ${availableBytes} are available`,
    `Lower ${field}, or free memory.`,
  );
}
