/**
 * Who runs in the same rounds, on the same blocks: each stage alone, and for each row tierkv, a lone block of
 * tierkv's, and the peers, which do one thing after the other with plain calls of WebGPU and Node.
 */

import { constants, type FileHandle, open } from 'node:fs/promises';
import type { StagingSlots } from '../../backends/engine/stagedBatch.ts';
import { type StoresByTier, TransferEngine } from '../../backends/engine/transferEngine.ts';
import type { FileStore } from '../../backends/file/fileStore.ts';
import { fileLayout, recordOffset } from '../../backends/file/record.ts';
import type { CopyThreads, HostMove } from '../../backends/host/copyThreads.ts';
import { hostDigest } from '../../backends/host/hostDigest.ts';
import type { MemoryStore } from '../../backends/host/memoryStore.ts';
import { BufferUsage, MapMode } from '../../backends/webgpu/device.ts';
import {
  type Digest,
  linkName,
  Outcome,
  type PoolShape,
  Tier,
  TierKVError,
  type Transfer,
} from '../../runtime/index.ts';
import { issuedJobs } from '../../runtime/tier/driver.ts';
import { collectYoungGarbage, median } from './manager.ts';

interface Bench {
  readonly rig: LinkRig;
  /** The same blocks under an HBM that verifies nothing. */
  readonly unverifiedRig: LinkRig;
  /** Whether arrivals in HBM are verified by readback: see `stagesOf`. */
  readonly readback: boolean;
  readonly device: PlainDevice;
  readonly disk: PlainDisk;
  /** All blocks, one behind the other, in memory as the DDR tier has it. The bench only reads it. */
  readonly host: Uint8Array;
  /** Memory like it, for what stages and peers read. */
  readonly scratch: Uint8Array;
  /** A thread a core; undefined without koffi. */
  readonly threads?: CopyThreads | undefined;
}

/** tierkv; a lone block of its; block after block by plain calls; all in one plain transfer. */
export function nameOf(who: 'tierkv' | 'alone' | 'single' | 'bulk', route: Route): string {
  return `${who} ${linkOf(route)} ${route.verified}`;
}

/** @param of the routes that run @param peers whether plain calls run beside them */
export function contestantsOf(
  bench: Bench,
  of: readonly Route[] = routes,
  peers: boolean = true,
): Contestant[] {
  const { length: units } = bench.rig.slots;
  const unitBytes = bench.host.byteLength / units;
  const all = stagesAlone(bench, unitBytes);
  for (const route of of) {
    const { ways, verified } = route;
    const rig = verified || ways[0][1] !== Tier.HBM ? bench.rig : bench.unverifiedRig;
    const bytes = (units - (units % ways.length)) * unitBytes;
    let next = -1;
    const lone = (): Run => rig.move(ways, ++next % units, (next % units) + 1);
    all.push({ name: nameOf('tierkv', route), bytes, prepare: () => rig.move(ways) });
    if (ways.length > 1) continue;
    all.push({ name: nameOf('alone', route), bytes: unitBytes, prepare: lone });
    if (!peers) continue;
    all.push({ name: nameOf('single', route), bytes, prepare: () => peer(bench, route, unitBytes) });
    if (ways[0].includes(Tier.NVME)) continue;
    all.push({ name: nameOf('bulk', route), bytes, prepare: () => peer(bench, route, bytes) });
  }
  return all;
}

/** Bytes that a thread copies at a time where several copy alone. */
const COPY_BYTES = 2 * 1024 * 1024;

