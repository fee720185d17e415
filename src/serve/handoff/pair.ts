/**
 * The pair of a parity run: two runtimes serve the traffic, one computes prompts and one goes on from there, and blocks go
 * from the first to the second over a connection, as `tierkv/serve` hands them off. Both are stand-ins.
 *
 *     arrival -> offered -> computed by prefill, one token -> done
 *                   |  blocks as they are sealed
 *                   +-> received -> served by decode: what did not come is computed
 */

import { KVRuntime } from '../../embed/kvRuntime.ts';
import { Outcome } from '../../runtime/index.ts';
import {
  type NumberedRequest,
  type ServedQueue,
  Serving,
  type StandInConfig,
} from '../../studies/parity/standIn.ts';
import { Arrivals, type RunnerJob, type ServedRequest, TokenIds } from '../../studies/parity/traffic.ts';
import type { HandoffOffer } from './offer.ts';
import { type HandoffEnd, HandoffReceiver } from './receiver.ts';
import { HandoffSender } from './sender.ts';
import { transferAnswer, transferWish } from './transferParams.ts';

export const sides = ['prefill', 'decode'] as const;
export type Side = (typeof sides)[number];

/** Long beside a step of a busy machine: nothing is given up for its sake. */
const PATIENCE_MS = 60_000;
const TENANT = 'parity';

interface PairJob extends Omit<RunnerJob, 'logPath'> {
  readonly logPaths: Readonly<Record<Side, string>>;
  /** When blocks are fetched: while the prompt is computed, or when it is. */
  readonly fetches: 'early' | 'whole';
}

export interface PairRun {
  readonly requests: readonly ServedRequest[];
  readonly handoffs: readonly HandoffEnd[];
  /** Median time of a step beyond its model, by side. */
  readonly stepOverheadUs: Readonly<Record<Side, number>>;
  readonly adapter: { readonly name: string; readonly software: boolean };
  readonly wrongBlocks: number;
  readonly interruptedSteps: number;
}

/** Requests that one side is given, in order. */
class SideQueue implements ServedQueue {
  readonly #coming: NumberedRequest[] = [];
  readonly #traffic: PairTraffic;
  readonly #side: Side;
  #change = Promise.withResolvers<void>();

  constructor(traffic: PairTraffic, side: Side) {
    this.#traffic = traffic;
    this.#side = side;
  }

