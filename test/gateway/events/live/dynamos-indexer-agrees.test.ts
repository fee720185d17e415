/**
 * NVIDIA Dynamo's own indexer reads what a runtime publishes, through evictions, lost messages, replays and two warm
 * restarts, and answers at 1,000 random points what the manager says, block for block, for each tier.
 *
 * Its answer counts leading blocks of a prompt: those on the device, from there on those in host memory, from there
 * on those on disk.
 */

import { type ChildProcess, execFileSync, spawn } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, describe, expect, it } from 'vitest';
import { Dealer, Publisher, Router, Subscriber } from 'zeromq';
import type { KVRuntime } from '../../../../src/index.ts';
import { BlockKeys, type KeyChain, keyToHex } from '../../../../src/runtime/index.ts';
import { CachePicture } from '../../../../src/serve/gateway/events/cachePicture.ts';
import { publishKVEvents } from '../../../../src/serve/gateway/events/publisher.ts';
import { subscribeKVEvents } from '../../../../src/serve/gateway/events/subscriber.ts';
import { blocks, layout, openRuntime, write } from '../../../embed/liveRuntime.ts';
import { portOfOurOwn } from '../../../ports.ts';

const python = process.env.TIERKV_PYTHON ?? 'python3';
const has = ((): boolean => {
  try {
    execFileSync(python, ['-c', 'import dynamo.indexer'], { stdio: 'ignore' });
    return true;
  } catch {
    console.warn(
      'SKIPPED: ai-dynamo is not here to read our KV events (pip install ai-dynamo==1.4.2; TIERKV_PYTHON names its python)',
    );
    return false;
  }
})();

const POINTS = Number(process.env.TIERKV_POINTS ?? 1000);
const seed = Number(process.env.TIERKV_SEED ?? 41);
const dir = mkdtempSync(join(tmpdir(), 'tierkv-indexer-'));
const children: ChildProcess[] = [];
afterAll(() => {
  for (const child of children) child.kill('SIGKILL');
  rmSync(dir, { recursive: true });
});

const { blockTokens } = layout;
const tenant = 'alice';

/** Numbers from 0 to below `limit`, the same for a seed. */
function random(state: number): (limit: number) => number {
  let at = state >>> 0;
  return (limit) => {
    at = (Math.imul(at, 1664525) + 1013904223) >>> 0;
    return Math.floor((at / 2 ** 32) * limit);
  };
}

class Indexer {
  readonly #url: string;

  constructor(port: number) {
    this.#url = `http://127.0.0.1:${port}`;
    const args = ['-m', 'dynamo.indexer', '--block-size', String(blockTokens), '--port', String(port)];
    children.push(spawn(python, args, { stdio: 'ignore' }));
  }

  async up(): Promise<void> {
    for (;;) {
      try {
        await fetch(`${this.#url}/workers`);
        return;
      } catch {
        await sleep(100);
      }
    }
  }

  async register(endpoint: string, replayEndpoint: string): Promise<void> {
    const body = {
      instance_id: 1,
      endpoint,
      replay_endpoint: replayEndpoint,
      model_name: 'm',
      block_size: blockTokens,
      dp_rank: 0,
    };
    const { status } = await this.#post('/register', body);
    expect(status).toBe(201);
  }

  /** Leading blocks on the device, with host memory, with the disk. */
  async ask(tokenIds: readonly number[], adapter?: string): Promise<readonly number[]> {
    const { text } = await this.#post('/query', {
      model_name: 'm',
      token_ids: tokenIds,
      cache_salt: tenant,
      ...(adapter === undefined ? {} : { lora_name: adapter }),
    });
    const { instances } = JSON.parse(text) as {
      instances: Record<string, { gpu: number; cpu: number; disk: number }>;
    };
    const { gpu = 0, cpu = 0, disk = 0 } = instances['1'] ?? {};
    return [gpu, cpu, disk].map((tokens) => tokens / blockTokens);
  }

  async #post(path: string, body: unknown): Promise<{ status: number; text: string }> {
    const answer = await fetch(this.#url + path, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify(body),
    });
    return { status: answer.status, text: await answer.text() };
  }
}

