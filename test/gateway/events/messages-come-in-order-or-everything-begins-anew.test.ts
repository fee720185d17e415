/** Order of messages: what is delivered is complete, or `cleared` comes between. */

import { describe, expect, it } from 'vitest';
import { BatchOrder } from '../../../src/serve/gateway/events/batchOrder.ts';
import type { KVEventBatch } from '../../../src/serve/gateway/events/wire.ts';

const batch = (number: number, events: KVEventBatch['events'] = []): KVEventBatch => ({
  topic: '',
  number: BigInt(number),
  publishedAtS: 0,
  rank: null,
  events,
});
const state = (number: number): KVEventBatch =>
  batch(number, [{ type: 'cleared', reason: 'published', medium: null }]);

/** A reader that keeps numbers and reasons, and the replays that were asked for. */
function reader({ replays = true, waitingMax = 100 } = {}) {
  const told: (number | string)[] = [];
  const asked: number[] = [];
  const order = new BatchOrder({
    deliver: ({ number, events: [first] }) =>
      told.push(first?.type === 'cleared' ? `${first.reason} ${number}` : Number(number)),
    ask: replays ? (from) => asked.push(Number(from)) : undefined,
    waitingMax,
  });
  return { told, asked, order };
}

describe('messages in order', () => {
  it('begin with a replay of all that there is, and go on live', () => {
    const { told, asked, order } = reader();
    order.resync();
    order.live(batch(5));
    order.replayed(batch(3));
    order.replayed(batch(4));
    order.replayed(batch(5));
    order.replayEnded();
    order.live(batch(6));
    expect(told).toEqual([3, 4, 5, 6]);
    expect(asked).toEqual([0]);
    expect(order.counts).toMatchObject({ gaps: 0, replays: 1, duplicates: 1, lastNumber: 6n });
  });

  it('are asked for again when some are missing, and held until then', () => {
    const { told, asked, order } = reader();
    order.live(batch(0));
    order.live(batch(3));
    order.live(batch(4));
    expect(told).toEqual([0]);
    expect(asked).toEqual([1]);
    for (const number of [1, 2, 3]) order.replayed(batch(number));
    order.replayEnded();
    expect(told).toEqual([0, 1, 2, 3, 4]);
    expect(order.counts.gaps).toBe(1);
  });

  it('are begun anew where the missing ones are gone: vLLM sends what it has', () => {
    const { told, order } = reader();
    order.live(batch(0));
    order.live(batch(9));
    order.replayed(batch(7));
    order.replayed(batch(8));
    order.replayEnded();
    expect(told).toEqual([0, 'gap 7', 7, 8, 9]);
  });

  it('are begun anew by the state, which clears by itself', () => {
    const { told, order } = reader();
    order.live(batch(0));
    order.live(batch(9));
    order.replayed(state(9));
    order.replayEnded();
    order.live(batch(10));
    expect(told).toEqual([0, 'published 9', 10]);
  });

  it('are asked for from 0 where a replay does not bring them, and then taken as they are', () => {
    const { told, asked, order } = reader();
    order.live(batch(0));
    order.live(batch(9));
    order.replayEnded();
    expect(asked).toEqual([1, 0]);
    order.replayEnded();
    expect(asked).toEqual([1, 0]);
    expect(told).toEqual([0, 'gap 0', 9]);
    order.live(batch(10));
    expect(told.at(-1)).toBe(10);
  });

  it('go on after a replay that failed', () => {
    const { told, order } = reader();
    order.live(batch(0));
    order.live(batch(2));
    order.replayFailed();
    order.live(batch(3));
    expect(told).toEqual([0, 'gap 2', 2, 3]);
    expect(order.counts.replaysFailed).toBe(1);
  });

  it('are begun anew where nothing can be had again', () => {
    const { told, order } = reader({ replays: false });
    for (const number of [4, 5, 7, 8]) order.live(batch(number));
    expect(told).toEqual([4, 5, 'gap 7', 7, 8]);
  });

  it('are begun anew when the publisher begins again from a lower number', () => {
    const { told, asked, order } = reader();
    for (const number of [0, 1, 2]) order.live(batch(number));
    order.live(batch(0));
    order.live(batch(1));
    expect(told).toEqual([0, 1, 2, 'restart 0', 0, 1]);
    order.live(batch(1));
    expect(told.at(-1), 'once more: its 0 is missing').toBe('restart 1');
    expect(asked).toEqual([0]);
  });

  it('are begun anew behind a connection that was lost, also where numbers go on: it may be another publisher', () => {
    const { told, asked, order } = reader();
    for (const number of [0, 1, 2]) order.live(batch(number));
    order.connectionLost();
    order.live(batch(3));
    expect([told, asked]).toEqual([[0, 1, 2, 'gap 2'], [0]]);
    order.replayed(state(3));
    order.replayEnded();
    expect(told).toEqual([0, 1, 2, 'gap 2', 'published 3']);
    const without = reader({ replays: false });
    for (const number of [0, 1, 2]) without.order.live(batch(number));
    without.order.connectionLost();
    without.order.live(batch(3));
    expect(without.told).toEqual([0, 1, 2, 'gap 2', 3]);
  });

  it('wait for a replay in bounded room: what is dropped is asked for again', () => {
    const { told, asked, order } = reader({ waitingMax: 3 });
    order.live(batch(0));
    for (const number of [2, 3, 4, 5]) order.live(batch(number));
    order.replayed(batch(1));
    order.replayEnded();
    order.live(batch(6));
    expect(asked).toEqual([1, 2]);
    for (const number of [2, 3, 4, 5, 6]) order.replayed(batch(number));
    order.replayEnded();
    expect(told).toEqual([0, 1, 2, 3, 4, 5, 6]);
  });

  it('that cannot be read in a replay are not asked for for ever', () => {
    const { told, asked, order } = reader();
    order.live(batch(0));
    order.live(batch(3));
    order.replayed(batch(1));
    order.replayUnreadable(2n);
    order.replayEnded();
    expect(told).toEqual([0, 1, 'gap 2', 3]);
    expect(asked).toEqual([1]);
  });

  it('end as the publisher says, whatever is lost: 2,000 random links', () => {
    for (let seed = 1; seed <= 2000; seed++) lossyLink(seed);
  });
});

