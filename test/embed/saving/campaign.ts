/**
 * The save campaign: lives with tiers of any size, on disks that fail in any way, killed right after `save` or closed. Of each
 * life it is checked that
 *
 * - a save moves nothing: what a prompt found in a tier above the files, it finds there afterwards, where no migrator is at
 *   work meanwhile;
 * - a save loses nothing: unless it was told to replace, every prompt finds as many blocks as before;
 * - a save says what is so: the next start has every block that it called durable, with the right bytes;
 * - a save that says nothing of blocks that it left has left none.
 */

import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { KVRuntime } from '../../../src/index.ts';
import {
  configOf,
  type DiskFault,
  diskFaults,
  type Found,
  type LifePlan,
  type LifeReport,
  type SaveControl,
  serve,
} from './life.ts';

export interface SaveReport {
  runs: number;
  killed: number;
  /** Lives in which blocks were left, and blocks that were called durable. */
  refused: number;
  durable: number;
  /** What was checked above and is not so, with the life's plan. */
  readonly faults: string[];
  readonly byFault: Map<string, number>;
}

/** Mulberry32: the same lives for the same seed. */
function random(seed: number): (below: number) => number {
  let state = seed >>> 0;
  return (below) => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) % below;
  };
}

export interface SaveCampaignOptions {
  readonly seed: number;
  /** Whether some lives have a device; it takes seconds to open. */
  readonly devices: boolean;
  readonly control?: SaveControl | undefined;
  /** This kind alone. Default: each kind in its turn. */
  readonly fault?: DiskFault | undefined;
  readonly progress?: ((report: SaveReport) => void) | undefined;
}

export async function saveCampaign(runs: number, options: SaveCampaignOptions): Promise<SaveReport> {
  const report: SaveReport = { runs: 0, killed: 0, refused: 0, durable: 0, faults: [], byFault: new Map() };
  for (let run = 0; run < runs; run++) {
    const dir = mkdtempSync(join(tmpdir(), 'tierkv-save-'));
    try {
      const plan = planOf(options.seed + run, dir, run, options);
      await oneLife(plan, report);
    } finally {
      rmSync(dir, { recursive: true, force: true });
    }
    options.progress?.(report);
  }
  return report;
}

/** Every kind of fault has its turn, killed and closed. */
function planOf(
  seed: number,
  dir: string,
  run: number,
  { devices, control, fault: only }: SaveCampaignOptions,
): LifePlan {
  const below = random(seed);
  const between = (from: number, to: number): number => from + below(to - from + 1);
  const fault = only ?? diskFaults[run % diskFaults.length];
  return {
    seed,
    dir,
    hbm: devices && run % 4 === 0 ? between(20, 120) : 0,
    ddr: between(20, 160),
    nvme: between(16, 400),
    prompts: between(4, 70),
    held: between(0, 3),
    allocation: below(2) === 0 ? 'whole' : 'extents',
    migration: below(2) === 0,
    fault,
    oneOf: below(2) === 0 ? 1 : between(2, 5),
    whenFull: below(4) === 0 ? 'replace' : 'keep',
    kill: Math.floor(run / (only === undefined ? diskFaults.length : 1)) % 2 === 0,
    ...(control === undefined ? {} : { control }),
  };
}

async function oneLife(plan: LifePlan, report: SaveReport): Promise<void> {
  const child = spawn(process.execPath, [join(import.meta.dirname, 'life.ts'), JSON.stringify(plan)], {
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  const said = text(child.stdout);
  const complaint = text(child.stderr);
  const [code, signal] = (await once(child, 'close')) as [number | null, string | null];
  const fail = (what: string): void => {
    report.faults.push(`${what} (${JSON.stringify({ ...plan, dir: '' })})`);
  };
  report.runs++;
  report.byFault.set(plan.fault, (report.byFault.get(plan.fault) ?? 0) + 1);
  const line = (await said).trim();
  if (line === '' || (plan.kill ? signal !== 'SIGKILL' : code !== 0)) {
    return fail(`the life ended with ${code ?? signal}: ${(await complaint).slice(0, 600)}`);
  }
  const life = JSON.parse(line) as LifeReport;
  if (plan.kill) report.killed++;
  if (life.error !== '') report.refused++;
  report.durable += life.durable;
  if (life.error !== '' && !life.error.startsWith('TKV_IO')) fail(`save failed with ${life.error}`);
  checkPlaces(plan, life, fail);
  await nextLife(plan, life, fail);
}

const sum = (counts: readonly number[]): number => counts.reduce((a, b) => a + b, 0);

function checkPlaces(
  plan: LifePlan,
  { before, after, error, durable, again }: LifeReport,
  fail: (what: string) => void,
): void {
  const steps: readonly (readonly [string, Found])[] = [
    ['the save', after],
    ...(again === null ? [] : ([['the second save', again.found]] as const)),
  ];
  const mayLoseNone = plan.whenFull === 'keep';
  for (const [name, later] of steps) {
    for (const [prompt, counts] of before.entries()) {
      const above = counts.slice(0, -1);
      const is = later[prompt];
      if (!plan.migration && above.some((blocks, tier) => is[tier] < blocks)) {
        fail(`${name} moved blocks of prompt ${prompt} from ${counts} to ${is}`);
      }
      if (mayLoseNone && sum(is) < sum(counts)) {
        fail(`${name} lost blocks of prompt ${prompt}: ${counts} before, ${is} after`);
      }
    }
  }
  const known = sum(before.map(sum));
  const quiet = plan.whenFull === 'keep' && error === '' ? durable : known;
  if (quiet < known) fail(`a save without an error left ${known - durable} of ${known} blocks`);
  if (again !== null && again.error !== '' && !again.error.includes('as full as they may be')) {
    fail(`the second save, on a sound disk, failed with ${again.error}`);
  }
}

async function nextLife(plan: LifePlan, life: LifeReport, fail: (what: string) => void): Promise<void> {
  // With less above the files, so that what is found comes from them; host memory alone needs no device.
  await using kv = await KVRuntime.open(configOf({ ...plan, hbm: 0, ddr: 40 }));
  const durable = life.again?.durable ?? life.durable;
  const files = kv.manager.inspect.usage(1).slots.ready;
  if (files < durable) fail(`the save called ${durable} blocks durable, and the next start has ${files}`);
  let wrong = 0;
  for (let prompt = 0; prompt < plan.prompts; prompt++) {
    const served = await serve(kv, prompt);
    wrong += served.wrong;
    kv.release(served.sequence);
  }
  if (wrong > 0) fail(`${wrong} blocks of the next start have wrong bytes`);
  // What was called durable is served: none of it is found to be damaged when it is read.
  const damaged = sum([...kv.manager.inspect.counters.loadsFailed]);
  if (damaged > 0) fail(`${damaged} loads of the next start failed`);
}
