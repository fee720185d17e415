/**
 * Tenants with quotas beside tenants without, on two or three small tiers, with the migrator on. Tenants with a quota compute their
 * blocks once, within it, and ask for nothing any more; the others do everything that a runtime lets them do. What a quota protects
 * must stay in its tier: it is looked for after each call.
 */

import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { KVRuntime, type KVSequence, kvLayout, TierKVError } from '../../../src/index.ts';
import { JobPriority, type TierName } from '../../../src/runtime/index.ts';
import { SeededRandom } from '../../../src/testing/index.ts';
import { testAdapter } from '../../adapter.ts';

export interface QuotaSoakOptions {
  readonly seed: number;
  /** Whether another round follows, asked before each. */
  readonly goesOn: (roundsDone: number) => boolean;
  readonly callsPerRound: number;
  /** Control without quotas. */
  readonly withoutQuotas?: boolean;
  readonly progress?: (report: QuotaSoakReport) => void;
}

export interface QuotaSoakReport {
  rounds: number;
  calls: number;
  /** Blocks that were evicted from some tier, and looks at protected blocks. */
  evictions: number;
  migrations: number;
  looks: number;
  /** Protected blocks that were not in their tier any more. */
  moved: number;
  /** The first few of them, and refusals that nothing explains: a line each. */
  readonly moves: string[];
  readonly refused: string[];
  readonly ends: Map<string, number>;
}

const LAYOUT = kvLayout({ layers: 1, kvHeads: 1, headDim: 16, dtype: 'f16', blockTokens: 8 });
const TOP_BLOCKS = 60;
const KEPT_BLOCKS = 4;
/** Prompts of a tenant with a quota, in the top tier and in the one below. */
const KEPT_PROMPTS = 3;

/** A tenant whose blocks lie in one tier, all within its quota there. */
interface Kept {
  readonly tenant: string;
  readonly position: number;
}

export async function soakQuotas(options: QuotaSoakOptions): Promise<QuotaSoakReport> {
  const random = new SeededRandom(options.seed * 4517 + 3);
  const report: QuotaSoakReport = {
    rounds: 0,
    calls: 0,
    evictions: 0,
    migrations: 0,
    looks: 0,
    moved: 0,
    moves: [],
    refused: [],
    ends: new Map(),
  };
  while (options.goesOn(report.rounds)) {
    await round(options, random, report);
    report.rounds++;
    options.progress?.(report);
  }
  return report;
}

async function round(
  options: QuotaSoakOptions,
  random: SeededRandom,
  report: QuotaSoakReport,
): Promise<void> {
  const dir = mkdtempSync(join(tmpdir(), 'tierkv-quotas-'));
  const bytes = (blocks: number): number => blocks * LAYOUT.blockBytes;
  const kind = report.rounds % 3;
  const tiers: readonly TierName[] = [
    ['ddr', 'nvme'],
    ['hbm', 'ddr'],
    ['hbm', 'ddr', 'nvme'],
  ][kind] as TierName[];
  const pick = <T>(from: readonly T[]): T => from[random.below(from.length)];
  const settings = {
    eviction: { policy: pick(['lru', 'lfu', 'hazard']) },
    offloadThreshold: pick([0.7, 0.9, 1]),
    migration: pick([undefined, { intervalUs: 20_000 }]),
  };
  try {
    await using kv = await KVRuntime.open({
      layout: LAYOUT,
      model: 'soak@1',
      secretKey: new Uint8Array(32).fill(31),
      notice: () => {},
      ...(tiers.includes('hbm') ? { hbmBytes: bytes(TOP_BLOCKS), adapter: testAdapter } : {}),
      ddrBytes: bytes(TOP_BLOCKS),
      ...(tiers.includes('nvme') ? { nvme: { dir, bytes: bytes(3000) } } : {}),
      eviction: settings.eviction,
      offloadThreshold: settings.offloadThreshold,
      ...(settings.migration === undefined ? {} : { migration: settings.migration }),
    } as Parameters<typeof KVRuntime.open>[0]);
    const stop = kv.observe({
      blocks: { evicted: () => report.evictions++, demoted: () => report.migrations++ },
    });
    const kept: Kept[] = [
      { tenant: 'kept below', position: 1 },
      { tenant: 'kept on top', position: 0 },
      { tenant: 'kept on top too', position: 0 },
    ];
    for (const one of kept) await keep(kv, one, tiers, options.withoutQuotas === true);
    const look = (call: string): void => {
      for (const { tenant, position } of kept) {
        for (let prompt = 0; prompt < KEPT_PROMPTS; prompt++) {
          const { byTier } = kv.lookup(keptPrompt(prompt), { tenant });
          report.looks += KEPT_BLOCKS;
          const away = KEPT_BLOCKS - byTier[position];
          if (away === 0) continue;
          report.moved += away;
          if (report.moves.length >= 10) continue;
          const where = `${byTier.join('/')} of ${tiers.join('/')}`;
          report.moves.push(
            `round ${report.rounds + 1}: ${away} blocks of ${tenant} after ${call} (${where}; ${JSON.stringify(settings)})`,
          );
        }
      }
    };
    look('the beginning');
    if (options.withoutQuotas !== true && report.moved > 0) return;
    await press(kv, random, options.callsPerRound, report, look);
    stop();
  } finally {
    rmSync(dir, { recursive: true, force: true });
  }
}

const keptPrompt = (prompt: number): number[] =>
  Array.from({ length: KEPT_BLOCKS * LAYOUT.blockTokens + 1 }, (_, i) => prompt * 100 + i);

async function compute(kv: KVRuntime, tokens: readonly number[], tenant: string): Promise<KVSequence> {
  const sequence = await kv.begin(tokens, { tenant, shareWaitMs: 0 });
  for (const { index } of kv.openBlocks(sequence)) kv.writeBlock(sequence, index, (block) => block.fill(7));
  await kv.seal(sequence);
  return sequence;
}

