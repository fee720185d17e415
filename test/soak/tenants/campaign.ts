/**
 * Several tenants with the same prompts, at every door that allocates, with calls in any order: written or not, sealed or not,
 * called off, released, forked, lost. Whatever a call hands out or lets a tenant look at, in blocks that are open or found, holds
 * words of that tenant or zeros.
 *
 * Every byte that a tenant writes is its mark, so that memory is full of marks after a while. On a top tier so small that slots pass
 * from tenant to tenant all the time. Without a device the doors of a runtime go on host memory; every third round is on a device.
 */

import { createHash } from 'node:crypto';
import { KVRuntime, type KVSequence, kvLayout, TierKVError } from '../../../src/index.ts';
import type { Granularity } from '../../../src/runtime/geometry/box.ts';
import type { Sequence } from '../../../src/runtime/index.ts';
import { SeededRandom } from '../../../src/testing/index.ts';
import { type KVBlockDescriptor, TieredKVStorage } from '../../../src/views/index.ts';
import { testAdapter } from '../../adapter.ts';

export interface TenantSoakOptions {
  readonly seed: number;
  /** Whether another round follows, asked before each. */
  readonly goesOn: (roundsDone: number) => boolean;
  readonly callsPerRound: number;
  /** Control: slots that pass to another tenant are not wiped. */
  readonly withoutScrub?: boolean;
  readonly progress?: (report: TenantSoakReport) => void;
}

export interface TenantSoakReport {
  rounds: number;
  calls: number;
  /** Bytes that were looked at, and of these bytes that are not zero. */
  seenBytes: number;
  markedBytes: number;
  /** Words that were another tenant's. */
  foreignWords: number;
  /** The first few of them, and refusals that nothing explains: a line each. */
  readonly foreign: string[];
  readonly refused: string[];
  /** How often each call ended in each way. */
  readonly ends: Map<string, number>;
}

const LAYOUT = kvLayout({ layers: 2, kvHeads: 2, headDim: 16, dtype: 'f16', blockTokens: 8 });
const TENANTS = ['north', 'east', 'south', 'west'];
/** Of blocks that have no tenant: what no tenant may see, and what sees no tenant's words. */
const UNWRITTEN = 0xee;
const TOP_BLOCKS = 24;
const WORKERS = 4;
const STATE_BYTES_MOST = 3 * LAYOUT.blockBytes;
/** As src/embed/prefixStates.ts writes it. */
const HEAD_BYTES = 72;
const HEAD_MAGIC = 0x544b5653;
const PROMPTS = 6;

const markOf = (tenant: string): number => 0xa1 + TENANTS.indexOf(tenant);

function promptOf(random: SeededRandom): number[] {
  const topic = random.below(PROMPTS);
  const length = 1 + random.below(60);
  return Array.from({ length }, (_, i) => topic * 1000 + i);
}

export async function soakTenants(options: TenantSoakOptions): Promise<TenantSoakReport> {
  const random = new SeededRandom(options.seed * 6337 + 11);
  const report: TenantSoakReport = {
    rounds: 0,
    calls: 0,
    seenBytes: 0,
    markedBytes: 0,
    foreignWords: 0,
    foreign: [],
    refused: [],
    ends: new Map(),
  };
  while (options.goesOn(report.rounds)) {
    await new Round(options, random, report).run();
    report.rounds++;
    options.progress?.(report);
  }
  return report;
}

interface OpenedSequence {
  readonly tenant: string;
  readonly sequence: KVSequence;
}

interface Reused {
  readonly id: string;
  readonly tenant: string;
  readonly tokens: number[];
}

interface Stored {
  readonly sequenceId: string;
  readonly tenant: string;
  readonly tokens: number[];
  readonly blocks: KVBlockDescriptor[];
}