function stagesAlone({ rig, device, disk, host, scratch, threads }: Bench, unitBytes: number): Contestant[] {
  const bytes = host.byteLength;
  const unitsOf = (memory: Uint8Array) => rig.slots.map((_, index) => unitOf(memory, index, unitBytes));
  const landed = (use: (bytes: Uint8Array) => void | Promise<void>) => async (): Promise<Run> => {
    await device.copyOut(bytes);
    return () => device.useOut(bytes, use);
  };
  const copied = (into: Uint8Array, from: Uint8Array, count: number): Promise<void> =>
    threads === undefined ? Promise.resolve(into.set(from)) : copyBy(threads, count, { into, from });
  const all = threads?.count ?? 1;
  const stages: Record<Stage, Contestant['prepare']> = {
    'memcpy in': () => () => device.memcpyIn(host),
    'memcpy in by 2': () => () => copied(device.mappedIn, host, Math.min(2, all)),
    'memcpy in by all': () => () => copied(device.mappedIn, host, all),
    'memcpy out by 2': landed((from) => copied(scratch, from, Math.min(2, all))),
    'memcpy out by all': landed((from) => copied(scratch, from, all)),
    'copy in': () => () => device.copyIn(bytes),
    'copy out': () => () => device.download(bytes, () => {}),
    'memcpy out': landed((from) => scratch.set(from)),
    'digest of staging': landed((from) => void hostDigest(from)),
    digest: () => () => void hostDigest(host),
    read: () => () => disk.moveAll('read', rig.slots, unitsOf(scratch)),
    write: () => () => disk.moveAll('write', rig.slots, unitsOf(host)),
  };
  return Object.entries(stages).map(([name, prepare]) => ({ name, bytes, prepare }));
}

/** Copies by `count` threads at a time, in parts. */
async function copyBy(threads: CopyThreads, count: number, { into, from }: HostMove): Promise<void> {
  let at = 0;
  const lane = async (): Promise<void> => {
    while (at < from.byteLength) {
      const [begin, end] = [at, Math.min(from.byteLength, at + COPY_BYTES)];
      at = end;
      const part = { into: into.subarray(begin, end), from: from.subarray(begin, end) };
      const task = threads.submit([part], COPY_BYTES);
      if (task === undefined) part.into.set(part.from);
      else await task.whole;
    }
  };
  await Promise.all(Array.from({ length: count }, lane));
}

/** All blocks in transfers of `transferBytes`, one after the other, with the checks of the route. */
function peer(bench: Bench, { ways: [[from, to]], verified }: Route, transferBytes: number): Run {
  const { rig, readback, device, disk, host, scratch } = bench;
  return async () => {
    for (let index = 0; index * transferBytes < host.byteLength; index++) {
      const [source, target] = [host, scratch].map((memory) => unitOf(memory, index, transferBytes));
      if (from === Tier.HBM) await device.download(transferBytes, (landed) => target.set(landed));
      if (from === Tier.NVME) await disk.move('read', rig.slots[index], target);
      if (to === Tier.DDR && verified) hostDigest(target);
      const up = from === Tier.NVME ? target : source;
      if (to === Tier.HBM) await device.upload(up, verified && readback);
      if (to === Tier.NVME) await disk.move('write', rig.slots[index], source);
    }
  };
}

function unitOf(bytes: Uint8Array, index: number, unitBytes: number): Uint8Array {
  return bytes.subarray(index * unitBytes, (index + 1) * unitBytes);
}

// Interleaved rounds: in each, everybody who is compared runs, in an order of the round's own. So a machine
// that is slow for a while is slow for all of them, and none always runs behind the same neighbour. Figures
// are medians over the rounds. One more round before them warms up and counts for nothing.

/** The measured call. */
type Run = () => void | Promise<void>;

interface Contestant {
  readonly name: string;
  /** Bytes that one run moves. */
  readonly bytes: number;
  /** Sets up one run; not measured. */
  prepare(): Run | Promise<Run>;
}

/** Samples of a contestant in all rounds but the first. */
interface Sample {
  readonly bytes: number;
  readonly seconds: number;
  /** The distance of the slowest round from the fastest, as a share of the median. */
  readonly spread: number;
}

/** A contestant has run once in a round. */
interface TakenSample {
  readonly name: string;
  /** 10^9 bytes a second. */
  readonly gbps: number;
  readonly seconds: number;
  /** Whether it belongs to the first round, which is not counted. */
  readonly isWarmup: boolean;
}

/** GB/s by contestant, and what it rests on. */
export interface Medians extends ReadonlyMap<string, number> {
  readonly samples?: ReadonlyMap<string, Sample>;
}