  get timeUs(): number {
    if (this.#side === 'prefill') return this.#traffic.arrivals.timeUs;
    return this.#coming.length === 0 ? Infinity : 0;
  }

  get isOver(): boolean {
    return this.#traffic.isOver;
  }

  take(): NumberedRequest | Promise<NumberedRequest> {
    if (this.#side === 'prefill') return this.#traffic.offered();
    return this.#coming.shift() as NumberedRequest; // `timeUs` was 0
  }

  ended(asked: NumberedRequest, served: ServedRequest): void {
    if (this.#side === 'prefill') this.#traffic.computed(asked);
    else this.#traffic.answered(asked, served);
  }

  changed(): Promise<void> {
    return this.#change.promise;
  }

  push(asked: NumberedRequest): void {
    this.#coming.push(asked);
    this.tell();
  }

  tell(): void {
    this.#change.resolve();
    this.#change = Promise.withResolvers<void>();
  }
}

/** The requests of a run on their way through both sides. */
class PairTraffic {
  readonly arrivals: Arrivals;
  readonly served: ServedRequest[] = [];
  readonly handoffs: HandoffEnd[] = [];
  readonly queues: Readonly<Record<Side, SideQueue>>;
  /** The error that stopped a hand-off. */
  failure: unknown;
  readonly #sender: HandoffSender;
  readonly #receiver: HandoffReceiver;
  readonly #job: PairJob;
  readonly #tokens: TokenIds = new TokenIds();
  readonly #offers: Map<number, { readonly offer: HandoffOffer; readonly asked: NumberedRequest }> =
    new Map();
  #taken = 0;
  #open = 0;

  constructor(sender: HandoffSender, receiver: HandoffReceiver, job: PairJob) {
    this.#sender = sender;
    this.#receiver = receiver;
    this.#job = job;
    this.arrivals = new Arrivals(job.traffic.open());
    this.queues = { prefill: new SideQueue(this, 'prefill'), decode: new SideQueue(this, 'decode') };
  }

  get isOver(): boolean {
    if (this.failure !== undefined) throw this.failure;
    return this.arrivals.timeUs === Infinity && this.#open === 0;
  }

  /** The next request as the prefill side has it: its blocks are offered, and it ends with its first token. */
  async offered(): Promise<NumberedRequest> {
    const asked = { request: this.arrivals.take(), own: this.#taken++ };
    this.#open++;
    const { request, own } = asked;
    const tokens = this.#tokens.prompt(request, own);
    const offer = await this.#sender.offer(tokens, { tenant: TENANT, signal: this.#job.signal });
    this.#offers.set(own, { offer, asked });
    if (this.#job.fetches === 'early') void this.#fetch(offer, asked, tokens);
    return { request: { ...request, outputTokens: 1 }, own };
  }

  computed({ own }: NumberedRequest): void {
    const { offer, asked } = this.#offers.get(own) as { offer: HandoffOffer; asked: NumberedRequest };
    this.#offers.delete(own);
    offer.computed();
    if (this.#job.fetches === 'whole') {
      void this.#fetch(offer, asked, this.#tokens.prompt(asked.request, own));
    }
  }

  answered({ request }: NumberedRequest, served: ServedRequest): void {
    this.served.push(served);
    this.arrivals.ended(request, served.outputTokens, served.lastTokenUs);
    this.#open--;
    this.#job.progress(this.served.length);
    for (const queue of Object.values(this.queues)) queue.tell();
  }

  async #fetch({ reference }: HandoffOffer, asked: NumberedRequest, tokens: Int32Array): Promise<void> {
    try {
      // as the two legs of a request have it
      const wish = transferWish(JSON.parse(JSON.stringify(transferAnswer(reference, 'parity'))));
      if (wish.kind === 'decode') {
        const { signal } = this.#job;
        this.handoffs.push(await this.#receiver.receive(wish.params, tokens, { tenant: TENANT, signal }));
      }
      this.queues.decode.push(asked);
    } catch (error) {
      this.failure = error;
      for (const queue of Object.values(this.queues)) queue.tell();
    }
  }
}

/** @param config of each side; each has host memory */
export async function runPair(config: Readonly<Record<Side, StandInConfig>>, job: PairJob): Promise<PairRun> {
  const { notice, signal } = job;
  const open = (side: Side): Promise<KVRuntime> =>
    KVRuntime.open({ ...config[side].runtime, log: job.logPaths[side], migration: false, notice });
  await using prefill = await open('prefill');
  await using decode = await open('decode');
  await using sender = await HandoffSender.open(prefill, { listen: {}, leaseMs: PATIENCE_MS, notice });
  await using receiver = new HandoffReceiver(decode, {
    patienceMs: PATIENCE_MS,
    connectMs: PATIENCE_MS,
    roomMs: PATIENCE_MS,
    notice,
  });
  const traffic = new PairTraffic(sender, receiver, job);
  const { queues } = traffic;
  const first = new Serving(prefill, config.prefill, queues.prefill, signal);
  const second = new Serving(decode, config.decode, queues.decode, signal);
  await Promise.all([first.toTheEnd(), second.toTheEnd()]);
  await Promise.all([prefill.idle(), decode.idle()]);
  const { name, software } = decode.stores.pool.adapter;
  const wrong = [prefill, decode].map(({ manager }) => manager.inspect.counters.loadsFailed[Outcome.CORRUPT]);
  return {
    requests: traffic.served,
    handoffs: traffic.handoffs,
    stepOverheadUs: { prefill: first.stepOverheadUs, decode: second.stepOverheadUs },
    adapter: { name, software },
    wrongBlocks: wrong[0] + wrong[1] + receiver.counts.corrupt,
    interruptedSteps: first.interruptedSteps + second.interruptedSteps,
  };
}
