/**
 * Everything that can be done with sequences, and a scheduler and the other doors beside them, by 64 clients on an HBM of 188
 * blocks, while devices are destroyed again and again. An oracle knows every byte. After each round all
 * clients are done, everything comes to rest, what is cached is read and compared, and the books are audited.
 *
 * Every second round has layer groups, which a scheduler and the other doors do not take: their clients do as the others there.
 */

import { KVRuntime, kvLayout } from '../../../src/index.ts';
import { SeededRandom } from '../../../src/testing/index.ts';
import { testAdapter } from '../../adapter.ts';
import { takeOutTheRule } from '../../embed/withoutTheRule.ts';
import { held } from '../judging/rest.ts';
import { tenants } from '../server/clients.ts';
import { DoorClients } from './doorClients.ts';
import { type Compared, Oracle } from './oracle.ts';
import { SchedulerClients } from './schedulerClients.ts';
import { SequenceClient, type Served } from './sequenceClient.ts';

export interface LossSoakOptions {
  readonly seed: number;
  /** Whether another round follows, asked before each. */
  readonly goesOn: (roundsDone: number) => boolean;
  readonly requestsPerRound: number;
  /** Calls after which the device is destroyed, or up to twice that number. */
  readonly callsPerDevice: number;
  /** Control: blocks are sealed without having been written. */
  readonly withoutTheRule?: boolean;
  readonly progress?: (report: LossSoakReport) => void;
}

export interface LossSoakReport {
  readonly served: Served;
  readonly compared: Compared;
  rounds: number;
  devicesLost: number;
  wrongAnswers: number;
  /** What was held although no request was open: a line each. */
  readonly unrest: string[];
}

export const CLIENTS = 64;
/** Of these, clients of the scheduler, where there is one, and of the other doors. */
const SCHEDULED = 16;
const AT_DOORS = 16;
const LAYOUT = kvLayout({ layers: 2, kvHeads: 2, headDim: 64, dtype: 'f16', blockTokens: 16 });
/** Room for 200 blocks: 12 of them are landing room, which leaves 188. */
const HBM_BLOCKS = 200;
const DDR_BLOCKS = 400;
const TOPICS = 5;
const QUESTIONS = 12;

export async function soakLosses(options: LossSoakOptions): Promise<LossSoakReport> {
  const putBack = options.withoutTheRule === true ? takeOutTheRule() : () => {};
  const report: LossSoakReport = {
    served: { requests: 0, ends: new Map(), refused: [], hung: [] },
    compared: { tokens: 0, wrongTokens: 0, wrong: [] },
    rounds: 0,
    devicesLost: 0,
    wrongAnswers: 0,
    unrest: [],
  };
  try {
    const random = new SeededRandom(options.seed * 7907 + 5);
    while (options.goesOn(report.rounds) && report.served.hung.length === 0) {
      await round(options, random, report);
      report.rounds++;
      options.progress?.(report);
    }
  } finally {
    putBack();
  }
  return report;
}

