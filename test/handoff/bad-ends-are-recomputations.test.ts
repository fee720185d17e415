import { connect, createServer, type Server, type Socket } from 'node:net';
import { setImmediate } from 'node:timers/promises';
import { describe, expect, it } from 'vitest';
import { kvLayout } from '../../src/runtime/index.ts';
import { type HandoffEnd, HandoffReceiver } from '../../src/serve/handoff/receiver.ts';
import { References } from '../../src/serve/handoff/reference.ts';
import { HandoffSender } from '../../src/serve/handoff/sender.ts';
import { type TransferParams, transferAnswer, transferWish } from '../../src/serve/handoff/transferParams.ts';
import { SeededRandom, testSeed } from '../../src/testing/index.ts';
import { FaultProxy, proxyWays } from '../backends/remote/faultProxy.ts';
import { ask, layout, openRuntime, prompt, promptBlocks, tenant, write } from '../embed/liveRuntime.ts';
import { portOfOurOwn } from '../ports.ts';
import { Pair, passedOn, patient } from './pair.ts';

/** A server at a free port that does with its connections what `serve` does. */
async function stranger(
  serve: (socket: Socket) => void,
): Promise<{ port: number; close: () => Promise<void> }> {
  const sockets = new Set<Socket>();
  const server: Server = createServer((socket) => {
    sockets.add(socket);
    socket.on('error', () => {});
    serve(socket);
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const address = server.address();
  if (address === null || typeof address === 'string') throw new Error('no port');
  return {
    port: address.port,
    close: async () => {
      for (const socket of sockets) socket.destroy();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}

/** The prefill side's greeting of a version. */
function greeting(version: number): Buffer {
  const frame = Buffer.alloc(4 + 1 + 38);
  frame.writeUInt32LE(39, 0);
  frame[4] = 1;
  frame.write('TKVH', 5, 'latin1');
  frame.writeUInt16LE(version, 9);
  return frame;
}

describe('a hand-off that cannot be', () => {
  it('takes none of 100 references that are forged, damaged, foreign or of other prompts', async () => {
    const seed = testSeed(4001);
    const random = new SeededRandom(seed);
    await using pair = await Pair.open();
    await using stranger = await Pair.open({ prefill: { secretKey: new Uint8Array(32).fill(9) } });
    const offer = await pair.offer(1);
    await ask(pair.prefill, 1);
    offer.computed();
    const right = passedOn(offer);
    const other = passedOn(await pair.offer(2));
    const foreign = passedOn(await stranger.offer(1));
    const outcomes: string[] = [];
    for (let i = 0; i < 100; i++) {
      const bytes = Buffer.from(right.reference, 'base64url');
      const kind = i % 5;
      let params: TransferParams = right;
      if (kind === 0) {
        bytes[random.below(bytes.length)] ^= 1 << random.below(8);
        params = { ...right, reference: bytes.toString('base64url') };
      } else if (kind === 1)
        params = { ...right, reference: bytes.subarray(0, random.below(74)).toString('base64url') };
      else if (kind === 2) params = { ...right, port: 1 + random.below(60_000) };
      else if (kind === 3) params = random.chance(0.5) ? { ...right, host: 'example.org' } : foreign;
      else params = other;
      const end = await pair.receive(params, 1);
      outcomes.push(end.outcome);
      expect(end, `seed ${seed}, ${i}`).toMatchObject({ taken: 0, bytes: 0 });
    }
    expect(new Set(outcomes)).toEqual(new Set(['foreign', 'stale']));
    expect(pair.receiver.describe().peers, 'no connection was made').toBe(0);
    // the control: the reference itself is taken
    expect(await pair.receive(right, 1)).toMatchObject({ outcome: 'taken', taken: promptBlocks });
  });

  it('is stale for another prompt, tenant, model, layout and epoch', async () => {
    await using pair = await Pair.open();
    const params = passedOn(await pair.offer(1));
    const tokens = prompt(1);
    expect(await pair.receiver.receive(params, tokens, { tenant: 'tenant-b' })).toMatchObject({
      outcome: 'stale',
    });
    expect(await pair.receive(params, 2)).toMatchObject({ outcome: 'stale' });
    const wide = kvLayout({ layers: 4, kvHeads: 2, headDim: 64, dtype: 'f16', blockTokens: 16 });
    for (const [name, decode] of Object.entries({
      model: { model: 'test@2' },
      layout: { layout: wide, hbmBytes: 20 * wide.blockBytes, ddrBytes: 20 * wide.blockBytes },
      epoch: { epoch: 1 },
    })) {
      await using other = await openRuntime({ ddrBytes: 20 * layout.blockBytes, ...decode });
      const end = await new HandoffReceiver(other).receive(params, tokens, { tenant });
      expect(end, name).toMatchObject({ outcome: 'stale', taken: 0 });
    }
  });

  it('ends when the other side goes away in the middle; what came stays, the rest is computed', async () => {
    const seed = testSeed(4003);
    const port = await portOfOurOwn();
    await using proxy = await FaultProxy.open(port, new SeededRandom(seed));
    await using pair = await Pair.open({
      sending: { listen: { port, advertise: `127.0.0.1:${proxy.port}` } },
    });
    const offer = await pair.offer(3);
    const coming = pair.receive(passedOn(offer), 3);
    const sequence = await pair.prefill.begin(prompt(3).slice(0, 2 * layout.blockTokens), { tenant });
    write(pair.prefill, sequence, 3);
    await pair.prefill.seal(sequence);
    while (pair.sender.counts.blocks < 2) await new Promise((resolve) => setTimeout(resolve, 1));
    proxy.way = 'refuse';
    expect(await coming).toMatchObject({ outcome: 'vanished', taken: 2 });
    pair.prefill.release(sequence);
    expect(await ask(pair.decode, 3)).toEqual({ cachedTokens: 2 * layout.blockTokens, right: true });
    expect(await pair.receive(passedOn(offer), 3)).toMatchObject({ outcome: 'taken', taken: 0 });
    // what was not taken can be claimed again while the lease lasts, and not once it was given up
    const again = await pair.offer(4);
    await ask(pair.prefill, 4);
    again.computed();
    expect(await pair.receive(passedOn(again), 4)).toMatchObject({ outcome: 'vanished', taken: 0 });
    proxy.way = 'pass';
    expect(await pair.receive(passedOn(again), 4)).toMatchObject({ outcome: 'taken', taken: promptBlocks });
    const last = await pair.offer(5);
    last.withdraw();
    expect(await pair.receive(passedOn(last), 5)).toMatchObject({ outcome: 'stale', taken: 0 });
    expect(pair.notices.some((line) => line.includes('vanished'))).toBe(true);
  });

  it('keeps nothing of a hand-off that was called off, or whose connection broke', async () => {
    const port = await portOfOurOwn();
    await using proxy = await FaultProxy.open(port, new SeededRandom(1));
    await using pair = await Pair.open({
      sending: { listen: { port, advertise: `127.0.0.1:${proxy.port}` } },
    });
    for (const [seed, end] of [
      [7, 'abort'],
      [8, 'break'],
    ] as const) {
      const calling = new AbortController();
      const offer = await pair.offer(seed);
      const options = { tenant, signal: calling.signal };
      const coming = pair.receiver.receive(passedOn(offer), prompt(seed), options);
      const sequence = await pair.prefill.begin(prompt(seed).slice(0, 2 * layout.blockTokens), { tenant });
      write(pair.prefill, sequence, seed);
      await pair.prefill.seal(sequence);
      const before = pair.decode.manager.inspect.openSequences;
      while (pair.sender.counts.blocks % 2 !== 0 || pair.decode.manager.inspect.openSequences < 2) {
        await new Promise((resolve) => setTimeout(resolve, 1));
      }
      expect(before).toBeLessThanOrEqual(2);
      if (end === 'abort') calling.abort();
      else proxy.way = 'refuse';
      expect((await coming).taken, end).toBe(2);
      expect(pair.decode.manager.inspect.openSequences, end).toBe(0);
      proxy.way = 'pass';
      pair.prefill.release(sequence);
      offer.withdraw();
    }
    expect(pair.decode.manager.evict(1, 4, pair.decode.nowUs()).evicted).toBe(4);
  });

  it('is stale where the process was killed, and its successor at the same place is asked', async () => {
    const port = await portOfOurOwn();
    await using pair = await Pair.open({ sending: { listen: { port } } });
    const offer = await pair.offer(6);
    await ask(pair.prefill, 6);
    offer.computed();
    const params = passedOn(offer);
    await pair.sender.close();
    expect(await pair.receive(params, 6)).toMatchObject({ outcome: 'vanished', taken: 0 });
    await using successor = await HandoffSender.open(pair.prefill, { listen: { port } });
    const end = await pair.receive(params, 6);
    expect(end).toMatchObject({ outcome: 'stale', taken: 0 });
    expect(end.reason).toContain('another process offered it');
    expect(successor.counts.unknownClaims).toBe(1);
    expect((await ask(pair.decode, 6)).right).toBe(true);
  });

  it('is over by its patience where the other side is mute or speaks another protocol', async () => {
    const greetings: Record<string, { readonly serve: (socket: Socket) => void; readonly outcome: string }> =
      {
        mute: { serve: () => {}, outcome: 'vanished' },
        web: { serve: (socket) => void socket.write('HTTP/1.1 400 Bad Request\r\n\r\n'), outcome: 'refused' },
        later: { serve: (socket) => void socket.write(greeting(2)), outcome: 'refused' },
        hanging: { serve: (socket) => void socket.end(), outcome: 'vanished' },
      };
    await using pair = await Pair.open();
    // no peer but the mute one may be taken for late
    await using hasty = new HandoffReceiver(pair.decode, { ...patient, connectMs: 200 });
    const port = pair.decode.blockPort();
    const prompted = port.unitsOf(prompt(1), { tenant });
    for (const [name, { serve, outcome }] of Object.entries(greetings)) {
      const other = await stranger(serve);
      const address = { host: '127.0.0.1', port: other.port };
      const { text } = new References(port).make(prompted, 'direct', address);
      const receiver = name === 'mute' ? hasty : pair.receiver;
      const end = await receiver.receive({ reference: text, ...address }, prompt(1), { tenant });
      expect(end, name).toMatchObject({ outcome, taken: 0 });
      if (name === 'later') expect(end.reason).toContain('version 2');
      await other.close();
    }
    expect((await ask(pair.decode, 1)).right).toBe(true);
  });

  it('over networks that stall, lose, slow down, garble and cut: what is taken is right', async () => {
    const seed = testSeed(4002);
    const port = await portOfOurOwn();
    await using proxy = await FaultProxy.open(port, new SeededRandom(seed));
    const sending = { listen: { port, advertise: `127.0.0.1:${proxy.port}` } };
    await using pair = await Pair.open({ sending });
    // patience ends what the network does not; over the slow one all comes to a good end
    await using hasty = new HandoffReceiver(pair.decode, { ...patient, patienceMs: 1500, connectMs: 1500 });
    for (const [round, way] of proxyWays.entries()) {
      const from = 10 * round;
      const receiver = way === 'pass' || way === 'slow' ? pair.receiver : hasty;
      const handOff = async (of: number): Promise<HandoffEnd> => {
        const offer = await pair.offer(of);
        await ask(pair.prefill, of);
        offer.computed();
        const end = await receiver.receive(passedOn(offer), prompt(of), { tenant });
        offer.withdraw();
        return end;
      };
      // the greeting and a whole hand-off pass; then the way changes under the connection
      proxy.way = 'pass';
      await handOff(from);
      proxy.way = way;
      const end = await handOff(from + 1);
      const hint = `seed ${seed}, ${way}: ${JSON.stringify(end)}`;
      if (receiver === pair.receiver) expect(end.outcome, hint).toBe('taken');
      else expect(['vanished', 'late', 'refused', 'corrupt', 'stale'], hint).toContain(end.outcome);
      const answer = await ask(pair.decode, from + 1);
      expect(answer, hint).toEqual({ cachedTokens: end.taken * layout.blockTokens, right: true });
    }
    proxy.way = 'pass';
  });

  it('is refused by a peer with another secret key, and both sides say so', async () => {
    // both sides agree on references by a fault of their owner, and not on the connection: an address that passed on
    await using pair = await Pair.open();
    await using other = await Pair.open({ prefill: { secretKey: new Uint8Array(32).fill(9) } });
    const { Wire, wireIdentity } = await import('../../src/serve/handoff/wire.ts');
    const { connect } = await import('node:net');
    const { port } = other.sender.address;
    const socket = connect({ host: '127.0.0.1', port });
    await new Promise((resolve) => socket.once('connect', resolve));
    const dialed = Wire.dial(socket, wireIdentity(pair.decode.blockPort(), 1 << 20), 60_000);
    await expect(dialed).rejects.toMatchObject({
      kind: 'refused',
      message: expect.stringContaining('secret key'),
    });
    while (other.sender.counts.refusedPeers === 0) await new Promise((resolve) => setTimeout(resolve, 1));
    expect(other.notices.join()).toContain('is refused: it has another secret key');
  });

  it('says what is wrong with kv_transfer_params, and takes those of other servers for foreign', async () => {
    expect(transferWish(undefined)).toEqual({ kind: 'none' });
    expect(transferWish({ do_remote_decode: false })).toEqual({ kind: 'none' });
    for (const wrong of [
      7,
      [],
      'x',
      { do_remote_prefill: 1 },
      { do_remote_prefill: true, do_remote_decode: true },
    ]) {
      expect(transferWish(wrong).kind, JSON.stringify(wrong)).toBe('wrong');
    }
    const ofVllm = {
      do_remote_prefill: true,
      remote_block_ids: [1, 2, 3],
      remote_engine_id: 'x',
      remote_host: 'h',
      remote_port: 5600,
    };
    const wish = transferWish(ofVllm);
    await using pair = await Pair.open();
    if (wish.kind !== 'decode') throw new Error('not a decode leg');
    expect(await pair.receive(wish.params, 1)).toMatchObject({ outcome: 'foreign', taken: 0 });
    const offer = await pair.offer(1);
    expect(JSON.stringify(transferAnswer(offer.reference, 'e'))).not.toContain('undefined');
    expect((await ask(pair.decode, 1)).cachedTokens).toBe(0);
  });

  it('ends with the signal of its request, and lets the other side go on', async () => {
    await using pair = await Pair.open();
    const offer = await pair.offer(5);
    const leaving = new AbortController();
    const coming = pair.receiver.receive(passedOn(offer), prompt(5), { tenant, signal: leaving.signal });
    while (pair.receiver.describe().peers === 0) await new Promise((resolve) => setTimeout(resolve, 1));
    leaving.abort();
    expect(await coming).toMatchObject({ outcome: 'late', reason: 'the request was called off' });
    await ask(pair.prefill, 5);
    offer.computed();
    expect(await pair.receive(passedOn(offer), 5)).toMatchObject({ outcome: 'taken', taken: promptBlocks });
  });

  it('leaves the line of waiting requests with its request, and the others go on in turn', async () => {
    await using pair = await Pair.open({ receiving: { atOnce: 1 } });
    const slow = await pair.offer(5); // not computed yet
    const first = pair.receive(passedOn(slow), 5);
    const ready = await pair.offer(6);
    await ask(pair.prefill, 6);
    ready.computed();
    const leaving = Array.from({ length: 3 }, () => new AbortController());
    const called = leaving.map(({ signal }) =>
      pair.receiver.receive(passedOn(ready), prompt(6), { tenant, signal }),
    );
    const last = pair.receive(passedOn(ready), 6);
    expect(pair.receiver.describe()).toMatchObject({ under: 1, waiting: 4 });
    for (const each of leaving) each.abort();
    for (const end of await Promise.all(called)) {
      expect(end).toMatchObject({ outcome: 'late', reason: 'the request was called off', taken: 0 });
    }
    expect(pair.receiver.describe()).toMatchObject({ under: 1, waiting: 1 });
    await ask(pair.prefill, 5);
    slow.computed();
    expect(await first).toMatchObject({ outcome: 'taken', taken: promptBlocks });
    expect(await last).toMatchObject({ outcome: 'taken', taken: promptBlocks });
  });

  it('does not go over a connection on which the other side was silent', async () => {
    const port = await portOfOurOwn();
    await using proxy = await FaultProxy.open(port, new SeededRandom(1));
    await using pair = await Pair.open({
      sending: { listen: { port, advertise: `127.0.0.1:${proxy.port}` } },
      receiving: { patienceMs: 300 },
    });
    const offer = await pair.offer(7);
    const coming = pair.receive(passedOn(offer), 7);
    while (pair.receiver.describe().peers === 0 || proxy.openEnds === 0) await setImmediate();
    proxy.way = 'halfOpen';
    expect((await coming).outcome).toMatch(/late|vanished/);
    while (proxy.openEnds > 0) await setImmediate(); // it was given up, and not kept for the next one
  });

  it('is not kept out by strangers that hold connections, from its own address or another', async () => {
    await using pair = await Pair.open();
    const { port } = pair.sender.address;
    const sockets: Socket[] = [];
    const idle = async (localAddress: string): Promise<Socket> => {
      const socket = connect({ port, host: '127.0.0.1', localAddress });
      socket.on('error', () => {});
      sockets.push(socket);
      await new Promise((resolve) => socket.once('data', resolve)); // the greeting of the prefill side
      return socket;
    };
    const alone = await idle('127.0.0.1');
    const others = await Promise.all(Array.from({ length: 300 }, () => idle('127.0.0.2')));
    await expect.poll(() => others.filter(({ closed }) => closed).length).toBe(45); // 300 and one, less 256
    expect(alone.closed).toBe(false); // the oldest of all, of an address that has few
    const offer = await pair.offer(8);
    await ask(pair.prefill, 8);
    offer.computed();
    expect(await pair.receive(passedOn(offer), 8)).toMatchObject({ outcome: 'taken', taken: promptBlocks });
    for (const socket of sockets) socket.destroy();
  });

  it('costs an error of its own for an option that is wrong', async () => {
    await using kv = await openRuntime({});
    await expect(HandoffSender.open(kv, { listen: {}, leaseMs: 0 })).rejects.toMatchObject({
      field: 'leaseMs',
    });
    await expect(HandoffSender.open(kv, { listen: {}, heldBytesMax: 1 })).rejects.toMatchObject({
      field: 'heldBytesMax',
    });
    await expect(HandoffSender.open(kv, { lisen: {} } as never)).rejects.toThrow('listen');
  });
});