export interface Effort {
  readonly rounds: number;
  /** How long a contestant runs in a round at least, without a pause that is not measured. */
  readonly sampleMs: number;
}

interface Round {
  readonly bytes: number;
  readonly elapsedMs: number;
}

/**
 * Lets all run in every round.
 * @param settle ends what the contestant before has left behind
 * @param progress told of each sample that is taken
 */
export async function measureRounds(
  contestants: readonly Contestant[],
  effort: Effort,
  settle: () => Promise<unknown>,
  signal: AbortSignal,
  progress: (taken: TakenSample) => void = () => {},
): Promise<Medians> {
  const rounds = new Map(contestants.map(({ name }): [string, Round[]] => [name, []]));
  for (let round = 0; round <= effort.rounds; round++) {
    for (const one of shuffled(contestants, round)) {
      signal.throwIfAborted();
      await settle();
      collectYoungGarbage(); // no contestant pays for another's garbage
      const taken = await measure(one, round === 0 ? 0 : effort.sampleMs);
      if (round > 0) rounds.get(one.name)!.push(taken);
      progress({
        name: one.name,
        gbps: gbpsOf(taken),
        seconds: taken.elapsedMs / 1000,
        isWarmup: round === 0,
      });
    }
  }
  const all = [...rounds];
  const medians = new Map(all.map(([name, taken]) => [name, median(taken.map(gbpsOf))]));
  const samples = new Map(all.map(([name, taken]) => [name, sampleOf(taken)]));
  return Object.assign(medians, { samples });
}

function gbpsOf({ bytes, elapsedMs }: Round): number {
  return bytes / elapsedMs / 1e6;
}

function sampleOf(rounds: readonly Round[]): Sample {
  const rates = rounds.map(gbpsOf);
  return {
    bytes: rounds.reduce((sum, { bytes }) => sum + bytes, 0),
    seconds: rounds.reduce((sum, { elapsedMs }) => sum + elapsedMs, 0) / 1000,
    spread: (Math.max(...rates) - Math.min(...rates)) / median(rates),
  };
}

async function measure({ bytes, prepare }: Contestant, sampleMs: number): Promise<Round> {
  let [runs, elapsedMs] = [0, 0];
  for (; runs === 0 || elapsedMs < sampleMs; runs++) {
    const run = await prepare();
    const startMs = performance.now();
    await run();
    elapsedMs += performance.now() - startMs;
  }
  return { bytes: runs * bytes, elapsedMs };
}

/** In the order of a hash of each one's number: the same in every process. */
export function shuffled<T>(items: readonly T[], seed: number): T[] {
  const mixed = (word: number): number => Math.imul(word ^ (word >>> 15), 0x9e37_79b1);
  const keyed = items.map((item, i) => ({ item, key: mixed(mixed(seed + 1) ^ mixed(i + 1)) }));
  return keyed.sort((a, b) => a.key - b.key).map(({ item }) => item);
}

// Routes of the link bench, and the limit of each. A link is a pipeline of three parts of the machine:
// device, host and disk. They work at the same time on different blocks, so the slowest part sets the pace. A
// part that does several things to a byte, or serves both ways at once, takes the sum of their times.
//
//     ddrToHbm, verified by readback    device: copy in, copy out     host: memcpy in, digest of staging
//     nvmeToDdr, verified               disk: read                    host: digest

export interface Route {
  /** From which tier to which; two of them for half of the blocks each way at once. */
  readonly ways: readonly (readonly [Tier, Tier])[];
  /** Whether what arrives in HBM, or from a file in host memory, is compared with its digest. */
  readonly verified: boolean;
}

/**
 * `copy` is copyBufferToBuffer, `memcpy` goes to or from a mapped buffer; `in` is towards device memory.
 * `read` and `write` are direct file I/O at the places of the row's own blocks.
 */
export type Stage = HostStage | MemoryStage | 'copy in' | 'copy out' | 'read' | 'write';
/** Work of one thread of the host. */
type HostStage = 'memcpy in' | 'memcpy out' | 'digest' | 'digest of staging';
/** The same copy by two threads, and by as many as the machine has cores. */
type MemoryStage = `memcpy ${'in' | 'out'} by ${'2' | 'all'}`;

