/**
 * The sweep of exports covers what the doors export. This one goes on to what their calls give: each method of an open
 * runtime and of its parts is called with values of wrong kinds, and ends well or in an error of ours.
 */

import { expect, it } from 'vitest';
import { watchRuntime } from '../../src/observe/metrics/watch.ts';
import { CachePicture } from '../../src/serve/gateway/events/cachePicture.ts';
import { publishKVEvents } from '../../src/serve/gateway/events/publisher.ts';
import { subscribeKVEvents } from '../../src/serve/gateway/events/subscriber.ts';
import { HandoffReceiver } from '../../src/serve/handoff/receiver.ts';
import { HandoffSender } from '../../src/serve/handoff/sender.ts';
import { openHostRuntime, prompt } from '../embed/liveRuntime.ts';

const wrong: readonly unknown[] = [undefined, null, NaN, -1, 'x', {}, [], 5n, Symbol('s'), new Map(), true];

/** Methods by which an object ends, or that wait for news. */
const left = /close|dispose|return|^next$|^idle$|^flushed$|^waitFor$/i;

function methodsOf(object: object): string[] {
  const names = new Set<string>();
  for (let at = Object.getPrototypeOf(object); at !== Object.prototype; at = Object.getPrototypeOf(at)) {
    for (const [name, { value }] of Object.entries(Object.getOwnPropertyDescriptors(at))) {
      if (typeof value === 'function' && name !== 'constructor' && !left.test(name)) names.add(name);
    }
  }
  return [...names];
}

/** Calls that ended in an error that is not one of ours. */
async function rawErrors(name: string, object: object): Promise<string[]> {
  const raw = new Set<string>();
  const note = (method: string, error: unknown): void => {
    if ((error as { isTierKVError?: boolean } | null)?.isTierKVError !== true)
      raw.add(`${name}.${method}: ${String(error)}`);
  };
  const waiting: Promise<unknown>[] = [];
  for (const method of methodsOf(object)) {
    const call = Reflect.get(object, method) as (...args: unknown[]) => unknown;
    for (const value of wrong) {
      for (const args of [[value], [prompt(1), value], [0, value, value]]) {
        try {
          const result = call.apply(object, args);
          if (result instanceof Promise) waiting.push(result.catch((error: unknown) => note(method, error)));
        } catch (error) {
          note(method, error);
        }
      }
    }
  }
  // what is not refused at once may wait for room or for others, and is not waited for
  await Promise.race([Promise.all(waiting), new Promise((resolve) => setTimeout(resolve, 200))]);
  return [...raw];
}

it('of a runtime and its parts', async () => {
  await using kv = await openHostRuntime({ tokenIds: true, explain: true });
  await using sender = await HandoffSender.open(kv, { listen: {} });
  await using receiver = new HandoffReceiver(kv);
  await using publisher = await publishKVEvents(kv, { endpoint: 'tcp://127.0.0.1:*' });
  await using subscription = await subscribeKVEvents({ endpoint: publisher.endpoint });
  const parts: Readonly<Record<string, object>> = {
    scheduler: kv.scheduler(),
    queue: kv.requestQueue(),
    paged: kv.pagedCache(),
    cross: kv.crossRequestCache(),
    sender,
    receiver,
    publisher,
    subscription,
    picture: new CachePicture(),
    watch: watchRuntime(kv),
    kv,
  };
  for (const [name, part] of Object.entries(parts)) {
    expect(methodsOf(part).length, name).toBeGreaterThan(name === 'publisher' ? -1 : 0);
    expect(await rawErrors(name, part)).toEqual([]);
  }
  // the control: a method that trips over what it is given is found
  const trips = new (class {
    take(value: { readonly length: number }): number {
      return value.length;
    }
  })();
  expect((await rawErrors('trips', trips)).length).toBeGreaterThan(0);
});

it('and what is misspelled beside a tenant is refused by a hand-off, which would share it with others', async () => {
  await using kv = await openHostRuntime();
  await using sender = await HandoffSender.open(kv, { listen: {} });
  await using receiver = new HandoffReceiver(kv);
  const misspelled = { tenant: 'a', extrs: { adapter: 'b' } } as never;
  const refused = { code: 'TKV_INPUT', field: 'extrs' };
  await expect(sender.offer(prompt(1), misspelled)).rejects.toMatchObject(refused);
  const params = { reference: '', host: '', port: 0 };
  await expect(receiver.receive(params, prompt(1), misspelled)).rejects.toMatchObject(refused);
});
