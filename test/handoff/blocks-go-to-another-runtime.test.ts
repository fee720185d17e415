import { describe, expect, it } from 'vitest';
import { HandoffReceiver } from '../../src/serve/handoff/receiver.ts';
import {
  ask,
  blocks,
  layout,
  openRuntime,
  prompt,
  promptBlocks,
  tenant,
  write,
} from '../embed/liveRuntime.ts';
import { Pair, passedOn, patient } from './pair.ts';

const whole = promptBlocks * layout.blockTokens;

describe('a hand-off between two runtimes', () => {
  it('brings what one computed to the other, bit for bit, and lets it go', async () => {
    await using pair = await Pair.open();
    const offer = await pair.offer(1);
    expect(await ask(pair.prefill, 1)).toEqual({ cachedTokens: 0, right: true });
    offer.computed();
    const end = await pair.receive(passedOn(offer), 1);
    expect(end).toMatchObject({ outcome: 'taken', blocks: promptBlocks, taken: promptBlocks });
    expect(await offer.ended).toBe('handedOff');
    expect(pair.sender.describe()).toMatchObject({ open: 0, heldBytes: 0, blocks: promptBlocks });
    expect(await ask(pair.decode, 1)).toEqual({ cachedTokens: whole, right: true });
  });

  it('goes out of a runtime without a device', async () => {
    const host = { hbmBytes: undefined, ddrBytes: 20 * layout.blockBytes };
    await using pair = await Pair.open({ prefill: host });
    const offer = await pair.offer(9);
    expect(await ask(pair.prefill, 9)).toEqual({ cachedTokens: 0, right: true });
    offer.computed();
    expect(await pair.receive(passedOn(offer), 9)).toMatchObject({ outcome: 'taken', taken: promptBlocks });
    expect(await ask(pair.decode, 9)).toEqual({ cachedTokens: whole, right: true });
  });

  it('comes into a runtime without a device, as far as its memory goes', async () => {
    const host = { hbmBytes: undefined, ddrBytes: 6 * layout.blockBytes };
    await using pair = await Pair.open({ prefill: { hbmBytes: blocks(20) }, decode: host });
    for (const seed of [1, 2, 1]) {
      const offer = await pair.offer(seed);
      expect((await ask(pair.prefill, seed)).right).toBe(true);
      offer.computed();
      expect((await pair.receive(passedOn(offer), seed)).outcome).toBe('taken');
      expect(await ask(pair.decode, seed)).toEqual({ cachedTokens: whole, right: true });
    }
    // what is in use stays: it leaves no room beside it
    const sequence = await pair.decode.begin(prompt(1), { tenant });
    await using hasty = new HandoffReceiver(pair.decode, { ...patient, roomMs: 20 });
    const offer = await pair.offer(3);
    await ask(pair.prefill, 3);
    offer.computed();
    expect(await hasty.receive(passedOn(offer), prompt(3), { tenant })).toMatchObject({ outcome: 'full' });
    pair.decode.release(sequence);
    expect((await ask(pair.decode, 3)).right).toBe(true);
  });

  it('waits for room for a block without asking its manager again and again', async () => {
    await using pair = await Pair.open({
      prefill: { hbmBytes: blocks(promptBlocks + 1), ddrBytes: blocks(40) },
    });
    const { prefill } = pair;
    await ask(prefill, 1);
    prefill.manager.evict(0, promptBlocks, prefill.nowUs()); // into host memory
    await prefill.idle();
    const full = await prefill.begin(prompt(2), { tenant });
    await prefill.idle();
    const offer = await pair.offer(1);
    let opened = 0;
    const { manager } = prefill;
    const open = manager.open.bind(manager);
    manager.open = (...args) => {
      // without the rule it never ends, and no timer of the process rings any more
      if (++opened > 100) throw new Error('asked again and again');
      return open(...args);
    };
    offer.computed();
    await new Promise((resolve) => setTimeout(resolve, 20));
    expect(opened).toBeLessThan(promptBlocks);
    const coming = pair.receive(passedOn(offer), 1);
    prefill.release(full);
    expect(await coming).toMatchObject({ outcome: 'taken', taken: promptBlocks });
    expect(await ask(pair.decode, 1)).toEqual({ cachedTokens: whole, right: true });
  });

  it('brings the bytes of the name where a sequence has computed others', async () => {
    await using pair = await Pair.open();
    await ask(pair.prefill, 1);
    await pair.prefill.idle();
    // the same prompt at the same time, by kernels that do not repeat themselves: its blocks are its own
    const sequences = await Promise.all(
      [2, 3].map(async (seed) => {
        const sequence = await pair.prefill.begin(prompt(20), { tenant });
        write(pair.prefill, sequence, seed);
        return sequence;
      }),
    );
    const offer = await pair.offer(20);
    const coming = pair.receive(passedOn(offer), 20);
    await Promise.all(sequences.map((sequence) => pair.prefill.seal(sequence)));
    for (const sequence of sequences) pair.prefill.release(sequence);
    offer.computed();
    expect(await coming).toMatchObject({ outcome: 'taken', taken: promptBlocks });
    expect(pair.prefill.manager.inspect.counters.diverged).toBe(promptBlocks);
  });

  it('is computed where this side had other bytes before, on which a later block rests', async () => {
    await using pair = await Pair.open();
    const { decode } = pair;
    const sequence = await decode.begin(prompt(5), { tenant });
    write(decode, sequence, 77);
    await decode.seal(sequence);
    decode.release(sequence);
    // all but the last block leave, and that one keeps their names
    const port = decode.blockPort();
    const { units, owner } = port.unitsOf(prompt(5), { tenant });
    const held = await port.hold(units[promptBlocks - 1], owner);
    for (const tier of [0, 1]) {
      decode.manager.evict(tier, promptBlocks - 1, decode.nowUs());
      await decode.idle();
    }
    held?.release();
    expect(units.map((unit) => port.has(unit))).toEqual([false, false, false, true]);
    const offer = await pair.offer(5);
    await ask(pair.prefill, 5);
    offer.computed();
    expect(await pair.receive(passedOn(offer), 5)).toMatchObject({ outcome: 'differs', taken: 0 });
    expect((await decode.begin(prompt(5), { tenant })).cachedTokens).toBe(0);
  });

  it('brings blocks while later ones are computed', async () => {
    await using pair = await Pair.open();
    const offer = await pair.offer(2);
    const coming = pair.receive(passedOn(offer), 2);
    const { prefill: kv } = pair;
    const tokens = prompt(2);
    const sequence = await kv.begin(tokens.slice(0, layout.blockTokens), { tenant });
    let came = 0;
    for (let block = 1; block <= promptBlocks; block++) {
      write(kv, sequence, 2);
      await kv.seal(sequence);
      // each block is on the other side before the next one is begun
      while (pair.sender.counts.blocks < block) await new Promise((resolve) => setTimeout(resolve, 1));
      came = pair.sender.counts.blocks;
      if (block < promptBlocks) await kv.append(sequence, tokens.slice(0, (block + 1) * layout.blockTokens));
    }
    expect(came).toBe(promptBlocks);
    kv.release(sequence);
    offer.computed();
    expect(await coming).toMatchObject({ outcome: 'taken', taken: promptBlocks });
    expect(await ask(pair.decode, 2)).toEqual({ cachedTokens: whole, right: true });
  });

  it('fetches only what the other one lacks', async () => {
    await using pair = await Pair.open();
    for (const [round, taken] of [promptBlocks, 0].entries()) {
      const offer = await pair.offer(3);
      await ask(pair.prefill, 3);
      offer.computed();
      const end = await pair.receive(passedOn(offer), 3);
      expect(end, `round ${round}`).toMatchObject({ outcome: 'taken', taken });
      expect(await offer.ended).toBe('handedOff');
    }
  });

  it('is claimed once', async () => {
    await using pair = await Pair.open();
    const offer = await pair.offer(4);
    const both = [pair.receive(passedOn(offer), 4), pair.receive(passedOn(offer), 4)];
    const refused = await Promise.race(both);
    expect(refused).toMatchObject({ outcome: 'stale', taken: 0 });
    expect(refused.reason).toContain('another one has claimed it');
    await ask(pair.prefill, 4);
    offer.computed();
    expect((await Promise.all(both)).map(({ outcome }) => outcome).sort()).toEqual(['stale', 'taken']);
    expect(await pair.receive(passedOn(offer), 40)).toMatchObject({ outcome: 'stale', taken: 0 });
  });

  it('stops new prompts while too much is held, and goes on when it is let go', async () => {
    await using pair = await Pair.open({ sending: { listen: {}, heldBytesMax: 2 * layout.blockBytes } });
    const first = await pair.offer(5);
    await ask(pair.prefill, 5);
    first.computed();
    while (pair.sender.describe().heldBytes !== 2 * layout.blockBytes)
      await new Promise((r) => setTimeout(r, 1));
    let isOffered = false;
    const second = pair.offer(6).then((offer) => {
      isOffered = true;
      return offer;
    });
    await new Promise((resolve) => setTimeout(resolve, 20));
    expect(isOffered).toBe(false);
    expect(await pair.receive(passedOn(first), 5)).toMatchObject({ outcome: 'taken', taken: promptBlocks });
    (await second).withdraw();
    expect(await ask(pair.decode, 5)).toEqual({ cachedTokens: whole, right: true });
  });

  it('ends with its lease, and the blocks are free then', async () => {
    await using pair = await Pair.open({ sending: { listen: {}, leaseMs: 20 } });
    const offer = await pair.offer(7);
    await ask(pair.prefill, 7);
    offer.computed();
    expect(await offer.ended).toBe('expired');
    expect(pair.sender.describe()).toMatchObject({ open: 0, heldBytes: 0, expired: 1 });
    const end = await pair.receive(passedOn(offer), 7);
    expect(end).toMatchObject({ outcome: 'stale', taken: 0 });
    expect(end.reason).toContain('its lease has ended');
    expect(pair.prefill.manager.evict(0, promptBlocks, pair.prefill.nowUs()).evicted).toBe(promptBlocks);
    expect(await ask(pair.decode, 7)).toEqual({ cachedTokens: 0, right: true });
  });

  it('waits for room on the other side, and computes what found none', async () => {
    await using pair = await Pair.open({
      decode: { ddrBytes: 3 * layout.blockBytes },
      receiving: { roomMs: 50 },
    });
    const offer = await pair.offer(8);
    await ask(pair.prefill, 8);
    offer.computed();
    const end = await pair.receive(passedOn(offer), 8);
    expect(['taken', 'full']).toContain(end.outcome);
    expect((await ask(pair.decode, 8)).right).toBe(true);
  });

  it('needs host memory, or a shared tier', async () => {
    await using kv = await openRuntime({});
    const { HandoffSender } = await import('../../src/serve/handoff/sender.ts');
    expect(() => new HandoffReceiver(kv)).toThrow(
      expect.objectContaining({ code: 'TKV_CONFIG', field: 'ddrBytes' }),
    );
    await expect(HandoffSender.open(kv)).rejects.toMatchObject({ code: 'TKV_CONFIG', field: 'listen' });
    await expect(HandoffSender.open(kv, { listen: { prot: 1 } as never })).rejects.toThrow('Did you mean');
    await using sender = await HandoffSender.open(kv, { listen: {} });
    const { port } = sender.address;
    await expect(HandoffSender.open(kv, { listen: { port } })).rejects.toMatchObject({
      field: 'listen.port',
    });
  });
});