const { HBM, DDR, NVME } = Tier;
const [hbmToDdr, ddrToHbm] = [[HBM, DDR] as const, [DDR, HBM] as const];
const [ddrToNvme, nvmeToDdr] = [[DDR, NVME] as const, [NVME, DDR] as const];
const [hbmToNvme, nvmeToHbm] = [[HBM, NVME] as const, [NVME, HBM] as const];

export const routes: readonly Route[] = [
  { ways: [hbmToDdr], verified: false },
  { ways: [ddrToHbm], verified: true },
  { ways: [ddrToHbm], verified: false },
  { ways: [hbmToDdr, ddrToHbm], verified: true },
  { ways: [ddrToNvme], verified: false },
  { ways: [nvmeToDdr], verified: true },
  { ways: [ddrToNvme, nvmeToDdr], verified: true },
  { ways: [hbmToNvme], verified: false },
  { ways: [nvmeToHbm], verified: true },
  { ways: [hbmToNvme, nvmeToHbm], verified: true },
];

/** `ddrToHbm`, or `hbmToDdr+ddrToHbm` for both ways at once. */
export function linkOf({ ways }: Route): string {
  return ways.map(([from, to]) => linkName(from, to)).join('+');
}

/**
 * Work of each part of the machine over all ways: device, host, disk.
 * @param readback whether arrivals in HBM are verified by a copy back and a digest on the host. Where a kernel verifies
 * them the check has no stage: its time counts as tierkv's loss.
 */
export function stagesOf({ ways, verified }: Route, readback: boolean): readonly Stage[][] {
  const [device, host, disk]: Stage[][] = [[], [], []];
  for (const [from, to] of ways) {
    const comesBack = to === HBM && verified && readback;
    if (to === HBM) device.push('copy in');
    if (from === HBM || comesBack) device.push('copy out');
    if (from === HBM) host.push('memcpy out');
    if (to === HBM) host.push('memcpy in');
    if (comesBack) host.push('digest of staging');
    if (from === NVME && to === DDR && verified) host.push('digest');
    if (from === NVME) disk.push('read');
    if (to === NVME) disk.push('write');
  }
  return [device, host, disk];
}

/** A part of the machine: its name, its rate over all ways of a route, and all that it does. */
interface PartRate {
  readonly part: 'bus' | 'thread' | 'memory' | 'disk';
  readonly gbps: number;
  readonly stages: string;
}

/**
 * Rates of the parts that a route has. `bus` is the device alone, `disk` the disk alone, `memory` the copies of the host by
 * all of its threads, `thread` all that the host does by one thread. @param gbpsOf what a stage did alone
 */
export function partsOf(
  route: Route,
  readback: boolean,
  gbpsOf: (stage: Stage) => number,
): readonly PartRate[] {
  const [device, host, disk] = stagesOf(route, readback);
  const copies = host.flatMap((stage): Stage[] => {
    if (stage !== 'memcpy in' && stage !== 'memcpy out') return [];
    // more threads may be slower than fewer where the cores are few
    const ways: Stage[] = [stage, `${stage} by 2`, `${stage} by all`];
    return [ways.reduce((best, other) => (gbpsOf(other) > gbpsOf(best) ? other : best))];
  });
  const rated = (part: PartRate['part'], stages: readonly Stage[]): PartRate[] => {
    if (stages.length === 0) return [];
    const nsPerByte = stages.reduce((sum, stage) => sum + 1 / gbpsOf(stage), 0);
    // both ways: each byte passes the stages of one way only
    return [{ part, gbps: route.ways.length / nsPerByte, stages: [...new Set(stages)].join(' + ') }];
  };
  return [rated('bus', device), rated('thread', host), rated('memory', copies), rated('disk', disk)].flat();
}

/** The slowest of bus, memory and disk, and all that it does: what one thread takes does not limit a machine. */
export function limitOf(route: Route, readback: boolean, gbpsOf: (stage: Stage) => number): [number, string] {
  const limits = partsOf(route, readback, gbpsOf).filter(({ part }) => part !== 'thread');
  const { gbps, stages } = limits.reduce((slowest, other) => (other.gbps < slowest.gbps ? other : slowest));
  return [gbps, stages];
}

