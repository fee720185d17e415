/**
 * The driver of a simulated instance. Without lower tiers, or with loads that are billed to the step, every job ends
 * in the `submit` that takes it; otherwise what moves ends when the links have carried it, on the simulation's clock,
 * and seals end at once. There are no bytes to go wrong, so every job ends well, but for reads of what a shared tier
 * has forgotten.
 *
 * The instance submits after each call of the manager, when the call is over. Jobs that follow from an end are taken
 * by the same `submit`. It makes no object for a job: a simulation has some millions of them.
 */

import type { StateVisitor } from '../../runtime/snapshot.ts';
import { type JobId, JobPriority, type JobRoute } from '../../runtime/tables/jobTable.ts';
import type { Completion, EndListener, IssuedJobs, TransferDriver } from '../../runtime/tier/driver.ts';
import { Outcome, type Tier } from '../../runtime/tier/tier.ts';
import { Flights, type LinkModel, type Timeline } from '../links/modeledDriver.ts';
import type { SharedServer } from '../links/sharedServer.ts';
import type { BlockMove, LoadTiming } from './engine.ts';

/** The server of the shared tier, and in which space the blocks of an instance lie there. */
export interface InstanceShare {
  readonly server: SharedServer;
  readonly space: string;
  /** GPUs over which a block lies; all of it is there. */
  readonly ranks: number;
}

interface InstanceDriverConfig {
  /** The instance's tiers, fastest first. */
  readonly tiers: readonly Tier[];
  readonly loads: LoadTiming;
  /** Links of deferred loads; null where loads take no time of their own. */
  readonly links: LinkModel | null;
  readonly shared: InstanceShare | null;
}

export class InstanceDriver implements TransferDriver {
  /** Told of each block that has come from one tier to another, where a listener is set. */
  moved: ((move: BlockMove) => void) | null = null;
  /** Null where jobs end at once. */
  readonly flights: Flights<JobId> | null;
  readonly #top: Tier;
  readonly #last: Tier;
  readonly #timeline: Timeline;
  readonly #loads: LoadTiming;
  readonly #countsLoads: boolean;
  readonly #shared: InstanceShare | null;
  /** The route of the job at hand, filled again for each job. */
  readonly #route: JobRoute;
  /** The end that is told, filled again for each job. */
  readonly #end: { -readonly [field in keyof Completion]: Completion[field] };
  /** Reads of what the shared tier had forgotten, which are under way. */
  readonly #missing: Set<JobId> = new Set();
  /** When the moves began that are under way and will be told of; those before the listener came are not. */
  readonly #startsUs: Map<JobId, number> = new Map();
  #listener: EndListener = () => {};
  #nowUs = 0;
  /** Blocks that came up from lower tiers and no step has paid for yet. */
  #unbilledBlocks = 0;

  constructor({ tiers, loads, links, shared }: InstanceDriverConfig, timeline: Timeline) {
    this.#shared = shared;
    this.#top = tiers[0];
    this.#last = tiers[tiers.length - 1];
    const nothing = { bytes: 0, keys: new Uint32Array(0), keyAt: -1, priority: JobPriority.DEMAND_LOAD };
    this.#route = { from: null, to: this.#top, ...nothing, leaves: false };
    this.#end = { job: 0 as JobId, outcome: Outcome.LOADED, digestLo: 0, digestHi: 0, reason: '' };
    this.#timeline = timeline;
    this.#loads = loads;
    this.#countsLoads = loads.kind === 'billed' && tiers.length > 1;
    this.flights = links === null ? null : new Flights(links, timeline);
  }

  nowUs(): number {
    return this.#nowUs;
  }

  /** Sets the time of the manager's call that is over; steps are settled ahead of the timeline. */
  setNow(nowUs: number): void {
    this.#nowUs = nowUs;
  }

  onEnd(listener: EndListener): void {
    this.#listener = listener;
  }

  submit(jobs: IssuedJobs): void {
    if (this.flights === null) this.#endAll(jobs);
    else this.#carry(jobs, this.flights);
  }

  /** Time that the step that begins now pays for blocks that came up before it, in microseconds. */
  bill(): number {
    if (this.#loads.kind !== 'billed' || this.#unbilledBlocks === 0) return 0;
    const billedUs = this.#unbilledBlocks * this.#blockUs;
    this.#unbilledBlocks = 0;
    return billedUs;
  }

  /** Time that a step pays for a block, in microseconds; 0 where loads go over links. */
  get #blockUs(): number {
    return this.#loads.kind === 'billed' ? Math.trunc(this.#loads.baseUs + this.#loads.usPerBlock) : 0;
  }