/** One runtime and one storage, and what is open in them. */
class Round {
  readonly #options: TenantSoakOptions;
  readonly #random: SeededRandom;
  readonly #report: TenantSoakReport;
  #kv!: KVRuntime;
  #storage: TieredKVStorage | undefined;
  #number = 0;
  readonly #sequences: OpenedSequence[] = [];
  readonly #reused: Reused[] = [];
  readonly #stored: Stored[] = [];
  readonly #paged: number[] = [];
  readonly #scheduled: Map<string, string> = new Map();

  constructor(options: TenantSoakOptions, random: SeededRandom, report: TenantSoakReport) {
    this.#options = options;
    this.#random = random;
    this.#report = report;
  }

  async run(): Promise<void> {
    const random = this.#random;
    const onDevice = this.#report.rounds % 3 === 2;
    const bytes = TOP_BLOCKS * LAYOUT.blockBytes;
    const hasGroups = random.chance(0.25);
    await using kv = await KVRuntime.open({
      layout: LAYOUT,
      model: 'soak@1',
      secretKey: new Uint8Array(32).fill(23),
      notice: () => {},
      offloadThreshold: random.chance(0.5) ? 1 : 0.8,
      ...(onDevice ? { hbmBytes: bytes, ddrBytes: 2 * bytes, adapter: testAdapter } : { ddrBytes: bytes }),
      ...(hasGroups
        ? {
            layerGroups: [
              { first: 0, end: 1 },
              { first: 1, end: 2 },
            ],
          }
        : {}),
      ...(this.#options.withoutScrub === true ? { scrub: false } : {}),
    });
    this.#kv = kv;
    this.#storage = onDevice ? await this.#openStorage() : undefined;
    const reuse = hasGroups ? undefined : kv.crossRequestCache();
    const paged = hasGroups ? undefined : kv.pagedCache();
    const scheduler = hasGroups
      ? undefined
      : kv.scheduler({ maxBatchedTokens: 40, maxSequences: 4, preemption: 'recompute' });
    const visits: [string, () => Promise<unknown>][] = [
      ['begin', () => this.#begin()],
      ['begin', () => this.#begin()],
      ['write', () => this.#write()],
      ['grow', () => this.#grow()],
      ['seal', () => this.#seal()],
      ['seal', () => this.#seal()],
      ['fork', () => this.#fork()],
      ['truncate', () => this.#truncate()],
      ['recover', () => this.#recover()],
      ['end', () => this.#end()],
      ['end', () => this.#end()],
      ['state', () => this.#state()],
      ['prefetch', async () => kv.prefetch(promptOf(random), { tenant: this.#tenant() })],
      ['evict', async () => kv.manager.evict(0, 1 + random.below(6), kv.nowUs())],
    ];
    if (reuse !== undefined && paged !== undefined && scheduler !== undefined) {
      visits.push(
        ['tryReuse', async () => this.#tryReuse(reuse)],
        ['reuse', () => this.#reuse(reuse)],
        ['reuse', () => this.#reuse(reuse)],
        ['paged', () => this.#pagedBlocks(paged)],
        ['schedule', async () => this.#schedule(scheduler)],
        ['step', () => this.#step(scheduler)],
        ['step', () => this.#step(scheduler)],
      );
    }
    if (this.#storage !== undefined) {
      const storage = this.#storage;
      for (let i = 0; i < 5; i++) visits.push(['stored', () => this.#visitStorage(storage)]);
    }
    await Promise.all(
      Array.from({ length: WORKERS }, async () => {
        for (let i = 0; i < this.#options.callsPerRound / WORKERS; i++) {
          const [name, visit] = visits[random.below(visits.length)];
          await this.#counted(name, visit);
        }
      }),
    );
    for (const { sequence } of this.#sequences) if (!sequence.ended) kv.release(sequence);
    for (const { id } of this.#reused) reuse?.release(id);
    scheduler?.close();
    paged?.[Symbol.dispose]();
    await kv.idle();
    kv.manager.checkIntegrity();
    await this.#storage?.close();
  }

  async #openStorage(): Promise<TieredKVStorage> {
    const capacityBytes = TOP_BLOCKS * LAYOUT.blockBytes;
    return await TieredKVStorage.open({
      adapter: testAdapter,
      notice: () => {},
      pool: {
        layout: LAYOUT,
        blockSize: LAYOUT.blockTokens,
        model: 'soak@1',
        secretKey: new Uint8Array(32).fill(29),
      },
      tiers: [
        { tier: 'hbm', capacityBytes },
        { tier: 'ddr', capacityBytes },
      ],
    });
  }

  async #counted(name: string, visit: () => Promise<unknown>): Promise<void> {
    const { ends, refused } = this.#report;
    this.#report.calls++;
    let end = 'done';
    try {
      await visit();
    } catch (error) {
      if (error instanceof TierKVError) end = error.code;
      else if (refused.length < 10)
        refused.push(`${name}: ${error instanceof Error ? error.stack : String(error)}`);
    }
    ends.set(`${name}: ${end}`, (ends.get(`${name}: ${end}`) ?? 0) + 1);
  }

  #tenant(): string {
    return TENANTS[this.#random.below(TENANTS.length)];
  }

  #some<T>(from: readonly T[]): T | undefined {
    return from.length === 0 ? undefined : from[this.#random.below(from.length)];
  }

  // What is looked at.

  /** These bytes are shown to the tenant. */
  #saw(bytes: Uint8Array, mark: number, where: string): void {
    const report = this.#report;
    report.seenBytes += bytes.length;
    let words = 0;
    for (let i = isHeadOf(bytes, mark) ? HEAD_BYTES : 0; i < bytes.length; i += 4) {
      let isForeign = false;
      for (let b = i; b < Math.min(i + 4, bytes.length); b++) {
        if (bytes[b] !== 0) report.markedBytes++;
        isForeign ||= bytes[b] !== 0 && bytes[b] !== mark;
      }
      if (isForeign) words++;
    }
    report.foreignWords += words;
    if (words > 0 && report.foreign.length < 10) {
      report.foreign.push(
        `round ${report.rounds + 1}: ${words} words at ${where}, marks ${[...new Set(bytes)].join(', ')} seen by ${mark}`,
      );
    }
  }

  /** All blocks of a sequence that are in place, the parts included that hold no token. */
  async #look({ tenant, sequence }: OpenedSequence, where: string): Promise<void> {
    for (let group = 0; group < sequence.groups.length; group++) {
      const { table } = sequence.groups[group];
      for (let i = 0; i < sequence.blocks && !sequence.ended; i++) {
        if (this.#kv.manager.readableBlock(table, i) === undefined) continue;
        this.#saw(await this.#kv.readBlock(sequence, i, group), markOf(tenant), `block ${i} of ${where}`);
      }
    }
  }

  /** All that a table of the manager leads to. */
  async #lookAt(table: Sequence, mark: number, where: string): Promise<void> {
    const { slabs, entries, blocks, views } = this.#kv.places(table);
    if (views !== undefined) {
      for (const view of views) this.#saw(view, mark, where);
      return;
    }
    const { device } = this.#kv;
    const size = LAYOUT.blockBytes;
    if (blocks === 0) return;
    const read = device.createBuffer({ size: blocks * size, usage: 0x1 | 0x8 });
    const encoder = device.createCommandEncoder();
    for (let i = 0; i < blocks; i++) {
      encoder.copyBufferToBuffer(slabs[entries[2 * i]], entries[2 * i + 1], read, i * size, size);
    }
    device.queue.submit([encoder.finish()]);
    await this.#kv.waitFor(() => read.mapAsync(0x1));
    const all = new Uint8Array(read.getMappedRange());
    for (let i = 0; i < blocks; i++) this.#saw(all.subarray(i * size, (i + 1) * size), mark, where);
    read.destroy();
  }

  /** Fills what a table leads to, from block `from` on. */
  #fill(table: Sequence, from: number, mark: number): void {
    const { slabs, entries, blocks, views } = this.#kv.places(table);
    for (let i = from; i < blocks; i++) {
      if (views !== undefined) views[i].fill(mark);
      else {
        const bytes = new Uint8Array(LAYOUT.blockBytes).fill(mark);
        this.#kv.device.queue.writeBuffer(slabs[entries[2 * i]], entries[2 * i + 1], bytes);
      }
    }
  }

  // Sequences.

  async #begin(): Promise<void> {
    if (this.#sequences.length > 4) await this.#end();
    const tenant = this.#tenant();
    const arriving = this.#random.chance(0.3);
    const sequence = await this.#kv.begin(promptOf(this.#random), { tenant, shareWaitMs: 0, arriving });
    const opened = { tenant, sequence };
    this.#sequences.push(opened);
    await this.#look(opened, 'begin');
  }

  async #write(): Promise<void> {
    const opened = this.#some(this.#sequences);
    if (opened === undefined || opened.sequence.ended) return;
    const { tenant, sequence } = opened;
    for (const { index, group } of this.#kv.openBlocks(sequence)) {
      if (this.#random.chance(0.2)) continue;
      this.#kv.writeBlock(
        sequence,
        index,
        (block) => {
          this.#saw(block, markOf(tenant), 'what a filler is given');
          block.fill(markOf(tenant));
        },
        group,
      );
    }
  }

  async #grow(): Promise<void> {
    const opened = this.#some(this.#sequences);
    if (opened === undefined) return;
    const { sequence } = opened;
    const more = Array.from({ length: 1 + this.#random.below(20) }, (_, i) => 9000 + i);
    if (this.#random.chance(0.5)) await this.#kv.step([{ sequence, tokens: more }]);
    else {
      const { words, length } = sequence.tokens;
      await this.#kv.append(sequence, [...words.subarray(0, length), ...more]);
    }
    await this.#look(opened, 'append or step');
  }

  async #seal(): Promise<void> {
    const opened = this.#some(this.#sequences);
    if (opened === undefined) return;
    await this.#kv.seal(opened.sequence, { tail: this.#random.chance(0.5) });
    await this.#look(opened, 'seal');
  }

  async #fork(): Promise<void> {
    const opened = this.#some(this.#sequences);
    if (opened === undefined) return;
    const { tenant, sequence } = opened;
    const forked = await this.#kv.fork(sequence, this.#random.below(sequence.length + 1));
    if (forked === 'interrupted') return;
    this.#sequences.push({ tenant, sequence: forked });
    await this.#look({ tenant, sequence: forked }, 'fork');
  }

  async #truncate(): Promise<void> {
    const opened = this.#some(this.#sequences);
    if (opened === undefined) return;
    await this.#kv.truncate(opened.sequence, this.#random.below(opened.sequence.length + 1));
    await this.#look(opened, 'truncate');
  }

  async #recover(): Promise<void> {
    const opened = this.#some(this.#sequences);
    if (opened === undefined) return;
    const group = this.#random.below(opened.sequence.groups.length);
    const what = this.#random.below(3);
    if (what === 0) await this.#kv.recover(opened.sequence);
    else if (what === 1) await this.#kv.readyLayers(opened.sequence, group);
    else await this.#kv.nextPart(opened.sequence, { maxTokens: 1 + this.#random.below(30) });
    await this.#look(opened, 'recover, or a part');
  }

  async #end(): Promise<void> {
    const at = this.#random.below(Math.max(1, this.#sequences.length));
    const [opened] = this.#sequences.splice(at, 1);
    if (opened === undefined || opened.sequence.ended) return;
    if (this.#random.chance(0.7)) this.#kv.release(opened.sequence);
    else this.#kv.cancel(opened.sequence);
  }

  async #state(): Promise<void> {
    const tenant = this.#tenant();
    const tokens = promptOf(this.#random);
    if (this.#random.chance(0.5)) {
      const bytes = 1 + this.#random.below(STATE_BYTES_MOST);
      await this.#kv.putState(tokens, new Uint8Array(bytes).fill(markOf(tenant)), { tenant });
    }
    const found = await this.#kv.getState(tokens, { tenant });
    if (found !== undefined) this.#saw(found.state, markOf(tenant), 'a state');
  }

  // Reuse by tables, in any order of its calls.

  #tryReuse(reuse: ReturnType<KVRuntime['crossRequestCache']>): void {
    const tenant = this.#tenant();
    const tokens = promptOf(this.#random);
    const id = `reuse ${++this.#number}`;
    reuse.tryReuse(id, tokens, tenant);
    this.#reused.push({ id, tenant, tokens });
  }

  async #reuse(reuse: ReturnType<KVRuntime['crossRequestCache']>): Promise<void> {
    const used = this.#some(this.#reused);
    if (used === undefined) return;
    const { id, tenant, tokens } = used;
    const random = this.#random;
    const what = random.below(6);
    if (what === 0) reuse.allocate(id, random.chance(0.8) ? tokens.length : 1 + random.below(60));
    else if (what === 1) {
      const table = reuse.sequenceOf(id);
      await this.#kv.ready(table);
      await this.#lookAt(table, markOf(tenant), 'a table of reuse');
    } else if (what === 2) {
      const table = reuse.sequenceOf(id);
      await this.#kv.ready(table);
      if (random.chance(0.8)) this.#fill(table, table.matched, markOf(tenant));
    } else if (what === 3) {
      // now and then with other tokens, or in another tenant's name
      const asked = random.chance(0.9) ? tokens : promptOf(random);
      reuse.commit(id, asked, null, random.chance(0.8), random.chance(0.9) ? tenant : this.#tenant());
    } else if (what === 4)
      await this.#lookAt(reuse.sequenceOf(id), markOf(tenant), 'a table of reuse, not awaited');
    else {
      reuse.release(id);
      this.#reused.splice(this.#reused.indexOf(used), 1);
    }
  }

  // Private blocks by number: of no tenant.

  async #pagedBlocks(paged: ReturnType<KVRuntime['pagedCache']>): Promise<void> {
    const random = this.#random;
    const half = LAYOUT.blockBytes / 2;
    const what = random.below(4);
    const block = this.#some(this.#paged);
    if (what === 0 || block === undefined) this.#paged.push(...paged.allocateBlock(1 + random.below(3)));
    else if (what === 1) {
      const keyCache = new Uint8Array(half).fill(UNWRITTEN);
      await paged.storeBlockData(block, { keyCache, valueCache: keyCache, tokenCount: LAYOUT.blockTokens });
    } else if (what === 2) {
      const { keyCache, valueCache } = await paged.getBlockData(block);
      this.#saw(keyCache, UNWRITTEN, 'keys of a paged block');
      this.#saw(valueCache, UNWRITTEN, 'values of a paged block');
    } else {
      this.#paged.splice(this.#paged.indexOf(block), 1);
      paged.releaseBlock(block);
    }
  }

  // The scheduler's plans.

  #schedule(scheduler: ReturnType<KVRuntime['scheduler']>): void {
    const tenant = this.#tenant();
    const id = `request ${++this.#number}`;
    scheduler.add({ id, tokens: promptOf(this.#random), tenant, maxTokens: 1 + this.#random.below(12) });
    this.#scheduled.set(id, tenant);
    if (this.#random.chance(0.1)) scheduler.abort(id);
  }

  async #step(scheduler: ReturnType<KVRuntime['scheduler']>): Promise<void> {
    const { requests } = scheduler.step();
    try {
      for (const { id, sequence, start } of requests) {
        const tenant = this.#scheduled.get(id) ?? '';
        await this.#lookAt(sequence, markOf(tenant), `the table of ${id}`).catch((error: unknown) => {
          if (!(error instanceof TierKVError)) throw error; // blocks that still come
        });
        if (this.#random.chance(0.9)) this.#fillRows(sequence, start, tenant);
      }
    } finally {
      if (requests.length > 0) {
        const sampled = requests.filter(({ samples }) => samples).map(({ id }) => ({ id, token: 9 }));
        if (this.#random.chance(0.9)) scheduler.stepEnded(sampled);
        else scheduler.stepFailed();
      }
    }
  }

  /** The blocks that a step writes, whole: no other request reads them. */
  #fillRows(sequence: Sequence, start: number, tenant: string): void {
    const first = Math.floor(start / LAYOUT.blockTokens);
    for (let i = first; i < sequence.length; i++) {
      const block = this.#kv.manager.openBlock(sequence, i);
      if (block === undefined) continue;
      const { slabs, views, entries } = this.#kv.places(sequence);
      if (views !== undefined) views[i].fill(markOf(tenant));
      else {
        const bytes = new Uint8Array(LAYOUT.blockBytes).fill(markOf(tenant));
        this.#kv.device.queue.writeBuffer(slabs[entries[2 * i]], entries[2 * i + 1], bytes);
      }
    }
  }

  // The storage with its pool: allocate, write, commit, read, move and deallocate in any order.

  async #visitStorage(storage: TieredKVStorage): Promise<void> {
    const random = this.#random;
    const { pool } = storage;
    const stored = this.#some(this.#stored);
    const what = random.below(8);
    if (what <= 1 || stored === undefined) {
      const tenant = this.#tenant();
      const tokens = promptOf(random);
      const sequenceId = `stored ${++this.#number}`;
      const granularity = random.below(4) as Granularity;
      const blocks = pool.allocate({
        sequenceId,
        requestId: sequenceId,
        numTokens: tokens.length,
        layerIds: [0, 1],
        ...(random.chance(0.5) ? { granularity } : {}),
        ...(random.chance(0.7) ? { tokenIds: tokens } : {}),
        ...(random.chance(0.3) ? { preferredTier: 1 } : {}),
        tenant,
      });
      this.#stored.push({ sequenceId, tenant, tokens, blocks });
      return;
    }
    const { sequenceId, tenant, tokens, blocks } = stored;
    if (what === 2 || what === 3) {
      const open = blocks.filter(({ isSealed }) => !isSealed && random.chance(0.8));
      await storage.writeBlocks(
        open.map(({ sizeBytes }) => new Uint8Array(sizeBytes).fill(markOf(tenant))),
        open,
      );
    } else if (what === 4) await storage.commit(sequenceId, tokens);
    else if (what === 5 || what === 6) {
      const tier = random.chance(0.3) ? 'ddr' : 'hbm';
      for (const bytes of await storage.readBlocks(blocks, tier)) {
        this.#saw(bytes, markOf(tenant), `a block of the storage in ${tier}`);
      }
    } else {
      this.#stored.splice(this.#stored.indexOf(stored), 1);
      pool.deallocate(blocks);
    }
  }
}

/**
 * The head of a state names it by its hash: whose it is follows from that, since all bytes of a state are its tenant's mark. An older
 * state of the same tenant may lie in a block that its tenant got again.
 */
function isHeadOf(bytes: Uint8Array, mark: number): boolean {
  if (bytes.length < HEAD_BYTES) return false;
  const head = new DataView(bytes.buffer, bytes.byteOffset, HEAD_BYTES);
  const length = head.getFloat64(8, true);
  if (head.getUint32(0, true) !== HEAD_MAGIC || !(length > 0 && length <= STATE_BYTES_MOST)) return false;
  const hash = createHash('sha256').update(new Uint8Array(length).fill(mark)).digest();
  return Buffer.compare(bytes.subarray(40, HEAD_BYTES), hash) === 0;
}

/** Why the soak failed, a line each; none when it passed. */
export function failuresOf({ foreignWords, foreign, refused }: TenantSoakReport): string[] {
  return [
    ...(foreignWords > 0 ? [`${foreignWords} words of another tenant`, ...foreign] : []),
    ...refused.map((error) => `refused: ${error}`),
  ];
}

export function lastLine({
  rounds,
  calls,
  seenBytes,
  markedBytes,
  foreignWords,
  refused,
}: TenantSoakReport): string {
  return (
    `rounds ${rounds}, calls ${calls}, bytes looked at ${seenBytes}, of these written ${markedBytes}, ` +
    `words of another tenant ${foreignWords}, refused without a cause ${refused.length}`
  );
}