// The engine over tiers that all hold the same blocks, in the same slots. A block keeps its bytes for ever
// and only generations grow, so every transfer brings what its digest says.

export class LinkRig {
  readonly slots: readonly number[];
  readonly #ddr: MemoryStore;
  readonly #engine: TransferEngine;
  readonly #digests: readonly Digest[];
  /** Generations by tier and slot. The store of host memory keeps its own. */
  readonly #generations: readonly Uint32Array[];
  #job = 1;

  /** @param ddr where the blocks lie */
  constructor(slots: readonly number[], ddr: MemoryStore, stores: StoresByTier, staging: StagingSlots) {
    this.slots = slots;
    this.#ddr = ddr;
    this.#engine = new TransferEngine({ ...stores, ddr }, staging);
    this.#digests = slots.map((slot) => hostDigest(ddr.view(slot, 0)));
    this.#generations = [Tier.HBM, Tier.DDR, Tier.NVME].map(() => new Uint32Array(Math.max(...slots) + 1));
  }

  /**
   * Moves blocks [first, end) in one batch; both ways: half of them each way. To be run once, before the next
   * is made. @throws TKV_DEVICE when one was not loaded
   */
  move(ways: Route['ways'], first = 0, end: number = this.slots.length): () => Promise<void> {
    const share = Math.floor((end - first) / ways.length);
    const transfers = Array.from({ length: share * ways.length }, (_, i) =>
      this.#transfer(...ways[Math.floor(i / share)], first + i),
    );
    return () =>
      new Promise((resolve, reject) => {
        let [left, failure] = [transfers.length, ''];
        this.#engine.onEnd(({ outcome, reason }) => {
          if (outcome !== Outcome.LOADED) failure = reason;
          if (--left > 0) return;
          if (failure === '') return resolve();
          const remedy = 'Look at the device and the disk, then run it again.';
          reject(new TierKVError('TKV_DEVICE', `a bench transfer failed: ${failure}. ${remedy}`));
        });
        this.#engine.submit(issuedJobs(transfers));
      });
  }

  #transfer(from: Tier, to: Tier, index: number): Transfer {
    const slot = this.slots[index];
    const lies = from === Tier.DDR ? this.#ddr.generationOf(slot) : this.#generations[from][slot];
    const taken = to === Tier.DDR ? this.#ddr.generationOf(slot) : this.#generations[to][slot]++;
    return {
      job: this.#job++ as Transfer['job'],
      kind: 'move',
      source: { tier: from, slot, generation: lies },
      target: { tier: to, slot, generation: taken + 1 },
      sizeClass: 0,
      bytes: this.#ddr.view(slot, 0).byteLength,
      key: new Uint32Array(4),
      digest: this.#digests[index],
      priority: 0,
      deadlineUs: Number.POSITIVE_INFINITY,
    };
  }
}

// Device memory without tierkv: a pool, a mapped buffer for the way in and one for the way out, each as long
// as all that one run moves. Between two calls the buffer for the way in is mapped, and that for the way out
// from `copyOut` to `useOut`.

export class PlainDevice implements Disposable {
  readonly #device: GPUDevice;
  readonly #pool: GPUBuffer;
  readonly #in: GPUBuffer;
  readonly #out: GPUBuffer;
  /** The buffer for the way in, while it is mapped. */
  mappedIn: Uint8Array<ArrayBuffer>;

