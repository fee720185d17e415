/**
 * The link bench: for each unit size and pattern it opens the tiers, lets all contestants run in the same
 * interleaved rounds, and makes one row of each link. For `tierkv bench links` and `tierkv calibrate`.
 */

import { StagingSlots } from '../../backends/engine/stagedBatch.ts';
import { FileStore } from '../../backends/file/fileStore.ts';
import {
  type CopyThreads,
  copyThreadsMost,
  holdCopyThreads,
  letCopyThreadsGo,
} from '../../backends/host/copyThreads.ts';
import { HostArena } from '../../backends/host/hostArena.ts';
import { MemoryStore } from '../../backends/host/memoryStore.ts';
import { openDevice } from '../../backends/webgpu/adapter.ts';
import type { LiveDevice } from '../../backends/webgpu/device.ts';
import { HbmStore } from '../../backends/webgpu/hbmStore.ts';
import type { AdapterReport } from '../../backends/webgpu/types.ts';
import { temporaryDirectory } from '../../io/files/temporaryDirectory.ts';
import type { VegaLiteSpec } from '../../io/printing/chart.ts';
import { formatBytes, renderTable } from '../../io/printing/text.ts';
import { poolShape, Tier } from '../../runtime/index.ts';
import { fillPattern } from '../../runtime/pattern.ts';
import {
  contestantsOf,
  type Effort,
  LinkRig,
  limitOf,
  linkOf,
  type Medians,
  measureRounds,
  nameOf,
  PlainDevice,
  PlainDisk,
  partsOf,
  type Route,
  routes,
  type Stage,
  shuffled,
  stagesOf,
} from './contestants.ts';

/** How much is measured. */
interface LinkBenchSizes extends Effort {
  readonly unitsOfKib: readonly number[];
  readonly patterns: readonly RowFacts['pattern'][];
  /** One run moves this many bytes, but no more than `unitsMax` blocks and no fewer than four. */
  readonly runBytes: number;
  readonly unitsMax: number;
  /** Whether plain calls are measured beside tierkv. Default: they are. */
  readonly peers?: boolean;
  /** Only links of the disk, one way each. */
  readonly diskOnly?: boolean;
  /** Only these links, as `linkOf` names them, each with its usual checks. */
  readonly links?: readonly string[];
  /** Bytes each way while which the delay of a timer is taken. Default: none. */
  readonly timedBytes?: number;
}

const MIB = 1024 * 1024;
const patterns = ['contiguous', 'scattered'] as const;
const full = { patterns, runBytes: 256 * MIB, unitsMax: 4096, rounds: 9, sampleMs: 50 };
const quick = { patterns, runBytes: 16 * MIB, unitsMax: 64, rounds: 3, sampleMs: 5 };
const timedBytes = 1024 * MIB;
export const fullSizes: LinkBenchSizes = {
  ...full,
  unitsOfKib: [16, 64, 256, 2048, 8192, 65_536],
  timedBytes,
};
export const quickSizes: LinkBenchSizes = { ...quick, unitsOfKib: [64, 256, 2048], timedBytes };

/** Four links at one size, in half a minute: a machine's own bandwidth. */
export const ownSizes: LinkBenchSizes = {
  ...{
    patterns: ['contiguous'],
    runBytes: 64 * MIB,
    unitsMax: 32,
    rounds: 5,
    sampleMs: 20,
    unitsOfKib: [2048],
  },
  ...{ peers: false, links: ['hbmToDdr', 'ddrToHbm', 'ddrToNvme', 'nvmeToDdr'] },
};

/**
 * Links under load: each sample lasts seconds, so that what a drive or a hypervisor takes up in a burst is a
 * small part of it. It is what fio measures with the job of `fioJob`.
 */
export const sustainedSizes: LinkBenchSizes = {
  ...{ patterns: ['scattered'], runBytes: 256 * MIB, unitsMax: 4096, rounds: 3, sampleMs: 5000 },
  ...{ unitsOfKib: [256, 2048], peers: false, diskOnly: true },
};

/** Sizes for a profile: all links under load, without plain calls beside them. */
export const profileSizes: LinkBenchSizes = {
  ...{ patterns: ['scattered'], runBytes: 128 * MIB, unitsMax: 4096, rounds: 3, sampleMs: 1000 },
  ...{ unitsOfKib: [16, 64, 256, 1024, 4096], peers: false },
};