/** A publisher of tierkv's kind and one of vLLM's, each behind a link that loses messages. */
function lossyLink(seed: number): void {
  let at = seed;
  const draw = (limit: number): number => {
    at = (Math.imul(at, 1664525) + 1013904223) >>> 0;
    return Math.floor((at / 2 ** 32) * limit);
  };
  const dumps = draw(2) === 0;
  const keeps = 1 + draw(5);
  const first = dumps ? 1000 : 0;
  const sent: KVEventBatch[] = [];
  /** The truth: one block, stored or not, by the last message of each number. */
  let truth = -1;
  let known = -1;
  const order = new BatchOrder({
    deliver: ({ events }) => {
      for (const event of events) {
        if (event.type === 'cleared') known = -1;
        else if (event.type === 'stored') known = event.tokenIds[0];
      }
    },
    ask: (from) => {
      pending = from;
    },
    waitingMax: 20,
  });
  let pending: bigint | undefined;
  const stored = (value: number): KVEventBatch['events'][number] => ({
    type: 'stored',
    hashes: ['a'],
    parent: null,
    tokenIds: [value],
    blockTokens: 1,
    medium: null,
    group: null,
    layers: null,
    loraName: null,
    salt: null,
    extraKeys: null,
  });
  const answer = (): void => {
    while (pending !== undefined) {
      const from = Number(pending);
      pending = undefined;
      const last = first + sent.length - 1;
      const oldest = Math.max(first, last - keeps + 1);
      if (dumps && from < oldest && sent.length > 0) {
        order.replayed(batch(last, [{ type: 'cleared', reason: 'published', medium: null }, stored(truth)]));
      } else
        for (const one of sent.slice(oldest - first)) if (Number(one.number) >= from) order.replayed(one);
      order.replayEnded();
    }
  };
  order.resync();
  answer();
  for (let step = 0; step < 30; step++) {
    truth = step;
    const message = batch(first + sent.length, [stored(step)]);
    sent.push(message);
    if (draw(3) !== 0) order.live(message);
    if (draw(2) === 0) answer();
  }
  const end = batch(first + sent.length, []);
  sent.push(end);
  order.live(end);
  answer();
  expect(order.isAsking, `seed ${seed}`).toBe(false);
  if (dumps || keeps > 1) expect(known, `seed ${seed}`).toBe(truth);
  else expect([truth, -1], `seed ${seed}`).toContain(known);
}