  constructor(device: GPUDevice, bytes: number) {
    this.#device = device;
    const { COPY_DST, COPY_SRC, MAP_READ, MAP_WRITE, STORAGE } = BufferUsage;
    const buffer = (usage: GPUBufferUsageFlags, mappedAtCreation = false): GPUBuffer =>
      device.createBuffer({ label: 'bench', size: bytes, usage, mappedAtCreation });
    this.#pool = buffer(STORAGE | COPY_SRC | COPY_DST);
    this.#in = buffer(MAP_WRITE | COPY_SRC, true);
    this.#out = buffer(MAP_READ | COPY_DST);
    this.mappedIn = new Uint8Array(this.#in.getMappedRange());
  }

  memcpyIn(source: Uint8Array): void {
    this.mappedIn.set(source);
  }

  async copyIn(bytes: number): Promise<void> {
    this.#in.unmap();
    this.#copy(this.#in, this.#pool, bytes);
    await this.#in.mapAsync(MapMode.WRITE);
    this.mappedIn = new Uint8Array(this.#in.getMappedRange());
  }

  async copyOut(bytes: number): Promise<void> {
    this.#copy(this.#pool, this.#out, bytes);
    await this.#out.mapAsync(MapMode.READ, 0, bytes);
  }

  /** Uses the bytes that `copyOut` has copied. */
  async useOut(bytes: number, use: (landed: Uint8Array<ArrayBuffer>) => void | Promise<void>): Promise<void> {
    await use(new Uint8Array(this.#out.getMappedRange(0, bytes)));
    this.#out.unmap();
  }

  /** One upload alone: memcpy, copy, wait; verified, what arrived is copied back and digested. */
  async upload(source: Uint8Array, verified: boolean): Promise<void> {
    const { byteLength } = source;
    this.memcpyIn(source);
    await Promise.all([
      this.copyIn(byteLength),
      verified && this.download(byteLength, (landed) => void hostDigest(landed)),
    ]);
  }

  /** One readback alone: copy, wait, use. */
  async download(bytes: number, use: (landed: Uint8Array<ArrayBuffer>) => void): Promise<void> {
    await this.copyOut(bytes);
    await this.useOut(bytes, use);
  }

  [Symbol.dispose](): void {
    for (const buffer of [this.#pool, this.#in, this.#out]) buffer.destroy();
  }

  #copy(from: GPUBuffer, to: GPUBuffer, bytes: number): void {
    const encoder = this.#device.createCommandEncoder({ label: 'bench' });
    encoder.copyBufferToBuffer(from, 0, to, 0, bytes);
    this.#device.queue.submit([encoder.finish()]);
  }
}

// The disk without tierkv: direct I/O on the very disk blocks that hold the payloads of a file store, since
// one file is not as fast as the next. What is written there is what lies there, so the store never knows.
// Where the file system refuses direct I/O it goes through the page cache, as the store's does.

type Operation = 'read' | 'write';

export class PlainDisk implements AsyncDisposable {
  readonly #file: Promise<FileHandle>;
  readonly #depth: number;
  readonly #offsetOf: (slot: number) => number;

  constructor(store: FileStore, shape: PoolShape) {
    const { path, mode, queueDepth } = store.describe();
    this.#file = open(String(path), constants.O_RDWR | (mode === 'direct' ? constants.O_DIRECT : 0));
    this.#depth = Number(queueDepth);
    const layout = fileLayout(shape);
    this.#offsetOf = (slot) => recordOffset(layout, slot, 0) + layout.records[0].payloadOffset;
  }

  /** The payloads of the slots, one I/O each, in the order of the file, as many at once as the store has. */
  async moveAll(how: Operation, slots: readonly number[], memory: readonly Uint8Array[]): Promise<void> {
    const order = slots.map((_, i) => i).sort((a, b) => slots[a] - slots[b]);
    const worker = async (): Promise<void> => {
      for (let i = order.shift(); i !== undefined; i = order.shift()) {
        await this.move(how, slots[i], memory[i]);
      }
    };
    await Promise.all(Array.from({ length: this.#depth }, worker));
  }

  /** The payload of one slot in one I/O. @param memory starts at a page */
  async move(operation: Operation, slot: number, memory: Uint8Array): Promise<void> {
    const file = await this.#file;
    const place = [memory, 0, memory.byteLength, this.#offsetOf(slot)] as const;
    const end = operation === 'read' ? await file.read(...place) : await file.write(...place);
    const moved = 'bytesRead' in end ? end.bytesRead : end.bytesWritten;
    if (moved !== memory.byteLength) throw new Error(`a ${operation} of the bench moved ${moved} bytes`);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await (await this.#file).close();
  }
}