function routesOf({ diskOnly = false, links }: LinkBenchSizes): readonly Route[] {
  if (links !== undefined) {
    return links.flatMap((link) => routes.filter((route) => linkOf(route) === link).slice(0, 1));
  }
  return diskOnly ? routes.filter(({ ways }) => ways.length === 1 && ways[0].includes(Tier.NVME)) : routes;
}

/** Bytes that tierkv moved over a link in one round, and their time. */
export interface LinkRound {
  readonly link: string;
  readonly unitBytes: number;
  readonly pattern: RowFacts['pattern'];
  /** Seconds since the bench began, at its end. */
  readonly atS: number;
  readonly seconds: number;
  /** 10^9 bytes a second. */
  readonly gbps: number;
}

/** Listener of progress. */
interface BenchListener {
  say(line: string): void;
  /** @param done samples of `all` */
  progress?(done: number, all: number): void;
  /** A sample of tierkv on a link was taken: for what shows how the rates went over time. */
  sample?(sample: LinkRound): void;
  /** Ends the bench with its reason. */
  readonly signal?: AbortSignal;
}

/**
 * @param dir where files are made, else in a temporary one @param adapter part of its name, else the best
 * @param listener what takes lines for a person, or these alone
 * @throws {TierKVError} for an adapter or a directory that is not to be had
 */
export async function benchLinks(
  sizes: LinkBenchSizes,
  dir: string | undefined,
  adapter: string | undefined,
  listener: BenchListener | BenchListener['say'],
): Promise<{ adapter: AdapterReport; rows: LinkRow[]; timer?: TimerDelay }> {
  const told: BenchListener = typeof listener === 'function' ? { say: listener } : listener;
  const { say, progress = () => {}, sample = () => {}, signal = new AbortController().signal } = told;
  const beganMs = performance.now();
  using scratch = temporaryDirectory('tierkv-bench-', dir);
  await using live = await openDevice({ notice: say, ...(adapter === undefined ? {} : { adapter }) });
  const rows: LinkRow[] = [];
  const groups = sizes.unitsOfKib.length * sizes.patterns.length;
  let group = 0;
  let timer: TimerDelay | undefined;
  await using threads = await allThreads();
  for (const unitBytes of sizes.unitsOfKib.map((kib) => kib * 1024)) {
    for (const pattern of sizes.patterns) {
      say(`${pattern} blocks of ${formatBytes(unitBytes)}`);
      const facts = { unitBytes, pattern, software: live.adapter.software };
      const before = group++;
      const within = (done: number, all: number): void => progress(before * all + done, groups * all);
      const taken = (link: string, gbps: number, seconds: number): void => {
        const atS = (performance.now() - beganMs) / 1000;
        sample({ link, unitBytes, pattern, atS, seconds, gbps });
      };
      const found = await rowsOf(live, threads.all, scratch.path, sizes, facts, signal, within, taken);
      rows.push(...found.rows);
      timer = found.timer ?? timer;
    }
  }
  return { adapter: live.adapter, rows, ...(timer === undefined ? {} : { timer }) };
}

/** A thread for each core, for what the memory of the host gives. */
async function allThreads(): Promise<AsyncDisposable & { readonly all: CopyThreads | undefined }> {
  const all = await holdCopyThreads(copyThreadsMost() + 1);
  return { all, [Symbol.asyncDispose]: async () => all && letCopyThreadsGo() };
}

/** How late a timer of one millisecond comes while blocks move both ways between HBM and DDR. */
export interface TimerDelay {
  readonly unitBytes: number;
  readonly movedBytes: number;
  readonly p50Ms: number;
  readonly p99Ms: number;
}

