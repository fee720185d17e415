/**
 * The server of docs/guide/embedding.md with 64 clients on an HBM of 188 blocks, on the software device, over
 * DDR and a disk that moves 1 MiB a second. Clients leave, devices are destroyed. After each round all
 * clients are done, everything comes to rest, the books are audited, and the process is looked at.
 */

import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { KVRuntime, type KVRuntimeConfig, kvLayout } from '../../../src/index.ts';
import { SeededRandom } from '../../../src/testing/index.ts';
import { testAdapter } from '../../adapter.ts';
import { loadServer, type Server } from '../../examples/serverOfDocs.ts';
import { held } from '../judging/rest.ts';
import { type Vitals, vitals } from '../judging/vitals.ts';
import { BeginTimes } from './beginTimes.ts';
import { CheckingModel, type Compared } from './checkingModel.ts';
import { Client, type Served, tenants } from './clients.ts';
import { ThrottledStore } from './throttledStore.ts';

export interface ServerSoakOptions {
  readonly seed: number;
  /** Whether another round follows, asked before each. */
  readonly goesOn: (roundsDone: number) => boolean;
  readonly requestsPerRound: number;
  /** Share of rounds in which the device is destroyed. */
  readonly lossShare: number;
  /** Bytes that the disk moves in a second; 0: without a disk. */
  readonly diskBytesPerS: number;
  /** Share of writes of KV that are wrong: 0, but for a control. */
  readonly spoiled?: number;
  readonly progress?: (report: ServerSoakReport) => void;
}

/** The process at rest after a round. */
export interface RestSample extends Vitals {
  /** Since the first round began. */
  readonly minutes: number;
  readonly requests: number;
}

export interface ServerSoakReport {
  readonly served: Served;
  readonly compared: Compared;
  readonly times: BeginTimes;
  readonly samples: RestSample[];
  /** What was held although no request was open: a line each. */
  readonly unrest: string[];
  rounds: number;
  devicesLost: number;
  /** Counters of the runtime, at the end. */
  counters: Readonly<Record<string, number>>;
  adapter: string;
}

export const CLIENTS = 64;
const LAYOUT = kvLayout({ layers: 2, kvHeads: 2, headDim: 64, dtype: 'f16', blockTokens: 16 });
/** Room for 200 blocks: 12 of them are landing room, which leaves 188. */
const HBM_BLOCKS = 200;
const DDR_BLOCKS = 600;
const NVME_BLOCKS = 4096;
/** Share of a sequence's decode steps after which all of its blocks are compared. */
const WHOLE_SHARE = 0.2;

export async function soakServer(options: ServerSoakOptions): Promise<ServerSoakReport> {
  const dir = mkdtempSync(join(tmpdir(), 'tierkv-soak-server-'));
  const remove = (): void => rmSync(dir, { recursive: true, force: true });
  process.once('exit', remove);
  try {
    return await run(options, dir);
  } finally {
    process.off('exit', remove);
    remove();
  }
}

function configOf(dir: string, diskBytesPerS: number): KVRuntimeConfig {
  return {
    layout: LAYOUT,
    model: 'soak@1',
    secretKey: new Uint8Array(32).fill(13),
    hbmBytes: HBM_BLOCKS * LAYOUT.blockBytes,
    ddrBytes: DDR_BLOCKS * LAYOUT.blockBytes,
    adapter: testAdapter,
    ...(diskBytesPerS === 0 ? {} : { nvme: { dir, bytes: NVME_BLOCKS * LAYOUT.blockBytes } }),
    wrapStores: ({ nvme, ...stores }) => ({
      ...stores,
      ...(nvme === undefined ? {} : { nvme: new ThrottledStore(nvme, diskBytesPerS) }),
    }),
  };
}

async function run(options: ServerSoakOptions, dir: string): Promise<ServerSoakReport> {
  const random = new SeededRandom(options.seed * 7919 + 3);
  const Server = await loadServer();
  await using kv = await KVRuntime.open(configOf(dir, options.diskBytesPerS));
  const model = new CheckingModel(LAYOUT, () => kv.device, random, WHOLE_SHARE, options.spoiled ?? 0);
  const times = new BeginTimes();
  const server: Server = new Server(times.timed(kv, LAYOUT.blockTokens), model, LAYOUT.blockTokens);
  const { adapter } = kv.stores.hbm;
  const report: ServerSoakReport = {
    served: { requests: 0, answered: 0, disconnected: 0, tokens: 0, wrongTokens: 0, rejected: [], hung: [] },
    compared: model.compared,
    times,
    samples: [],
    unrest: [],
    rounds: 0,
    devicesLost: 0,
    counters: {},
    adapter: `${adapter.software ? 'SOFTWARE device ' : ''}${adapter.name}`,
  };
  const clients = Array.from(
    { length: CLIENTS },
    (_, i) => new Client(() => server, report.served, random, tenants[i % tenants.length]),
  );
  const beganMs = performance.now();
  let losses = 0;
  while (options.goesOn(report.rounds) && report.served.hung.length === 0) {
    const losesAt = random.chance(options.lossShare) ? random.below(options.requestsPerRound) : -1;
    if (losesAt >= 0) losses++;
    await round(clients, options.requestsPerRound, (request) => {
      if (request === losesAt) kv.device.destroy();
    });
    report.rounds++;
    if (report.served.hung.length > 0) break; // nothing comes to rest any more
    await rest(kv, losses);
    report.unrest.push(...held(kv).map((what) => `after round ${report.rounds}: ${what}`));
    report.devicesLost = kv.devicesLost;
    report.counters = kv.metrics().counters;
    const minutes = (performance.now() - beganMs) / 60_000;
    report.samples.push({ ...(await vitals()), minutes, requests: report.served.requests });
    options.progress?.(report);
  }
  return report;
}

/** All clients ask at once, one request after the other, until as many have begun as the round has. */
async function round(
  clients: readonly Client[],
  requests: number,
  before: (request: number) => void,
): Promise<void> {
  let begun = 0;
  await Promise.all(
    clients.map(async (client) => {
      while (begun < requests) {
        before(begun++);
        await client.ask();
      }
    }),
  );
}

/** Nothing is under way, a lost device is replaced, and the manager's tables agree with each other. */
async function rest(kv: KVRuntime, losses: number): Promise<void> {
  while (kv.devicesLost < losses || kv.describe().runtime.devicePresent !== true) {
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
  // where a batch of the migrator has ended, it may begin the next one
  do {
    await kv.idle();
    await new Promise((resolve) => setImmediate(resolve));
  } while (kv.manager.inspect.jobsInFlight > 0);
  kv.manager.checkIntegrity();
}
