/**
 * The program of a thread that copies memory for `copyThreads.ts`: it claims a part of the ring, copies it by address,
 * says so, and sleeps while the ring is empty. It decides nothing: the addresses are those of views that the main thread
 * holds until the part is said to be done.
 */

import { parentPort, workerData } from 'node:worker_threads';
import { Control, type CopyRing, PartState, ringOver } from './copyRing.ts';

type Memcpy = (into: bigint, from: bigint, bytes: number) => unknown;

/** Claims one part, if there is one. @returns false where the ring is empty */
function copyOne(
  { control, states, tasks, left, bytes, places }: CopyRing,
  self: number,
  memcpy: Memcpy,
): boolean {
  const head = Atomics.load(control, Control.HEAD);
  if (head === Atomics.load(control, Control.TAIL)) return false;
  if (Atomics.compareExchange(control, Control.HEAD, head, (head + 1) | 0) !== head) return true;
  const part = (head >>> 0) % states.length;
  const taken = PartState.TAKEN + self;
  if (Atomics.compareExchange(states, part, PartState.QUEUED, taken) === PartState.QUEUED) {
    memcpy(places[2 * part], places[2 * part + 1], bytes[part]);
    if (Atomics.load(control, Control.DYING) === self) process.exit(1); // a test of a thread that dies with a part
    const task = tasks[part];
    Atomics.store(states, part, PartState.FREE);
    if (Atomics.sub(left, task, 1) === 1) {
      Atomics.add(control, Control.DONE, 1);
      Atomics.notify(control, Control.DONE);
    }
    return true;
  }
  Atomics.store(states, part, PartState.FREE); // it was called off
  return true;
}

interface ThreadData {
  readonly memory: SharedArrayBuffer;
  readonly self: number;
}

async function main({ memory, self }: ThreadData): Promise<void> {
  const { default: koffi } = await import('koffi');
  const memcpy = koffi.load(null).func('void *memcpy(intptr_t into, intptr_t from, size_t bytes)') as Memcpy;
  const ring = ringOver(memory);
  const { control } = ring;
  parentPort?.postMessage('ready');
  while (self < Atomics.load(control, Control.WANTED)) {
    const tail = Atomics.load(control, Control.TAIL);
    if (!copyOne(ring, self, memcpy)) Atomics.wait(control, Control.TAIL, tail);
  }
}

await main(workerData as ThreadData);
