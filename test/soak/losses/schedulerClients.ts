/**
 * Requests of a scheduler under losses: the loop of docs/guide/embedding.md runs its plans, writes what they
 * name and reads back what attention would see. Each answer is compared with what its tokens have to give.
 */

import type {
  KVLayout,
  KVRuntime,
  KVScheduler,
  KVSchedulerConfig,
  KVStepPlan,
  SampledToken,
} from '../../../src/index.ts';
import type { SeededRandom } from '../../../src/testing/index.ts';
import { nextToken, prefixHashes } from '../server/rows.ts';
import type { Oracle } from './oracle.ts';
import { count, type Served, within } from './sequenceClient.ts';

interface Asked {
  readonly tenant: string;
  readonly prompt: readonly number[];
  readonly done: () => void;
}

export class SchedulerClients {
  wrongAnswers = 0;
  readonly #layout: KVLayout;
  readonly #oracle: Oracle;
  readonly #served: Served;
  readonly #random: SeededRandom;
  readonly #before: () => void;
  readonly #scheduler: KVScheduler;
  readonly #asked: Map<string, Asked> = new Map();
  #number = 0;
  #isServing = false;

  constructor(
    kv: KVRuntime,
    layout: KVLayout,
    oracle: Oracle,
    served: Served,
    random: SeededRandom,
    config: KVSchedulerConfig,
    before: () => void,
  ) {
    this.#layout = layout;
    this.#oracle = oracle;
    this.#served = served;
    this.#random = random;
    this.#before = before;
    this.#scheduler = kv.scheduler(config);
  }

  close(): void {
    this.#scheduler.close();
  }

  /** One request, to its last token or until it is aborted. */
  async ask(tenant: string, prompt: readonly number[]): Promise<void> {
    const id = `request ${++this.#number}`;
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#served.requests++;
    this.#asked.set(id, { tenant, prompt, done: resolve });
    this.#scheduler.add({ id, tokens: prompt, tenant, maxTokens: 1 + this.#random.below(20) });
    void this.#serve();
    if (this.#random.chance(0.1)) {
      setTimeout(() => {
        if (this.#scheduler.isClosed) return;
        if (this.#scheduler.abort(id) === 'ended') this.#ended(id, new Uint32Array(), 'aborted');
      }, this.#random.below(200));
    }
    await within(this.#served, `${id} of the scheduler`, promise);
  }

  async #serve(): Promise<void> {
    if (this.#isServing) return;
    this.#isServing = true;
    try {
      while (this.#scheduler.size > 0) await this.#step();
    } catch (error) {
      this.#served.refused.push(`scheduler: ${String(error)}`);
      for (const { done } of this.#asked.values()) done();
    }
    this.#isServing = false;
  }

  async #step(): Promise<void> {
    const scheduler = this.#scheduler;
    this.#before();
    const plan = scheduler.step();
    if (plan.requests.length === 0) {
      await within(this.#served, 'next', scheduler.next());
      count(this.#served, 'next: done');
      return;
    }
    let sampled: SampledToken[] | undefined;
    try {
      sampled = await this.#run(plan);
    } catch {
      // the device is lost: the same tokens are planned again
    }
    const { finished, interrupted } =
      sampled === undefined ? scheduler.stepFailed() : scheduler.stepEnded(sampled);
    count(this.#served, `stepEnded: ${interrupted ? 'interrupted' : 'done'}`);
    for (const { id, tokens, reason } of finished) this.#ended(id, tokens, reason);
  }

  async #run(plan: KVStepPlan): Promise<SampledToken[]> {
    const { blockTokens } = this.#layout;
    const looks: Promise<void>[] = [];
    const sampled: SampledToken[] = [];
    for (const { id, tokens, start, end, blockTable, samples } of plan.requests) {
      const { tenant } = this.#asked.get(id) as Asked;
      const { slabs, entries, blocks } = blockTable;
      const places = Array.from({ length: blocks }, (_, i) => ({
        buffer: slabs[entries[2 * i]],
        offsetBytes: entries[2 * i + 1],
      }));
      for (let at = start; at < end; ) {
        const block = Math.floor(at / blockTokens);
        const to = Math.min(end, (block + 1) * blockTokens);
        this.#oracle.write(tenant, tokens, at, to, places[block]);
        at = to;
      }
      if (samples) sampled.push({ id, token: nextToken(prefixHashes(tenant, tokens, end)[end - 1]) });
      if (samples && this.#random.chance(0.4)) {
        looks.push(this.#oracle.compare(tenant, tokens.slice(0, end), end, places, `${id} of the scheduler`));
      }
    }
    await Promise.all(looks);
    return sampled;
  }

  #ended(id: string, tokens: Uint32Array, reason: string): void {
    const asked = this.#asked.get(id);
    if (asked === undefined) return;
    this.#asked.delete(id);
    count(this.#served, `scheduler: ${reason}`);
    const { tenant, prompt, done } = asked;
    const all = [...prompt, ...tokens];
    const hashes = prefixHashes(tenant, all, all.length);
    tokens.forEach((token, i) => {
      if (token !== nextToken(hashes[prompt.length + i - 1])) this.wrongAnswers++;
    });
    done();
  }
}