async function round(options: LossSoakOptions, random: SeededRandom, report: LossSoakReport): Promise<void> {
  const hasGroups = report.rounds % 2 === 1;
  const layers = { first: 0, end: LAYOUT.layers };
  const layerGroups = [
    { first: 0, end: 1 },
    { first: 1, end: 2 },
  ];
  const { served } = report;
  await using kv = await KVRuntime.open({
    layout: LAYOUT,
    model: 'soak@1',
    secretKey: new Uint8Array(32).fill(17),
    hbmBytes: HBM_BLOCKS * LAYOUT.blockBytes,
    ddrBytes: DDR_BLOCKS * LAYOUT.blockBytes,
    adapter: testAdapter,
    ...(hasGroups ? { layerGroups } : {}),
  });
  const oracle = new Oracle(kv, LAYOUT, hasGroups ? layerGroups : [layers]);
  let callsLeft = options.callsPerDevice;
  let destroyed = 0;
  const before = (): void => {
    if (--callsLeft > 0) return;
    callsLeft = options.callsPerDevice + random.below(options.callsPerDevice);
    if (kv.describe().runtime.devicePresent !== true || kv.devicesLost < destroyed) return;
    destroyed++;
    kv.device.destroy();
  };
  const scheduling = {
    prefixLoads: random.chance(0.7) ? 'overlapped' : 'awaited',
    preemption: random.chance(0.5) ? 'offload' : 'recompute',
    maxBatchedTokens: 64 + random.below(400),
    maxSequences: SCHEDULED,
  } as const;
  const scheduler = hasGroups
    ? undefined
    : new SchedulerClients(kv, LAYOUT, oracle, served, random, scheduling, before);
  const doors = hasGroups ? undefined : await DoorClients.open(kv, LAYOUT, oracle, served, random, before);
  const clientOf = (tenant: string): SequenceClient =>
    new SequenceClient(kv, LAYOUT, oracle, served, random, tenant, before);
  const share = options.requestsPerRound / 4;
  const left = { scheduled: share, atDoors: share, own: options.requestsPerRound };
  await Promise.all(
    Array.from({ length: CLIENTS }, async (_, i) => {
      const tenant = tenants[i % tenants.length];
      const client = clientOf(tenant);
      const askers = {
        scheduled: (prompt: number[]) => scheduler?.ask(tenant, prompt),
        atDoors: (prompt: number[]) => doors?.ask(tenant, prompt),
        own: (prompt: number[]) => client.ask(prompt),
      };
      const kind = hasGroups || i >= SCHEDULED + AT_DOORS ? 'own' : i < SCHEDULED ? 'scheduled' : 'atDoors';
      while (left[kind]-- > 0 && served.hung.length === 0) {
        await Promise.resolve(askers[kind](promptOf(random))).catch((error: unknown) => {
          if (served.hung.length === 0) served.refused.push(String(error));
        });
      }
    }),
  );
  if (served.hung.length === 0) {
    scheduler?.close();
    await doors?.close();
    await rest(kv, destroyed);
    report.unrest.push(...held(kv).map((what) => `after round ${report.rounds + 1}: ${what}`));
    callsLeft = Number.POSITIVE_INFINITY;
    for (const tenant of tenants) {
      for (const prompt of allPrompts()) await clientOf(tenant).look(prompt);
    }
    await rest(kv, destroyed);
  }
  report.devicesLost += kv.devicesLost + (doors?.storageLosses ?? 0);
  report.wrongAnswers += scheduler?.wrongAnswers ?? 0;
  report.compared.tokens += oracle.compared.tokens;
  report.compared.wrongTokens += oracle.compared.wrongTokens;
  report.compared.wrong.push(...oracle.compared.wrong.map((wrong) => `round ${report.rounds + 1}: ${wrong}`));
}

/** Few topics and few questions, so that much of a prompt is found, and questions of a client's own. */
function promptOf(random: SeededRandom): number[] {
  const question = random.below(QUESTIONS * 2);
  const prompt =
    question < QUESTIONS ? questionOf(random.below(TOPICS), question) : questionOf(0, 0).slice(0, 20);
  const own = question < QUESTIONS ? 0 : 1 + random.below(60);
  for (let i = 0; i < own; i++) prompt.push(random.below(50));
  return prompt;
}

function questionOf(topic: number, question: number): number[] {
  const shared = Array.from({ length: 35 }, (_, i) => topic * 1000 + i);
  return [...shared, ...Array.from({ length: question * 6 }, (_, i) => 10_000 + question * 100 + i)];
}

function* allPrompts(): Generator<number[]> {
  for (let topic = 0; topic < TOPICS; topic++) {
    for (let question = 0; question < QUESTIONS; question++) yield questionOf(topic, question);
  }
}

/** Nothing is under way, a lost device is replaced, and the manager's tables agree with each other. */
async function rest(kv: KVRuntime, losses: number): Promise<void> {
  while (kv.devicesLost < losses || kv.describe().runtime.devicePresent !== true) {
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
  do {
    await kv.idle();
    await new Promise((resolve) => setImmediate(resolve));
  } while (kv.manager.inspect.jobsInFlight > 0);
  kv.manager.checkIntegrity();
}

/** Rounds after which each door must have served a request whole: a loss came to all of fewer now and then. */
const ROUNDS_TO_SERVE = 10;
const DOORS = ['reuse', 'paged', 'state', 'storage'];

/** Why the soak failed, a line each; none when it passed. */
export function failuresOf(report: LossSoakReport): string[] {
  const { served, compared, wrongAnswers, unrest, rounds } = report;
  const unserved = rounds < ROUNDS_TO_SERVE ? [] : DOORS.filter((door) => !served.ends.has(`${door}: done`));
  return [
    ...unserved.map((door) => `no visit of ${door} in ${rounds} rounds came to its end`),
    ...(compared.wrongTokens > 0
      ? [`KV of ${compared.wrongTokens} tokens was wrong`, ...compared.wrong]
      : []),
    ...(wrongAnswers > 0 ? [`${wrongAnswers} tokens of answers were wrong`] : []),
    ...served.refused.map((error) => `refused: ${error}`),
    ...served.hung.map((what) => `hangs: ${what}`),
    ...unrest,
  ];
}

export function lastLine({ served, compared, wrongAnswers, devicesLost, unrest }: LossSoakReport): string {
  return (
    `requests ${served.requests}, devices lost ${devicesLost}, tokens compared ${compared.tokens}, ` +
    `wrong ${compared.wrongTokens + wrongAnswers}, refused ${served.refused.length}, ` +
    `hung ${served.hung.length}, held at rest ${unrest.length}`
  );
}