async function timerDelayOf(rig: LinkRig, unitBytes: number, bytes: number): Promise<TimerDelay> {
  const delaysMs: number[] = [];
  let timer: NodeJS.Timeout | undefined;
  const next = (): void => {
    const dueMs = performance.now() + 1;
    timer = setTimeout(() => {
      delaysMs.push(Math.max(0, performance.now() - dueMs));
      next();
    }, 1);
  };
  next();
  let movedBytes = 0;
  for (; movedBytes < 2 * bytes; movedBytes += rig.slots.length * unitBytes) {
    await rig.move([
      [Tier.HBM, Tier.DDR],
      [Tier.DDR, Tier.HBM],
    ])();
  }
  clearTimeout(timer);
  delaysMs.sort((a, b) => a - b);
  const at = (share: number): number => delaysMs[Math.floor(share * (delaysMs.length - 1))] ?? 0;
  return { unitBytes, movedBytes, p50Ms: at(0.5), p99Ms: at(0.99) };
}

/** Seconds that a bench takes at the least; samples of large blocks take longer than they must. */
export function leastSeconds(sizes: LinkBenchSizes): number {
  const stages = 12;
  const of = routesOf(sizes);
  const oneWay = of.filter(({ ways }) => ways.length === 1).length;
  const contestants = stages + of.length + oneWay * (sizes.peers === false ? 1 : 2);
  const groups = sizes.unitsOfKib.length * sizes.patterns.length;
  return (groups * contestants * sizes.rounds * sizes.sampleMs) / 1000;
}

async function rowsOf(
  live: LiveDevice,
  threads: CopyThreads | undefined,
  dir: string,
  sizes: LinkBenchSizes,
  facts: RowFacts,
  signal: AbortSignal,
  progress: (done: number, all: number) => void,
  sampled: (link: string, gbps: number, seconds: number) => void,
): Promise<{ rows: LinkRow[]; timer?: TimerDelay }> {
  const { unitBytes, pattern } = facts;
  const units = Math.min(sizes.unitsMax, Math.max(4, Math.ceil(sizes.runBytes / unitBytes)));
  const bytes = units * unitBytes;
  const indices = Array.from({ length: units }, (_, i) => i);
  // apart: every second one, in random order
  const slots = pattern === 'contiguous' ? indices : shuffled(indices, units).map((i) => 2 * i);
  const shape = poolShape(2 * units, unitBytes, [unitBytes]);
  await using hbm = await HbmStore.open(live, shape, { label: 'bench', copyThreads: 'measured' });
  await using unverified = await HbmStore.open(live, shape, {
    label: 'unverified',
    verifyWrites: false,
    copyThreads: 'measured',
  });
  await using ddr = await MemoryStore.open(shape);
  await using nvme = await FileStore.open(dir, shape);
  using staging = await StagingSlots.open(unitBytes, StagingSlots.countFor(unitBytes));
  using arena = await HostArena.open({ chunkBytes: [bytes, bytes], field: 'bench' });
  const [host, scratch] = arena.chunks.map((chunk) => new Uint8Array(chunk, 0, bytes));
  for (const [i, slot] of slots.entries()) {
    fillPattern(new Uint32Array(host.buffer, i * unitBytes, unitBytes / 4), i, 7);
    ddr.view(slot, 0).set(host.subarray(i * unitBytes, (i + 1) * unitBytes));
    ddr.markWritten(slot, 1);
  }
  const rig = new LinkRig(slots, ddr, { hbm, nvme }, staging);
  const unverifiedRig = new LinkRig(slots, ddr, { hbm: unverified }, staging);
  await rig.move([[Tier.DDR, Tier.HBM]])();
  await rig.move([[Tier.DDR, Tier.NVME]])();
  await unverifiedRig.move([[Tier.DDR, Tier.HBM]])();
  using device = new PlainDevice(live.device, bytes);
  await using disk = new PlainDisk(nvme, shape);
  const readback = hbm.describe().verification === 'readback';
  const of = routesOf(sizes);
  const bench = { rig, unverifiedRig, readback, device, disk, host, scratch, threads };
  const contestants = contestantsOf(bench, of, sizes.peers);
  let taken = 0;
  const all = contestants.length * (sizes.rounds + 1);
  const settle = (): Promise<unknown> => live.whenDone();
  const links = new Map(of.map((route) => [nameOf('tierkv', route), linkOf(route)]));
  const medians = await measureRounds(
    contestants,
    sizes,
    settle,
    signal,
    ({ name, gbps, seconds, isWarmup }) => {
      progress(++taken, all);
      const link = links.get(name);
      if (link !== undefined && !isWarmup) sampled(link, gbps, seconds);
    },
  );
  const copyThreads = Number(hbm.describe().copyThreads);
  const rows = of.map((route) => rowOf(route, medians, readback, { ...facts, copyThreads }));
  const isTimed = sizes.timedBytes !== undefined && pattern === sizes.patterns.at(-1);
  if (!isTimed || unitBytes !== TIMED_UNIT_BYTES) return { rows };
  return { rows, timer: await timerDelayOf(rig, unitBytes, sizes.timedBytes) };
}