  /** A flight is due. */
  land(flight: number, jobs: IssuedJobs): void {
    const job = this.flights?.land(flight) ?? null;
    if (job === null) return;
    this.#nowUs = this.#timeline.nowUs;
    const isMissing = this.#missing.delete(job);
    const startUs = this.#startsUs.get(job);
    if (startUs !== undefined) {
      this.#startsUs.delete(job);
      jobs.route(job, this.#route);
      this.#tellMove(startUs, this.#nowUs, isMissing);
    }
    if (this.#shared !== null && !isMissing) {
      const route = this.#route;
      jobs.route(job, route);
      const { server, space, ranks } = this.#shared;
      if (route.to === this.#last) server.store(space, route.keys, route.keyAt, ranks * route.bytes);
    }
    this.#tell(job, isMissing ? Outcome.MISSING : Outcome.LOADED, 0, 0);
    this.submit(jobs);
  }

  visitState(visitor: StateVisitor): void {
    this.flights?.visitState(visitor);
    visitor.value(
      () => [...this.#missing],
      (saved) => {
        this.#missing.clear();
        for (const job of saved) this.#missing.add(job);
      },
    );
    this.#unbilledBlocks = visitor.number(this.#unbilledBlocks);
  }

  #endAll(jobs: IssuedJobs): void {
    for (let job = jobs.nextJob(); job !== 0; job = jobs.nextJob()) {
      const isBilled = this.#countsLoads && this.#isReload(job, jobs);
      if (isBilled) this.#unbilledBlocks++;
      if (this.moved !== null) {
        jobs.route(job, this.#route);
        this.#tellMove(this.#nowUs, this.#nowUs + (isBilled ? this.#blockUs : 0), false);
      }
      this.#tell(job, Outcome.LOADED, 0, 0);
    }
  }

  /** Seals end at once, with a digest that names the key; what moves goes over the links. */
  #carry(jobs: IssuedJobs, flights: Flights<JobId>): void {
    const route = this.#route;
    let moves = false;
    for (let job = jobs.nextJob(); job !== 0; job = jobs.nextJob()) {
      jobs.route(job, route);
      if (route.from === null) {
        const { keys, keyAt: at } = route;
        const digestLo = (keys[at] ^ keys[at + 2]) >>> 0;
        this.#tell(job, Outcome.LOADED, digestLo, (keys[at + 1] ^ keys[at + 3]) >>> 0);
      } else {
        if (this.moved !== null) this.#startsUs.set(job, this.#timeline.nowUs);
        this.#send(job, flights);
        moves = true;
      }
    }
    if (moves) flights.depart();
  }

  /** Over the instance's own links, and where the shared tier is at their end over the server's too. */
  #send(job: JobId, flights: Flights<JobId>): void {
    const route = this.#route;
    const { from, to, keys, keyAt, bytes } = route;
    if (this.#shared === null || (from !== this.#last && to !== this.#last)) {
      flights.add(job, route);
      return;
    }
    const { server, space, ranks } = this.#shared;
    const isRead = from === this.#last;
    const endUs = isRead
      ? server.readEndUs(space, keys, keyAt, ranks * bytes, this.#nowUs)
      : server.writeEndUs(space, keys, keyAt, ranks * bytes, this.#nowUs);
    if (endUs !== undefined) {
      flights.add(job, route, endUs);
      return;
    }
    if (isRead) this.#missing.add(job);
    flights.await(job, this.#nowUs + Math.ceil(server.config.lookupUs));
  }

  #isReload(job: JobId, jobs: IssuedJobs): boolean {
    jobs.route(job, this.#route);
    const { from, to } = this.#route;
    return from !== null && to === this.#top && from !== this.#top;
  }

  /** Tells of the move that `#route` has; copies within a tier and seals do not count. */
  #tellMove(startUs: number, endUs: number, isMissing: boolean): void {
    const { from, to, bytes, keys, keyAt, priority, leaves } = this.#route;
    if (from === null || from === to || keyAt === -1) return;
    const way = { from, to, bytes, key: keys.subarray(keyAt, keyAt + 4) };
    this.moved?.({ ...way, startUs, endUs, priority, leaves, isMissing });
  }

  #tell(job: JobId, outcome: Outcome, digestLo: number, digestHi: number): void {
    const end = this.#end;
    end.job = job;
    end.outcome = outcome;
    end.digestLo = digestLo;
    end.digestHi = digestHi;
    this.#listener(end);
  }
}
