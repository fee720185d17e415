/**
 * A publisher of KV events in a process of its own, as an engine is: it tells of a block every few milliseconds, each the first
 * of a chain, so that one can be known without the others. Arguments: endpoint, address of replays or '', first number, first block.
 */

import { setTimeout as sleep } from 'node:timers/promises';
import { Publisher, Router } from 'zeromq';
import { loadMessagePack, numberFrame, packBatch } from '../../../../src/serve/gateway/events/wire.ts';

const [endpoint, replayEndpoint, firstNumber, firstBlock] = process.argv.slice(2);
const pack = await loadMessagePack();
const socket = new Publisher({ linger: 0 });
await socket.bind(endpoint);
let number = BigInt(firstNumber);
const sent: Uint8Array[][] = [];

async function answer(router: Router): Promise<void> {
  for await (const [peer, , from] of router) {
    const first = from.readBigInt64BE();
    for (const [each, payload] of sent) {
      if (Buffer.from(each).readBigInt64BE() >= first) await router.send([peer, '', each, payload]);
    }
    await router.send([peer, '', numberFrame(-1n), new Uint8Array(0)]);
  }
}

if (replayEndpoint !== '') {
  const router = new Router({ linger: 0 });
  await router.bind(replayEndpoint);
  void answer(router);
}
for (let block = Number(firstBlock); ; block++) {
  const event = ['BlockStored', [BigInt(block + 1)], null, [block, block, block, block], 4, null, 'GPU'];
  const frames = [numberFrame(number++), packBatch(pack, 1, [event], 0)];
  sent.push(frames);
  await socket.send(['', ...frames]);
  if (process.connected) process.send?.({ number: String(number), block });
  await sleep(10);
}