/** The size of the blocks that move while the delay of a timer is taken. */
const TIMED_UNIT_BYTES = 2 * MIB;

/** How a bench lies on the disk: what fio needs to do the same. */
interface FioShape {
  /** Directory in which its file is made. */
  readonly dir: string;
  readonly queueDepth: number;
}

/**
 * fio's job for what `sustainedSizes` measures of the disk: direct I/O of whole blocks at random places of a
 * file of the same size, at the same queue depth, for as long.
 */
export function fioJob(sizes: LinkBenchSizes, { dir, queueDepth }: FioShape): string {
  const seconds = Math.ceil((sizes.rounds * sizes.sampleMs) / 1000);
  const head = [
    '# The disk as a sustained run of `tierkv bench links` measures it: the rows of its stages read and write.',
    '[global]',
    'ioengine=libaio',
    'direct=1',
    `iodepth=${queueDepth}`,
    `directory=${dir}`,
    'time_based',
    `runtime=${seconds}`,
    'unlink=1',
  ];
  const jobs = sizes.unitsOfKib.flatMap((kib) => {
    const units = Math.min(sizes.unitsMax, Math.max(4, Math.ceil(sizes.runBytes / (kib * 1024))));
    return (['write', 'read'] as const).map((how) =>
      [
        `[${how}-${kib}k]`,
        'stonewall',
        `rw=rand${how}`,
        `bs=${kib}k`,
        `size=${2 * units * kib}k`, // every second slot holds a block
      ].join('\n'),
    );
  });
  return `${[head.join('\n'), ...jobs].join('\n\n')}\n`;
}

//  A line of `tierkv bench links`, made from the medians of the rounds: as JSON and in a table.

interface RowFacts {
  /** Size of one block; a run moves many of them in one batch. */
  readonly unitBytes: number;
  readonly pattern: 'contiguous' | 'scattered';
  /** Whether a software device is part of the link: its times say nothing about a GPU. */
  readonly software: boolean;
  /** Threads by which tierkv copied to and from mapped buffers; 0 for the main thread. */
  readonly copyThreads?: number;
}

export interface LinkRow extends RowFacts {
  readonly link: string;
  readonly verified: boolean;
  /** tierkv, in 10^9 bytes a second. Both ways: the sum of the two. */
  readonly gbps: number;
  /**
   * Rate of the slowest of bus, memory and disk in these rounds, alone or under any contestant on this link. In files of
   * before 2026-11-28 all that one thread of the host does counted too: `ofThread` of today.
   */
  readonly limitGbps: number;
  /** All that the slowest part of the machine does. */
  readonly limitStage: string;
  /** gbps / limitGbps; 1 at most. */
  readonly ratio: number;
  /** Rate of the device's copies alone, and gbps as a share of it, 1 at most. Where HBM is an end. */
  readonly busGbps?: number;
  readonly ofBus?: number;
  /** Rate at which all threads of the host copy alone to and from mapped buffers. Where HBM is an end. */
  readonly memoryGbps?: number;
  /** Rate of the disk alone, and gbps as a share of it, 1 at most. Where the disk is an end. */
  readonly diskGbps?: number;
  readonly ofDisk?: number;
  /** All that one thread of the host does, and gbps as a share of it, 1 at most. Where one thread copied and digested. */
  readonly threadGbps?: number;
  readonly ofThread?: number;
  /** Bytes that tierkv moved for this row, and their time. */
  readonly movedBytes?: number;
  readonly seconds?: number;
  /** The distance of tierkv's slowest round from its fastest, as a share of the median. */
  readonly spread?: number;
  /** Each stage of the link alone. */
  readonly stagesGbps: Readonly<Record<string, number>>;
  /** One block at a time by plain calls, with the checks of the row. One way only. */
  readonly singleGbps?: number;
  /** All in one transfer by plain calls, with the checks of the row. Between HBM and DDR, one way only. */
  readonly bulkGbps?: number;
  /** From submission to end of a block that travels alone. One way only. */
  readonly aloneUs?: number;
}

