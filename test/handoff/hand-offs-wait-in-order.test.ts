/** Hand-offs that fetch at a time are as many as may, and others go in the order of their calls. */

import { expect, it, vi } from 'vitest';
import { BlockPort } from '../../src/embed/blockPort.ts';
import { type HandoffEnd, HandoffReceiver } from '../../src/serve/handoff/receiver.ts';
import { HandoffSender } from '../../src/serve/handoff/sender.ts';
import { openHostRuntime, prompt, tenant } from '../embed/liveRuntime.ts';
import { passedOn, patient } from './pair.ts';

it('a place that is given back goes to the call that waits longest, also beside calls that come just then', async () => {
  await using kv = await openHostRuntime();
  vi.spyOn(BlockPort.prototype, 'hasShared', 'get').mockReturnValue(true);
  const first = Promise.withResolvers<void>();
  const order: number[] = [];
  let [now, most] = [0, 0];
  vi.spyOn(BlockPort.prototype, 'findShared').mockImplementation(async (tokens) => {
    order.push(Number(tokens[0]) / 1000);
    most = Math.max(most, ++now);
    if (order.length === 1) await first.promise;
    for (let turn = 0; turn < 10; turn++) await Promise.resolve();
    now--;
    return 0;
  });
  await using sender = await HandoffSender.open(kv);
  const receiver = new HandoffReceiver(kv, { ...patient, atOnce: 1 });
  const seeds = Array.from({ length: 40 }, (_, i) => i + 1);
  const params = await Promise.all(
    seeds.map(async (seed) => passedOn(await sender.offer(prompt(seed), { tenant }))),
  );
  const receive = (seed: number, signal?: AbortSignal): Promise<HandoffEnd> =>
    receiver.receive(params[seed - 1], prompt(seed), { tenant, ...(signal === undefined ? {} : { signal }) });

  const calledOff = new AbortController();
  const ends = [1, 2, 3].map((seed) => receive(seed));
  const left = receive(4, calledOff.signal);
  ends.push(receive(5));
  await expect.poll(() => receiver.describe()).toMatchObject({ under: 1, waiting: 4 });
  calledOff.abort();
  expect(await left).toMatchObject({ outcome: 'late', reason: 'the request was called off' });
  first.resolve();
  for (const seed of seeds.slice(5)) {
    await Promise.resolve();
    ends.push(receive(seed));
  }
  for (const { outcome } of await Promise.all(ends)) expect(outcome).toBe('stale'); // nothing lies there
  expect(most).toBe(1);
  expect(order).toEqual(seeds.filter((seed) => seed !== 4));
  expect(receiver.describe()).toMatchObject({ under: 0, waiting: 0 });
  await receiver.close();
});
