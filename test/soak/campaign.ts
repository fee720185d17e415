/**
 * An hour of traffic on a live runtime, as fast as the machine allows: rounds of requests by several clients
 * at once; now and then the device is destroyed under them, everything is saved, or the runtime is closed and
 * opened again on its files. After each round everything comes to rest, the books are audited, and the
 * process is looked at.
 */

import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { KVRuntime } from '../../src/index.ts';
import { tierName } from '../../src/runtime/index.ts';
import { SeededRandom } from '../../src/testing/index.ts';
import { Client, type Tally } from './client.ts';
import { Gate } from './gate.ts';
import type { BusyHour } from './hour.ts';
import { held } from './judging/rest.ts';
import { idleCores, type Vitals, vitals } from './judging/vitals.ts';
import { Lives, layout, type Totals } from './lives.ts';
import { RequestStream } from './requests.ts';

export interface SoakOptions {
  readonly hour: BusyHour;
  /** How long the traffic would have taken to arrive, in minutes of the trace. */
  readonly minutes: number;
  readonly seed: number;
  readonly roundsPerMinute: number;
  /** Rounds after which the runtime is closed and opened again. */
  readonly roundsPerLife: number;
  /** Share of rounds in which the device is destroyed. */
  readonly lossShare: number;
  /** How long the process is looked at while it has nothing to do, in milliseconds. */
  readonly idleMs: number;
  /** Share of blocks into which wrong bytes are written: 0, but for a control. */
  readonly spoiled?: number;
  readonly progress?: (report: SoakReport, share: number) => void;
}

/** The process at rest after a round. */
export interface Sample extends Vitals {
  /** Hours of the trace that had passed. */
  readonly hours: number;
  readonly requests: number;
  /** Blocks ready in each tier. */
  readonly ready: readonly number[];
  readonly jobs: number;
}

export interface Idle {
  readonly wait: 'spin' | 'sleep';
  readonly cores: number;
  readonly ms: number;
}

export interface SoakReport {
  readonly tally: Tally;
  readonly totals: Totals;
  readonly samples: Sample[];
  readonly idle: Idle[];
  /** What was held although no request was open: one line a finding. */
  readonly unrest: string[];
  restarts: number;
  devicesLost: number;
  saves: number;
  /** What the device was. */
  adapter: string;
}

const CLIENTS = 6;
/** Of HBM's 512 blocks: the rest is for transfers that were given up and still hold their slots. */
const BLOCKS_INSIDE = 360;

export async function soak(options: SoakOptions): Promise<SoakReport> {
  const dir = mkdtempSync(join(tmpdir(), 'tierkv-soak-'));
  const remove = (): void => rmSync(dir, { recursive: true, force: true });
  process.once('exit', remove);
  try {
    return await new Soak(options, dir).run();
  } finally {
    process.off('exit', remove);
    remove();
  }
}

class Soak {
  readonly #options: SoakOptions;
  readonly #lives: Lives;
  readonly #random: SeededRandom;
  readonly #requests: RequestStream;
  readonly #report: SoakReport;
  #losses = 0;

  constructor(options: SoakOptions, dir: string) {
    this.#options = options;
    this.#lives = new Lives(dir);
    this.#random = new SeededRandom(options.seed * 7919 + 1);
    this.#requests = new RequestStream(options.hour, layout.blockTokens, options.seed);
    this.#report = {
      tally: {
        requests: 0,
        promptBlocks: 0,
        blocksCompared: 0,
        wrongBlocks: 0,
        unreadable: 0,
        interrupted: 0,
        waited: 0,
      },
      totals: this.#lives.totals,
      samples: [],
      idle: [],
      unrest: [],
      restarts: 0,
      devicesLost: 0,
      saves: 0,
      adapter: '',
    };
  }

  async run(): Promise<SoakReport> {
    const { minutes, roundsPerMinute, roundsPerLife, lossShare, hour, progress } = this.#options;
    const report = this.#report;
    const rounds = Math.max(1, Math.round(minutes * roundsPerMinute));
    const requestsAll = Math.round((hour.requestsPerHour * minutes) / 60);
    await using lives = this.#lives;
    const { adapter } = (await lives.open()).stores.hbm;
    report.adapter = `${adapter.software ? 'SOFTWARE device ' : ''}${adapter.name}`;
    for (let round = 1; round <= rounds; round++) {
      const upTo = Math.round((requestsAll * round) / rounds);
      await this.#round(upTo - report.tally.requests, this.#random.chance(lossShare));
      await this.#look();
      progress?.(report, round / rounds);
      if (round % roundsPerLife === 0 && round < rounds) await this.#restart('spin');
    }
    await this.#idle('spin');
    await this.#restart('sleep');
    await this.#round(Math.ceil(requestsAll / rounds), false);
    await this.#idle('sleep');
    await lives.close();
    report.devicesLost = lives.devicesLost;
    return report;
  }

  async #round(requests: number, losesDevice: boolean): Promise<void> {
    const { kv } = this.#lives;
    const gate = new Gate(BLOCKS_INSIDE);
    const lossAt = losesDevice ? this.#random.below(requests) : -1;
    let begun = 0;
    const work = async (): Promise<void> => {
      const { tally } = this.#report;
      const client = new Client(kv, gate, tally, this.#random, this.#options.spoiled ?? 0);
      while (begun < requests) {
        if (begun++ === lossAt) {
          this.#losses++;
          kv.device.destroy();
        }
        await client.run(this.#requests.next());
      }
    };
    await Promise.all(Array.from({ length: CLIENTS }, work));
    await this.#rest(kv);
  }

  /** Nothing is under way, a lost device is replaced, and the manager's tables agree with each other. */
  async #rest(kv: KVRuntime): Promise<void> {
    while (this.#lives.devicesLost < this.#losses || kv.describe().runtime.devicePresent !== true) {
      await new Promise((resolve) => setTimeout(resolve, 5));
    }
    await kv.idle();
    kv.manager.checkIntegrity();
    this.#report.unrest.push(
      ...held(kv).map((what) => `after ${this.#report.tally.requests} requests: ${what}`),
    );
  }

  async #look(): Promise<void> {
    const { kv } = this.#lives;
    const { requests } = this.#report.tally;
    this.#report.samples.push({
      ...(await vitals()),
      requests,
      hours: requests / this.#options.hour.requestsPerHour,
      ready: kv.manager.inspect.tiers.map((_, position) => kv.manager.inspect.usage(position).slots.ready),
      jobs: kv.manager.inspect.jobsInFlight,
    });
  }

  async #restart(wait: 'spin' | 'sleep'): Promise<void> {
    if (this.#random.chance(0.5)) {
      await this.#lives.kv.save({ whenFull: 'replace' });
      this.#report.saves++;
    }
    await this.#lives.close();
    await this.#lives.open(wait);
    this.#report.restarts++;
  }

  /** The runtime has just worked and holds blocks in every tier; then no request is open. */
  async #idle(wait: Idle['wait']): Promise<void> {
    const { kv } = this.#lives;
    kv.manager.inspect.tiers.forEach((tier, position) => {
      if (kv.manager.inspect.usage(position).slots.ready > 0) return;
      this.#report.unrest.push(`${tierName(tier)} is empty, so that its rest says nothing`);
    });
    const { idleMs } = this.#options;
    this.#report.idle.push({ wait, ms: idleMs, cores: await idleCores(idleMs) });
  }
}
