/**
 * Kills a store by kill -9 at one change of its files after the other, and checks what is found after each.
 * A store lives through several of them; sometimes its next life is killed while it recovers.
 *
 * After each kill every record that must be there is there, every record is right, and fsck finds no fault.
 * Then the next life opens the same files.
 */

import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { FileStore } from '../../src/backends/file/fileStore.ts';
import { StoreView } from '../../src/backends/file/inspect.ts';
import { mismatchedWords, patternItem, SeededRandom } from '../../src/testing/index.ts';
import type { Life } from './child.ts';
import { type Moment, moments } from './killSeam.ts';
import { Ledger } from './ledger.ts';
import { noteFor, scenarios } from './scenario.ts';

export interface CampaignReport {
  kills: number;
  /**
   * Kills that differ in scenario, in what was being changed, in the moment and in which change of the life
   * it was.
   */
  distinct: number;
  /** By moment and change, such as `head writev index`. */
  readonly byPoint: Map<string, number>;
  /** Lives that ended before the change at which they were to be killed. */
  survived: number;
  /** Records that had to be found, and were. */
  expected: number;
  found: number;
  /** Kills of lives that had not finished opening: while they recovered, or made the files. */
  whileOpening: number;
  wrong: number;
  leftovers: number;
  /** Slots that a start after a loss of power would take up, and give up at their first read. */
  stale: number;
}

interface Place {
  readonly slot: number;
  readonly sizeClass: number;
  readonly generation: number;
}

const LIVES_PER_STORE = 8;
const STEPS = 30;
const child = join(import.meta.dirname, 'child.ts');

/**
 * @param kills number of distinct points at which to kill
 * @param firstStore stores before this one are only counted, not lived: to come back to a failure
 */
export async function killCampaign(
  kills: number,
  seed: number,
  progress: (report: CampaignReport) => void = () => {},
  deadlineMs: number = Number.POSITIVE_INFINITY,
  firstStore: number = 0,
): Promise<CampaignReport> {
  const report: CampaignReport = {
    kills: 0,
    distinct: 0,
    byPoint: new Map(),
    survived: 0,
    expected: 0,
    found: 0,
    whileOpening: 0,
    wrong: 0,
    leftovers: 0,
    stale: 0,
  };
  const seen = new Set<string>();
  const tried = new Set<string>();
  const begun = performance.now();
  for (let round = 0; seen.size < kills && performance.now() - begun < deadlineMs; round++) {
    await oneStore(round, seed, kills, report, seen, tried, firstStore);
    report.distinct = seen.size;
    progress(report);
  }
  return report;
}

async function oneStore(
  round: number,
  seed: number,
  kills: number,
  report: CampaignReport,
  seen: Set<string>,
  tried: Set<string>,
  firstStore: number,
): Promise<void> {
  const random = new SeededRandom(seed * 1_000_003 + round);
  const scenario = round % scenarios.length;
  const { shape } = scenarios[scenario];
  const work = mkdtempSync(join(tmpdir(), 'tierkv-crash-'));
  const dir = mkdtempSync(join(work, 'store-'));
  const ledger = new Ledger(shape);
  try {
    for (let number = 0; number < LIVES_PER_STORE && seen.size < kills; number++) {
      const point = killPoint(random, scenario, round + number, number === 0, tried);
      const looksInside = random.chance(0.2);
      if (round < firstStore) continue;
      const life: Life = {
        dir,
        log: join(work, `life-${number}.log`),
        scenario,
        seed: seed * 7919 + round * 101 + number,
        ...point,
        generation: ledger.generation,
        steps: STEPS,
      };
      const where = `seed ${seed}, store ${round}, life ${number}: ${life.moment} change ${life.at}`;
      const killed = await live(life, where);
      ledger.read(readFileSync(life.log, 'utf8'));
      if (killed) {
        report.kills++;
        if (ledger.opened === 0) report.whileOpening++;
        report.byPoint.set(ledger.lastChange, (report.byPoint.get(ledger.lastChange) ?? 0) + 1);
        seen.add(`${scenario} ${number === 0} ${ledger.opened} ${ledger.lastChange} ${life.at}`);
      } else report.survived++;
      if (ledger.wrong > 0) throw new Error(`${where}: a read in that life returned wrong bytes`);
      const found = await verify(dir, ledger, life.moment, report, where);
      // After a loss of power, what had been given up may show once more, and need not show again.
      const must = life.moment === 'power' ? ledger.durable : ledger.ended;
      const kept = ({ slot, generation }: Place): boolean => must.get(slot) === generation;
      ledger.restart(ledger.powerLost ? found.filter(kept) : found);
      if (looksInside) await openAndCompare(dir, scenario, found, where);
    }
    rmSync(work, { recursive: true, force: true });
  } catch (cause) {
    throw new Error(`the store and the logs of its lives are kept in ${work}`, { cause });
  }
}

/**
 * A point that was not tried before. Early changes are those of making the files, in a first life, or of
 * recovery; later ones those of traffic, checkpoints and closing.
 */