/** @param medians GB/s of all contestants by name @param readback see `stagesOf` */
export function rowOf(route: Route, medians: Medians, readback: boolean, facts: RowFacts): LinkRow {
  const gbpsOf = (name: string): number => medians.get(name)!;
  const gbps = gbpsOf(nameOf('tierkv', route));
  const [alone, single, bulk] = (['alone', 'single', 'bulk'] as const).map((who) => nameOf(who, route));
  const [partGbps, limitStage] = limitOf(route, readback, gbpsOf);
  // a contestant that moves blocks over the whole link shows that each of its parts goes so fast
  const shown = Math.max(gbps, ...[single, bulk].map((who) => medians.get(who) ?? 0));
  const limitGbps = Math.max(partGbps, shown);
  const parts = new Map(partsOf(route, readback, gbpsOf).map((one) => [one.part, Math.max(one.gbps, shown)]));
  const [bus, memory, disk] = [parts.get('bus'), parts.get('memory'), parts.get('disk')];
  const thread = (facts.copyThreads ?? 0) === 0 ? parts.get('thread') : undefined;
  const stages = stagesOf(route, readback)
    .flat()
    .flatMap((stage): Stage[] =>
      stage === 'memcpy in' || stage === 'memcpy out' ? [stage, `${stage} by 2`, `${stage} by all`] : [stage],
    )
    .map((stage) => [stage, gbpsOf(stage)]);
  const sample = medians.samples?.get(nameOf('tierkv', route));
  const link = linkOf(route);
  return {
    ...facts,
    software: facts.software && /hbm/i.test(link),
    link,
    verified: route.verified,
    gbps,
    limitGbps,
    limitStage,
    ratio: gbps / limitGbps,
    ...(bus !== undefined && { busGbps: bus, ofBus: gbps / bus }),
    ...(memory !== undefined && { memoryGbps: memory }),
    ...(disk !== undefined && { diskGbps: disk, ofDisk: gbps / disk }),
    ...(thread !== undefined && { threadGbps: thread, ofThread: gbps / thread }),
    ...(sample && { movedBytes: sample.bytes, seconds: sample.seconds, spread: sample.spread }),
    stagesGbps: Object.fromEntries(stages),
    ...(medians.has(single) && { singleGbps: gbpsOf(single) }),
    ...(medians.has(bulk) && { bulkGbps: gbpsOf(bulk) }),
    ...(medians.has(alone) && { aloneUs: facts.unitBytes / gbpsOf(alone) / 1e3 }),
  };
}

/** Above it a row is called noisy: its rounds differ by more than half of their median. */
const NOISY = 0.5;

const shownLink = (link: string): string =>
  link
    .split(/To(?=[A-Z])/)
    .map((tier) => tier.toUpperCase())
    .join(' -> ');

/** Five lines: each link one way, and how far they are to be trusted. */
export function renderOwn(rows: readonly LinkRow[], adapter: AdapterReport): string {
  const lines = rows.map(({ link, gbps, ofBus, ofDisk, limitStage, software, verified }) => {
    const share =
      ofBus === undefined
        ? `${Math.round(100 * (ofDisk ?? 0))} % of the disk`
        : `${Math.round(100 * ofBus)} % of the bus`;
    const checked = verified ? ', verified' : '';
    return `${shownLink(link)}  ${gbps.toFixed(2)} GB/s${software ? ' (SW)' : ''}  ${share}${checked}; slowest part: ${limitStage}`;
  });
  const noisy = rows.filter(({ spread = 0 }) => spread > NOISY).map(({ link }) => shownLink(link));
  const device = `${adapter.name}${adapter.software ? ', a SOFTWARE device (SW), which says nothing about a GPU' : ''}`;
  const quiet =
    noisy.length === 0 ? 'the machine was quiet' : `the machine was NOT quiet (${noisy.join(', ')})`;
  return `${lines.join('\n')}\n${quiet}; blocks of 2 MiB; ${device}\n`;
}