/** Stands between publisher and indexer, and loses messages when it is told to. */
class LossyLink {
  readonly endpoint: string;
  readonly replayEndpoint: string;
  lossy: (() => boolean) | undefined;
  lost = 0;
  replays = 0;
  readonly #in = new Subscriber({ linger: 0 });
  readonly #out = new Publisher({ linger: 0 });
  readonly #asked = new Router({ linger: 0 });
  /** A socket for each asker, so that replies find their way. */
  readonly #asks: Map<string, Dealer> = new Map();
  readonly #from: { readonly endpoint: string; readonly replayEndpoint: string };

  constructor(
    port: number,
    replayPort: number,
    from: { readonly endpoint: string; readonly replayEndpoint: string },
  ) {
    this.endpoint = `tcp://127.0.0.1:${port}`;
    this.replayEndpoint = `tcp://127.0.0.1:${replayPort}`;
    this.#from = from;
  }

  async open(): Promise<void> {
    await this.#out.bind(this.endpoint);
    await this.#asked.bind(this.replayEndpoint);
    this.#in.connect(this.#from.endpoint);
    this.#in.subscribe();
    void this.#pass();
    void this.#passRequests();
  }

  /** The number of the last message that went through, or was lost. */
  last = 0n;

  async #pass(): Promise<void> {
    for await (const frames of this.#in) {
      this.last = frames[1].readBigUInt64BE();
      if (this.lossy?.()) this.lost++;
      else await this.#out.send(frames);
    }
  }

  async #passRequests(): Promise<void> {
    for await (const [asker, ...frames] of this.#asked) {
      this.replays++;
      const name = asker.toString('hex');
      let asks = this.#asks.get(name);
      if (asks === undefined) {
        asks = new Dealer({ linger: 0 });
        asks.connect(this.#from.replayEndpoint);
        this.#asks.set(name, asks);
        void this.#passReplies(asker, asks);
      }
      await asks.send(frames);
    }
  }

  async #passReplies(asker: Buffer, asks: Dealer): Promise<void> {
    for await (const frames of asks) {
      this.#replies = this.#replies.then(() => this.#asked.send([asker, ...frames]));
    }
  }

  #replies: Promise<void> = Promise.resolve();

  close(): void {
    for (const socket of [this.#in, this.#out, this.#asked, ...this.#asks.values()]) socket.close();
  }
}

/** What the manager says, out of its tables: as the indexer counts. */
function leading(kv: KVRuntime, chain: KeyChain, tokenIds: readonly number[]): readonly number[] {
  const { contents, replicas } = kv.manager.inspect.dump();
  const tierOf = new Map(replicas.map(({ replica, tier }) => [replica, tier]));
  const tiersOf = new Map(
    contents.map((content) => [
      keyToHex(content.key),
      new Set(content.replicas.map((replica) => tierOf.get(replica))),
    ]),
  );
  const keys = new BlockKeys();
  chain.hashBlocks(tokenIds, 0, keys);
  const isIn = (block: number, tier: number): boolean =>
    tiersOf.get(keyToHex(keys.words.slice(block * 4, block * 4 + 4)))?.has(tier) === true;
  let at = 0;
  return [0, 1, 2].map((tier) => {
    while (at < keys.length && isIn(at, tier)) at++;
    return at;
  });
}

describe.skipIf(!has)("Dynamo's indexer", () => {
  it(`agrees with the manager at ${POINTS} points of a run`, { timeout: 1_800_000 }, async () => {
    const draw = random(seed);
    const [http, out, replay] = [await portOfOurOwn(), await portOfOurOwn(), await portOfOurOwn()];
    const ours = {
      endpoint: `tcp://127.0.0.1:${await portOfOurOwn()}`,
      replayEndpoint: `tcp://127.0.0.1:${await portOfOurOwn()}`,
    };
    const link = new LossyLink(out, replay, ours);
    await link.open();
    const indexer = new Indexer(http);
    await indexer.up();
    const open = (): Promise<KVRuntime> =>
      openRuntime({
        hbmBytes: blocks(12),
        ddrBytes: blocks(20),
        nvme: { dir, bytes: blocks(60) },
        tokenIds: true,
        lowerCopy: 'keep',
      });
    const publish = (kv: KVRuntime): ReturnType<typeof publishKVEvents> =>
      publishKVEvents(kv, {
        ...ours,
        mediums: { nvme: 'DISK' },
        heartbeatMs: 50,
        keepBatches: 40,
      });
    /** 8 beginnings, 4 ways on from each, 3 from each of these: prompts share blocks. */
    const prompt = (): { tokenIds: number[]; adapter: string | undefined } => {
      const [a, b, c] = [draw(8), draw(4), draw(3)];
      const part = (first: number): number[] =>
        Array.from({ length: blockTokens * 2 }, (_, i) => first * 100 + i);
      const tokenIds = [...part(1 + a), ...part(100 + a * 10 + b), ...part(1000 + a * 100 + b * 10 + c), 7];
      // every fourth beginning belongs to an adapter or to none: the same tokens, and other blocks
      return { tokenIds, adapter: a % 4 === 0 && draw(2) === 0 ? 'sql-7' : undefined };
    };
    const extrasOf = (adapter: string | undefined) => (adapter === undefined ? {} : { extras: { adapter } });

    let kv = await open();
    let publisher = await publish(kv);
    await indexer.register(link.endpoint, link.replayEndpoint);
    const subscription = await subscribeKVEvents({
      endpoint: link.endpoint,
      replayEndpoint: link.replayEndpoint,
    });
    const picture = new CachePicture();
    const reading = (async () => {
      for await (const batch of subscription) picture.apply(batch);
    })();
    const found = [0, 0, 0];
    let evicted = 0;
    let adapted = 0;
    const chains = new Map<string | undefined, KeyChain>();
    for (let point = 0; point < POINTS; point++) {
      const where = `seed ${seed}, point ${point}`;
      if (point === Math.floor(POINTS / 3) || point === Math.floor((2 * POINTS) / 3)) {
        await kv.save();
        await publisher.close();
        await kv.close();
        kv = await open();
        publisher = await publish(kv);
      }
      link.lossy = draw(4) === 0 ? () => draw(2) === 0 : undefined;
      for (let requests = 1 + draw(3); requests > 0; requests--) {
        const { tokenIds, adapter } = prompt();
        const sequence = await kv.begin(tokenIds, { tenant, ...extrasOf(adapter) });
        chains.set(adapter, sequence.groups[0].chain);
        write(kv, sequence, point & 0x7f);
        expect(await kv.seal(sequence)).toBe('done');
        kv.release(sequence);
      }
      if (draw(5) === 0) {
        evicted += kv.manager.evict(draw(2), 1 + draw(6), kv.nowUs()).evicted;
      }
      await kv.idle();
      await publisher.flushed();
      link.lossy = undefined;
      // A heartbeat that comes through shows what was lost before.
      const { lastNumber } = publisher.counts;
      while (link.last <= lastNumber) await sleep(5);
      for (let asked = 0; asked < 3; asked++) {
        const { tokenIds, adapter } = prompt();
        const chain = chains.get(adapter);
        if (chain === undefined) continue;
        // Migration goes on by itself: what the manager says is asked for as often as the others are.
        let right = leading(kv, chain, tokenIds);
        const ours = (): readonly number[] => {
          const places = picture.places(tokenIds, { salt: tenant, loraName: adapter });
          let at = 0;
          return ['GPU', 'CPU', 'DISK'].map((medium) => {
            while (places[at]?.includes(medium)) at++;
            return at;
          });
        };
        let answers = [await indexer.ask(tokenIds, adapter), ours()];
        for (let tries = 0; tries < 400 && answers.some((one) => String(one) !== String(right)); tries++) {
          await sleep(5);
          right = leading(kv, chain, tokenIds);
          answers = [await indexer.ask(tokenIds, adapter), ours()];
        }
        expect(answers, `${where}, by the indexer and by us: device, host, disk`).toEqual([right, right]);
        if (adapter !== undefined && Math.max(...right) > 0) adapted++;
        right.forEach((count, tier) => {
          if (count > (tier === 0 ? 0 : right[tier - 1])) found[tier]++;
        });
      }
    }
    const { states, replays } = publisher.counts;
    console.log(
      `indexer agreed at ${POINTS} points (${3 * POINTS} prompts): on device ${found[0]}, host ${found[1]}, disk ${found[2]}; ` +
        `lost ${link.lost}, replays ${link.replays} (since the last restart ${replays}, states ${states}), evicted by hand ${evicted}; ` +
        `${adapted} prompts of an adapter found blocks`,
    );
    expect(found.every((count) => count > 0)).toBe(true);
    expect(adapted).toBeGreaterThan(0);
    expect(link.lost).toBeGreaterThan(0);
    expect(link.replays).toBeGreaterThan(2);
    await publisher.close();
    await kv.close();
    await subscription.close();
    await reading;
    link.close();
  });
});