/** Computes its blocks, and has them in its tier before anybody else comes. */
async function keep(
  kv: KVRuntime,
  { tenant, position }: Kept,
  tiers: readonly TierName[],
  isOpen: boolean,
): Promise<void> {
  const quota = KEPT_PROMPTS * (KEPT_BLOCKS + 1) * LAYOUT.blockBytes;
  if (!isOpen) kv.setQuota(tenant, tiers[position], quota);
  for (let prompt = 0; prompt < KEPT_PROMPTS; prompt++) {
    kv.release(await compute(kv, keptPrompt(prompt), tenant));
  }
  await kv.idle();
  if (position === 0) return;
  // its own wish: the first one to come has the runtime for itself
  kv.manager.evict(0, KEPT_PROMPTS * KEPT_BLOCKS, kv.nowUs());
  await kv.idle();
}

/** Calls of tenants without quotas. */
async function press(
  kv: KVRuntime,
  random: SeededRandom,
  calls: number,
  report: QuotaSoakReport,
  look: (call: string) => void,
): Promise<void> {
  const open: KVSequence[] = [];
  const tenant = (): string => `other ${random.below(3)}`;
  const prompt = (): number[] => {
    const topic = random.below(40);
    return Array.from({ length: 1 + random.below(90) }, (_, i) => topic * 1000 + i);
  };
  const reuse = kv.crossRequestCache();
  using paged = kv.pagedCache();
  using scheduler = kv.scheduler({
    preemption: random.chance(0.5) ? 'offload' : 'recompute',
    maxSequences: 4,
  });
  const numbers: number[] = [];
  let number = 0;
  const visits: Readonly<Record<string, () => unknown>> = {
    compute: async () => kv.release(await compute(kv, prompt(), tenant())),
    hold: async () => {
      const sequence = await kv.begin(prompt(), { tenant: tenant(), shareWaitMs: 0 });
      open.push(sequence);
    },
    letGo: () => {
      const sequence = open.shift();
      if (sequence !== undefined)
        kv.release(sequence, { retention: { priority: random.below(101), keepMs: 60_000 } });
    },
    grow: async () => {
      const sequence = open.at(-1);
      if (sequence !== undefined)
        await kv.step([{ sequence, tokens: Array.from({ length: 20 }, (_, i) => i) }]);
    },
    prefetch: () => kv.prefetch(prompt(), { tenant: tenant(), priority: random.below(3) - 1 }),
    state: () => kv.putState(prompt(), new Uint8Array(1 + random.below(9000)).fill(9), { tenant: tenant() }),
    save: () => kv.save(),
    reuse: async () => {
      const id = `reuse ${++number}`;
      const tokens = prompt();
      const who = tenant();
      reuse.tryReuse(id, tokens, who);
      reuse.allocate(id, tokens.length);
      await kv.ready(reuse.sequenceOf(id));
      reuse.release(id);
    },
    paged: () => {
      if (numbers.length > 6) paged.releaseBlock(numbers.shift() as number);
      else numbers.push(...paged.allocateBlock(1));
    },
    schedule: () => {
      if (scheduler.size > 3) return;
      scheduler.add({
        id: `${++number}`,
        tokens: prompt(),
        tenant: tenant(),
        maxTokens: 1 + random.below(30),
      });
    },
    step: () => {
      const { requests } = scheduler.step();
      if (requests.length === 0) return;
      scheduler.stepEnded(requests.filter(({ samples }) => samples).map(({ id }) => ({ id, token: 3 })));
    },
    idle: () => kv.idle(),
    sleep: () => new Promise((resolve) => setTimeout(resolve, random.below(30))), // for the migrator's turns
    move: () => {
      // a move that no request asked for, of whatever a key names
      const [table] = open.flatMap(({ groups }) => groups.map(({ keys }) => keys));
      if (table !== undefined && table.length > 0) {
        kv.manager.move(table.words.slice(0, 4), 1, JobPriority.SCRUB, kv.nowUs());
      }
    },
  };
  const names = Object.keys(visits);
  for (let i = 0; i < calls; i++) {
    const often = random.chance(0.5) ? 'compute' : 'step';
    const name = random.chance(0.5) ? often : names[random.below(names.length)];
    report.calls++;
    let end = 'done';
    if (open.length > 3) visits.letGo();
    try {
      await visits[name]();
    } catch (error) {
      if (error instanceof TierKVError) {
        end = error.code;
        if (end === 'TKV_FULL') while (open.length > 0) visits.letGo();
      } else if (report.refused.length < 10)
        report.refused.push(`${name}: ${error instanceof Error ? error.stack : String(error)}`);
    }
    report.ends.set(`${name}: ${end}`, (report.ends.get(`${name}: ${end}`) ?? 0) + 1);
    look(name);
  }
  for (const sequence of open) kv.release(sequence);
  await kv.idle();
  look('the end');
  kv.manager.checkIntegrity();
}

/** Why the soak failed, a line each; none when it passed. */
export function failuresOf({ moved, moves, refused }: QuotaSoakReport): string[] {
  return [
    ...(moved > 0 ? [`${moved} times a protected block was not in its tier`, ...moves] : []),
    ...refused.map((error) => `refused: ${error}`),
  ];
}

export function lastLine({
  rounds,
  calls,
  evictions,
  migrations,
  looks,
  moved,
  refused,
}: QuotaSoakReport): string {
  return (
    `rounds ${rounds}, calls ${calls}, evictions ${evictions}, demotions ${migrations}, protected blocks looked at ${looks}, ` +
    `moved ${moved}, refused without a cause ${refused.length}`
  );
}