function killPoint(
  random: SeededRandom,
  scenario: number,
  turn: number,
  isFirstLife: boolean,
  tried: Set<string>,
): { at: number; moment: Moment } {
  const moment = moments[turn % moments.length];
  const early = isFirstLife ? turn % 2 === 0 : turn % 3 === 0;
  const earlyLimit = isFirstLife ? 20 : 12;
  for (let limit = early ? earlyLimit : 100; ; limit++) {
    const at = 1 + random.below(limit);
    const point = `${scenario} ${isFirstLife} ${moment} ${at}`;
    if (tried.has(point)) continue;
    tried.add(point);
    return { at, moment };
  }
}

/** @returns whether the life was killed at its point, rather than surviving it */
async function live(life: Life, where: string): Promise<boolean> {
  writeFileSync(life.log, '');
  const process_ = spawn(process.execPath, [child, JSON.stringify(life)], {
    stdio: ['ignore', 'ignore', 'pipe'],
  });
  let stderr = '';
  process_.stderr.on('data', (chunk: Buffer) => (stderr += chunk.toString()));
  const [code, signal] = (await once(process_, 'close')) as [number | null, string | null];
  if (signal === 'SIGKILL') return true;
  if (code !== 0) throw new Error(`${where}: the life ended with ${code ?? signal}: ${stderr}`);
  return false;
}

/** Looks at what the crash left, from outside and without changing it. */
async function verify(
  dir: string,
  ledger: Ledger,
  moment: Moment,
  report: CampaignReport,
  where: string,
): Promise<Place[]> {
  const must = moment === 'power' ? ledger.durable : ledger.ended;
  const found: Place[] = [];
  let view: StoreView;
  try {
    view = await StoreView.open(dir);
  } catch (error) {
    if (must.size === 0 && ledger.opened === 0 && isNoStore(error)) return found;
    throw new Error(`${where}: the store cannot be looked at`, { cause: error });
  }
  await using opened = view;
  const { faults, leftovers } = await opened.check();
  // Without power, a mark that was not durable may be lost beside a record that was being overwritten. What
  // the index then lists stays listed until it is read, also by later lives.
  if (moment === 'power') ledger.powerLost = true;
  // A DONE block that was being written can be torn; then the checkpoint before it counts.
  const tears = moment !== 'before' && moment !== 'after';
  const tolerated = faults.filter(
    ({ where: at }) =>
      (ledger.powerLost && at.startsWith('slot') && !must.has(Number(at.slice(5)))) ||
      (tears && at.startsWith('index: DONE block')),
  );
  report.leftovers += leftovers.length;
  report.stale += tolerated.filter(({ where: at }) => at.startsWith('slot')).length;
  if (faults.length > tolerated.length) {
    throw new Error(`${where}: fsck of a store that was only killed finds ${JSON.stringify(faults)}`);
  }
  for (const entry of opened.records()) {
    const { slot, sizeClass, generation } = entry;
    const bytes = await opened.payload(entry);
    if (typeof bytes === 'string') {
      if (tolerated.some(({ where: at }) => at === `slot ${slot}`) && !must.has(slot)) continue;
      throw new Error(`${where}: slot ${slot} is listed, but ${bytes}`);
    }
    const item = patternItem(opened.shape, slot, sizeClass, generation);
    if (mismatchedWords({ ...item, bytes }) > 0) {
      report.wrong++;
      throw new Error(`${where}: slot ${slot} holds other bytes than generation ${generation} wrote`);
    }
    found.push({ slot, sizeClass, generation });
  }
  const generations = new Map(found.map(({ slot, generation }) => [slot, generation]));
  for (const [slot, generation] of must) {
    report.expected++;
    if (generations.get(slot) === generation) report.found++;
    else throw new Error(`${where}: slot ${slot} must hold ${generation}, holds ${generations.get(slot)}`);
  }
  return found;
}

function isNoStore(error: unknown): boolean {
  return (
    error instanceof Error &&
    /holds no tierkv\.blocks|, and no records: tierkv\.blocks is/.test(error.message)
  );
}

/** Checks that a start serves what was seen from outside. */
async function openAndCompare(
  dir: string,
  scenario: number,
  found: readonly Place[],
  where: string,
): Promise<void> {
  const { shape, options } = scenarios[scenario];
  await using store = await FileStore.open(dir, shape, options);
  const served: Place[] = [];
  for (const entry of store.records()) {
    const { slot, sizeClass, generation } = entry;
    const item = patternItem(shape, slot, sizeClass, generation);
    item.bytes.fill(0);
    const [result] = await store.read([item]);
    if (result.outcome === 0) {
      if (mismatchedWords(item) > 0) throw new Error(`${where}: slot ${slot} is served with wrong bytes`);
      const right = noteFor(entry.key);
      const note = (await store.note(entry)) ?? new Uint8Array(0);
      if (!right.every((byte, i) => byte === note[i])) {
        throw new Error(`${where}: slot ${slot} has not the note that was kept with it`);
      }
      served.push({ slot, sizeClass, generation });
    }
  }
  const text = (places: readonly Place[]): string =>
    JSON.stringify([...places].sort((a, b) => a.slot - b.slot));
  if (text(served) !== text(found)) {
    throw new Error(`${where}: a start serves ${text(served)}, what was found is ${text(found)}`);
  }
}
