/** Who runs in the rounds of one unit size: the stages alone, and of each row tierkv, the single transfer and the naive way. */

import {
  deviceCopyDown,
  deviceCopyUp,
  deviceCopyUpAndBack,
  digest,
  digestAndMemcpyUp,
  memcpyDown,
  memcpyUp,
  memcpyUpAndDigest,
  type StageRun,
} from './deviceStages.ts';
import { type DiskStage, type StageName, stagesOf } from './limit.ts';
import type { DiskWork } from './rawRecords.ts';
import type { Arrangement, LinkJobs } from './rig.ts';
import type { Contestant } from './rounds.ts';
import { jobsOver, type Machine, type Route } from './routes.ts';
import { together } from './together.ts';

const DEPTHS = [1, 4, 8, 16] as const;
/** Units larger than that may be read and written faster in pieces, so the limit tries that too. */
const SMALL_PIECE_BYTES = 1024 * 1024;

/** I/Os in flight while the other parts of the machine work as well. */
const TOGETHER_DEPTH = 8;

/** What becomes one row. */
export interface Case {
  readonly route: Route;
  readonly arrangement: Arrangement;
  /** Units that one run moves. */
  readonly units: number;
  readonly name: string;
  readonly latenciesUs: number[];
}

/** @param units that a stage alone moves */
export function contestantsOf(machine: Machine, units: number, cases: readonly Case[]): Contestant[] {
  const { rig, disk } = machine;
  const { buffers } = machine.device;
  const stageBytes = units * rig.unitBytes;
  const all = new Map<string, Contestant>();
  const add = (one: Contestant): void => {
    if (!all.has(one.name)) all.set(one.name, one);
  };
  const stages = new Set(
    cases.flatMap(({ route, arrangement }) =>
      route.work.flatMap((steps) => stagesOf(steps, arrangement, rig.checks)),
    ),
  );
  const deviceStages: [StageName, StageRun][] = [
    ['device copy up', deviceCopyUp(buffers, stageBytes)],
    ['device copy up and back', deviceCopyUpAndBack(buffers, stageBytes)],
    ['device copy down', deviceCopyDown(buffers, stageBytes)],
    ['memcpy up', memcpyUp(buffers, stageBytes)],
    ['memcpy up and digest', memcpyUpAndDigest(buffers, stageBytes)],
    ['digest and memcpy up', digestAndMemcpyUp(buffers, stageBytes)],
    ['memcpy down', memcpyDown(buffers, stageBytes)],
    ['digest', digest(buffers, stageBytes)],
  ];
  for (const [name, stage] of deviceStages) {
    if (stages.has(name))
      add({ name, bytes: stageBytes, usesDisk: false, alone: true, closely: true, ...stage });
  }
  for (const stage of stages) {
    if (!isDiskStage(stage)) continue;
    const work = workOf(stage, units);
    for (const depth of DEPTHS) {
      const way = { wayTo: stage, bytes: stageBytes, usesDisk: true, closely: true };
      const by = (pieceBytes: number) => disk!.records.mover(work, depth, pieceBytes);
      add({ ...way, name: `${stage}: ${depth}`, run: by(rig.unitBytes) });
      if (rig.unitBytes <= SMALL_PIECE_BYTES) continue;
      add({ ...way, name: `${stage}: ${depth} in pieces`, run: by(SMALL_PIECE_BYTES) });
    }
  }
  for (const { route, arrangement, units: moved, name } of cases) {
    const base = arrangement === 'contiguous' ? 0 : rig.units;
    const slots = Array.from({ length: moved }, (_, i) => rig.slotOf(i, arrangement) - base);
    const bytes = moved * rig.unitBytes;
    const usesDisk = route.work.flat().some((step) => step.startsWith('disk '));
    const fromDisk = route.link.includes('nvmeTo');
    const common = { bytes, usesDisk, prepare: () => buffers.mapUpload() };
    if (!route.bothWays) {
      const stages = stagesOf(route.work[0], arrangement, rig.checks);
      const stage = stages.find(isDiskStage);
      const io = stage && disk!.records.mover(workOf(stage, moved), TOGETHER_DEPTH, SMALL_PIECE_BYTES);
      add({
        name: togetherName(name),
        bytes,
        usesDisk,
        alone: true,
        ...together(stages, buffers, bytes, io),
      });
    }
    let jobs: LinkJobs;
    add({
      name,
      bytes,
      usesDisk,
      closely: true,
      prepare() {
        jobs = jobsOver(machine, route, arrangement, 0, moved);
      },
      run: () => rig.run(jobs),
    });
    add({
      ...common,
      name: singleName(route),
      run: () => route.single(machine, bytes),
    });
    add({
      ...common,
      name: naiveName(route, arrangement),
      cold: usesDisk,
      ...(fromDisk ? { prepare: () => disk!.emptyCache() } : {}),
      run: () => route.naive(machine, slots),
    });
  }
  return [...all.values()];
}

function isDiskStage(stage: StageName | undefined): stage is DiskStage {
  return stage?.includes('disk ') === true;
}

function workOf(stage: DiskStage, units: number): DiskWork {
  return {
    operation: stage.includes('disk read') ? 'read' : 'write',
    arrangement: stage.startsWith('scattered') ? 'scattered' : 'contiguous',
    into: stage.endsWith('staging') ? 'staging' : 'ddr',
    units,
  };
}

/** All stages of a case at once. */
export function togetherName(name: string): string {
  return `together ${name}`;
}

/** A naive way digests what it reads where the host does; nothing naive verifies what is in HBM. */
export function naiveName({ link, verify }: Route, arrangement: Arrangement): string {
  return `naive ${link} ${arrangement}${verify === 'host' ? ' host' : ''}`;
}

/** The best single transfer, with the checks of the row. */
export function singleName({ link, verify }: Route): string {
  return `single ${link} ${verify}`;
}
