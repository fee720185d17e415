/**
 * The link bench: for each unit size and pattern it opens the tiers, lets all contestants run in the same
 * interleaved rounds, and makes one row of each link. For `tierkv bench links` and `tierkv calibrate`.
 */

import { StagingSlots } from '../../backends/engine/stagedBatch.ts';
import { FileStore } from '../../backends/file/fileStore.ts';
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
  type Route,
  routes,
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
}

const MIB = 1024 * 1024;
const patterns = ['contiguous', 'scattered'] as const;
const full = { patterns, runBytes: 256 * MIB, unitsMax: 4096, rounds: 9, sampleMs: 50 };
const quick = { patterns, runBytes: 16 * MIB, unitsMax: 64, rounds: 3, sampleMs: 5 };
export const fullSizes: LinkBenchSizes = { ...full, unitsOfKib: [16, 64, 256, 2048, 8192, 65_536] };
export const quickSizes: LinkBenchSizes = { ...quick, unitsOfKib: [64, 256, 2048] };

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

function routesOf({ diskOnly = false }: LinkBenchSizes): readonly Route[] {
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
): Promise<{ adapter: AdapterReport; rows: LinkRow[] }> {
  const told: BenchListener = typeof listener === 'function' ? { say: listener } : listener;
  const { say, progress = () => {}, sample = () => {}, signal = new AbortController().signal } = told;
  const beganMs = performance.now();
  using scratch = temporaryDirectory('tierkv-bench-', dir);
  await using live = await openDevice({ notice: say, ...(adapter === undefined ? {} : { adapter }) });
  const rows: LinkRow[] = [];
  const groups = sizes.unitsOfKib.length * sizes.patterns.length;
  let group = 0;
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
      rows.push(...(await rowsOf(live, scratch.path, sizes, facts, signal, within, taken)));
    }
  }
  return { adapter: live.adapter, rows };
}

/** Seconds that a bench takes at the least; samples of large blocks take longer than they must. */
export function leastSeconds(sizes: LinkBenchSizes): number {
  const stages = 8;
  const of = routesOf(sizes);
  const oneWay = of.filter(({ ways }) => ways.length === 1).length;
  const contestants = stages + of.length + oneWay * (sizes.peers === false ? 1 : 2);
  const groups = sizes.unitsOfKib.length * sizes.patterns.length;
  return (groups * contestants * sizes.rounds * sizes.sampleMs) / 1000;
}

async function rowsOf(
  live: LiveDevice,
  dir: string,
  sizes: LinkBenchSizes,
  facts: RowFacts,
  signal: AbortSignal,
  progress: (done: number, all: number) => void,
  sampled: (link: string, gbps: number, seconds: number) => void,
): Promise<LinkRow[]> {
  const { unitBytes, pattern } = facts;
  const units = Math.min(sizes.unitsMax, Math.max(4, Math.ceil(sizes.runBytes / unitBytes)));
  const bytes = units * unitBytes;
  const indices = Array.from({ length: units }, (_, i) => i);
  // apart: every second one, in random order
  const slots = pattern === 'contiguous' ? indices : shuffled(indices, units).map((i) => 2 * i);
  const shape = poolShape(2 * units, unitBytes, [unitBytes]);
  await using hbm = await HbmStore.open(live, shape, { label: 'bench' });
  await using unverified = await HbmStore.open(live, shape, { label: 'unverified', verifyWrites: false });
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
  const bench = { rig, unverifiedRig, readback, device, disk, host, scratch };
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
  return of.map((route) => rowOf(route, medians, readback, facts));
}

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
}

export interface LinkRow extends RowFacts {
  readonly link: string;
  readonly verified: boolean;
  /** tierkv, in 10^9 bytes a second. Both ways: the sum of the two. */
  readonly gbps: number;
  /** Rate of the slowest part of the machine in these rounds, alone or under any contestant on this link. */
  readonly limitGbps: number;
  /** All that the slowest part of the machine does. */
  readonly limitStage: string;
  /** gbps / limitGbps; 1 at most. */
  readonly ratio: number;
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
  const limitGbps = Math.max(partGbps, gbps, ...[single, bulk].map((who) => medians.get(who) ?? 0));
  const stages = stagesOf(route, readback).flatMap((part) => part.map((stage) => [stage, gbpsOf(stage)]));
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
    ...(sample && { movedBytes: sample.bytes, seconds: sample.seconds, spread: sample.spread }),
    stagesGbps: Object.fromEntries(stages),
    ...(medians.has(single) && { singleGbps: gbpsOf(single) }),
    ...(medians.has(bulk) && { bulkGbps: gbpsOf(bulk) }),
    ...(medians.has(alone) && { aloneUs: facts.unitBytes / gbpsOf(alone) / 1e3 }),
  };
}

/** Above it a row is called noisy: its rounds differ by more than half of their median. */
const NOISY = 0.5;

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
  const right = ['tierkv', '±', 'limit', 'of it', 'single', 'bulk', 'alone', 'moved', 'in'];
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
      `${figure(row.ratio * 100, 0)} %`,
      ...[row.singleGbps, row.bulkGbps].map((gbps) => figure(gbps)),
      row.aloneUs === undefined ? '-' : `${figure(row.aloneUs, 0)} µs`,
      row.movedBytes === undefined ? '-' : formatBytes(row.movedBytes),
      row.seconds === undefined ? '-' : `${figure(row.seconds, 1)} s`,
      row.limitStage
        .replace('digest of staging', 'digest')
        .replace('memcpy out + memcpy in', 'memcpy out + in')
        .replace('copy in + copy out', 'copy in + out'),
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
