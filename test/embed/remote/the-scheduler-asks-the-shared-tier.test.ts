import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { KVRuntime, type KVScheduler } from '../../../src/index.ts';
import { SeededRandom, testSeed } from '../../../src/testing/index.ts';
import { FaultProxy } from '../../backends/remote/faultProxy.ts';
import {
  hasRedis,
  type RedisServer,
  sayRedisIsAbsent,
  startRedis,
} from '../../backends/remote/redisServer.ts';
import { sharedDevice } from '../../sharedDevice.ts';
import { ask, blocks, layout, prompt, promptBlocks, tenant } from '../liveRuntime.ts';

const patient = { deadlineMs: 60_000, lookupMs: 60_000, connectMs: 60_000 };

if (!hasRedis) sayRedisIsAbsent('the scheduler asks the shared tier');
describe.skipIf(!hasRedis)('requests of the scheduler', () => {
  let server: RedisServer;
  beforeAll(async () => {
    server = await startRedis();
  });
  beforeEach(async () => void (await server.ask('FLUSHALL')));
  afterAll(() => server[Symbol.asyncDispose]());

  const open = (remote: object = {}): Promise<KVRuntime> =>
    KVRuntime.open({
      layout,
      model: 'test@1',
      secretKey: new Uint8Array(32).fill(7),
      hbmBytes: blocks(20),
      device: sharedDevice,
      remote: { url: server.url, bytes: blocks(200), ...patient, ...remote },
    });
  const request = (id: string, seed: number) => ({ id, tokens: prompt(seed), tenant, maxTokens: 1 });

  /** Steps until all requests have ended. @returns which requests joined, and from which token each was computed */
  async function serve(scheduler: KVScheduler): Promise<[id: string, from: number][]> {
    const joined: [string, number][] = [];
    while (scheduler.size > 0) {
      const { requests, admitted } = scheduler.step();
      for (const { id, start } of requests) if (admitted.includes(id)) joined.push([id, start]);
      if (requests.length === 0) await scheduler.next();
      else scheduler.stepEnded(requests.filter(({ samples }) => samples).map(({ id }) => ({ id, token: 1 })));
    }
    return joined;
  }

  it('begin behind the blocks that another runtime computed', async () => {
    await using one = await open();
    await ask(one, 1);
    await using other = await open();
    const scheduler = other.scheduler({ maxBatchedTokens: 512, maxSequences: 4 });
    scheduler.add(request('known there', 1));
    scheduler.add(request('new', 2));
    expect(scheduler.size).toBe(2);
    expect(scheduler.waitingCount).toBe(2);
    expect(scheduler.progress('known there')).toMatchObject({ computedTokens: 0 });
    expect(() => scheduler.add(request('new', 3))).toThrow('is in use');
    const whole = promptBlocks * layout.blockTokens;
    // what has to be loaded joins the batch later, so the order of joining says nothing
    expect(new Map(await serve(scheduler))).toEqual(
      new Map([
        ['known there', whole],
        ['new', 0],
      ]),
    );
    expect(other.describe().remote).toMatchObject({ found: promptBlocks, loaded: promptBlocks });
    scheduler.add(request('here by now', 1));
    const { lookups } = other.describe().remote;
    expect(await serve(scheduler)).toEqual([['here by now', whole]]);
    expect(other.describe().remote.lookups).toBe(lookups);
  });

  it('go on without an answer by the deadline, and can be aborted before', async () => {
    await using proxy = await FaultProxy.open(server.port, new SeededRandom(testSeed(20_405)));
    await using kv = await open({ url: proxy.url, lookupMs: 100 });
    const scheduler = kv.scheduler({ maxBatchedTokens: 512, maxSequences: 4 });
    proxy.way = 'stall';
    scheduler.add(request('first', 3));
    scheduler.add(request('second', 4));
    expect(scheduler.abort('first')).toBe('ended');
    expect(scheduler.abort('first')).toBe('unknown');
    expect(await serve(scheduler)).toEqual([['second', 0]]);
    proxy.way = 'pass';
    scheduler.add(request('third', 5));
    scheduler.close(); // while it waits for its answer
    expect(scheduler.size).toBe(0);
  });
});
