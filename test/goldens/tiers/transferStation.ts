/**
 * A model of upstream's transfer station (reference commit f90a1e3a), written from its description: for each
 * tier servers that prefer reads and servers that prefer writes, and two queues. For comparison only.
 */

export interface StationTier {
  readonly NRead: number;
  readonly NWrite: number;
  readonly ReadBaseTicks: number;
  readonly WriteBaseTicks: number;
  readonly ReadBytesPerTick: number;
  readonly WriteBytesPerTick: number;
  readonly SaturationQueueDepth: number;
  readonly SingleTransferFraction: number;
}

export type Direction = 'read' | 'write';

interface Job {
  readonly id: number;
  readonly tier: number;
  readonly direction: Direction;
  readonly bytes: number;
  readonly jitter: number;
  readonly submitTick: number;
  /** The server that carries it, and when it is done; -1 while it waits. */
  server: number;
  completeAt: number;
}

const LONGEST = 2 ** 60;

export class TransferStation {
  readonly #tiers: readonly StationTier[];
  readonly #queues: Record<Direction, Job[]>[];
  /** By tier and server, servers that prefer reads first: whether it is busy. */
  readonly #busy: boolean[][];
  #inFlight: Job[] = [];
  #finished: number[] = [];
  #ids = 0;

  constructor(tiers: readonly StationTier[]) {
    this.#tiers = tiers;
    this.#queues = tiers.map(() => ({ read: [], write: [] }));
    this.#busy = tiers.map(({ NRead, NWrite }) => new Array<boolean>(NRead + NWrite).fill(false));
  }

  /** @returns the id of the job, from 1 on */
  submit(tick: number, tier: number, direction: Direction, bytes: number, jitter: number = 0): number {
    this.#advance(tick);
    const id = ++this.#ids;
    const job = { id, tier, direction, bytes, jitter, submitTick: tick, server: -1, completeAt: -1 };
    this.#queues[tier][direction].push(job);
    this.#startWhatCan(tier, tick);
    return id;
  }

  /** Ids of the jobs that are done by then and were not told of yet, in order. */
  poll(tick: number): number[] {
    this.#advance(tick);
    const finished = this.#finished;
    this.#finished = [];
    return finished;
  }

  /** Jobs in service: reads and writes of each tier. */
  get active(): number[] {
    return this.#tiers.flatMap((_, tier) =>
      (['read', 'write'] as const).map(
        (direction) =>
          this.#inFlight.filter((job) => job.tier === tier && job.direction === direction).length,
      ),
    );
  }

  #advance(tick: number): void {
    for (;;) {
      const next = this.#inFlight.toSorted(inOrder)[0];
      if (next === undefined || next.completeAt > tick) return;
      this.#inFlight = this.#inFlight.filter((job) => job !== next);
      this.#finished.push(next.id);
      this.#busy[next.tier][next.server] = false;
      this.#startWhatCan(next.tier, next.completeAt);
    }
  }

  #startWhatCan(tier: number, tick: number): void {
    const { NRead } = this.#tiers[tier];
    const { read, write } = this.#queues[tier];
    for (const [server, isBusy] of this.#busy[tier].entries()) {
      if (isBusy) continue;
      const job = server < NRead ? (read.shift() ?? write.shift()) : (write.shift() ?? read.shift());
      if (job === undefined) return;
      this.#busy[tier][server] = true;
      job.server = server;
      this.#inFlight.push(job);
      job.completeAt = tick + this.#ticksOf(job);
    }
  }

  /** Of a job that is in flight already. */
  #ticksOf({ tier, direction, bytes, jitter }: Job): number {
    const of = this.#tiers[tier];
    const isRead = direction === 'read';
    const base = Math.round(isRead ? of.ReadBaseTicks : of.WriteBaseTicks);
    const bandwidth = isRead ? of.ReadBytesPerTick : of.WriteBytesPerTick;
    const { SaturationQueueDepth: full, SingleTransferFraction: alone } = of;
    const depth = this.#inFlight.filter((job) => job.tier === tier && job.direction === direction).length;
    const ramps = full >= 2 && alone > 0 && alone < 1 && depth < full;
    const share = ramps ? alone + ((1 - alone) * (depth - 1)) / (full - 1) : 1;
    const plain = base + Math.min(LONGEST, Math.trunc(bytes / (bandwidth * share)));
    return jitter > 0 ? Math.round(plain * jitter) : plain;
  }
}

function inOrder(a: Job, b: Job): number {
  const place = ({ direction }: Job): number => (direction === 'read' ? 0 : 1);
  return (
    a.completeAt - b.completeAt ||
    a.submitTick - b.submitTick ||
    a.tier - b.tier ||
    place(a) - place(b) ||
    a.id - b.id
  );
}