/** A line for a person. */
export function renderTimer({ p50Ms, p99Ms, movedBytes, unitBytes }: TimerDelay): string {
  return (
    `while ${formatBytes(movedBytes / 2)} moved each way between HBM and DDR in blocks of ${formatBytes(unitBytes)}, ` +
    `a timer was late by ${p50Ms.toFixed(1)} ms (p50) and ${p99Ms.toFixed(1)} ms (p99)\n`
  );
}

/** A table for each size and pattern. Figures are GB/s where no unit stands beside them. */
export function renderRows(rows: readonly LinkRow[]): string {
  const tables = Map.groupBy(
    rows,
    ({ unitBytes, pattern }) => `${pattern} blocks of ${formatBytes(unitBytes)}`,
  );
  const notes = [
    ...(rows.some(({ software }) => software) ? ['(SW) a software device has a part in the link'] : []),
    ...(rows.some(({ spread = 0 }) => spread > NOISY)
      ? [`! the rounds of tierkv differ by more than ${100 * NOISY} %: the machine was not quiet`]
      : []),
  ];
  const texts = [...tables].map(([title, those]) => `${title}, GB/s\n${tableOf(those)}`);
  return [...texts, ...notes.map((note) => `${note}\n`)].join('');
}

function tableOf(rows: readonly LinkRow[]): string {
  const figure = (value: number | undefined, digits = 2): string => value?.toFixed(digits) ?? '-';
  const right = ['tierkv', '±', 'limit', 'it/bus/thread', 'single', 'bulk', 'alone', 'moved'];
  return renderTable(
    [
      { title: 'link' },
      ...right.map((title) => ({ title, align: 'right' as const })),
      { title: 'slowest part' },
    ],
    rows.map((row) => [
      `${row.link.replace('+', ' +')}${row.verified ? ', verified' : ''}${row.software ? ' (SW)' : ''}`,
      figure(row.gbps),
      row.spread === undefined ? '-' : `${figure(50 * row.spread, 0)} %${row.spread > NOISY ? '!' : ''}`,
      figure(row.limitGbps),
      `${[row.ratio, row.ofBus, row.ofThread].map((share) => figure(share && share * 100, 0)).join('/')} %`,
      ...[row.singleGbps, row.bulkGbps].map((gbps) => figure(gbps)),
      row.aloneUs === undefined ? '-' : `${figure(row.aloneUs, 0)} µs`,
      row.movedBytes === undefined ? '-' : formatBytes(row.movedBytes),
      row.limitStage
        .replace('digest of staging', 'digest')
        .replace('memcpy out + memcpy in', 'memcpy out + in')
        .replace('copy in + copy out', 'copy in + out')
        .replace('copy out + copy in', 'copy out + in'),
    ]),
  );
}

// GB/s by unit size: a panel for each link and pattern, three in a row; a line for tierkv, its limit and each
// peer, dashed where nothing is verified.

/** @param device what was measured, for the title */
export function plotOf(rows: readonly LinkRow[], device: string): VegaLiteSpec {
  const values = rows.flatMap((row) => {
    const { gbps: tierkv, limitGbps: limit, singleGbps: single, bulkGbps: bulk } = row;
    return Object.entries({ tierkv, limit, single, bulk }).map(([line, gbps]) => ({
      panel: `${row.link}, ${row.pattern}`,
      kib: row.unitBytes / 1024,
      line,
      checks: row.verified ? 'verified' : 'unverified',
      gbps,
    }));
  });
  return {
    $schema: 'https://vega.github.io/schema/vega-lite/v6.json',
    title: `Links on ${device}`,
    data: { values: values.filter(({ gbps }) => gbps !== undefined) },
    facet: { field: 'panel', type: 'nominal', title: null, sort: null },
    columns: 3, // a property of the whole: within `facet` it is not read
    spec: {
      width: 280,
      height: 150,
      mark: { type: 'line', point: true },
      encoding: {
        x: { field: 'kib', type: 'quantitative', scale: { type: 'log', base: 2 }, title: 'unit, KiB' },
        y: { field: 'gbps', type: 'quantitative', title: 'GB/s' },
        color: { field: 'line', type: 'nominal', title: null },
        strokeDash: { field: 'checks', type: 'nominal', title: null, sort: ['verified', 'unverified'] },
      },
    },
  };
}
