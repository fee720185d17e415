/** Draws from a register in a thread of its own, whose modules are loaded with WebAssembly or without. */

import { parentPort, workerData } from 'node:worker_threads';

if (workerData.isPortable) Reflect.set(globalThis, 'WebAssembly', undefined);
const { GoRandom } = await import('../../../src/sim/random/goRand.ts');
const { hasSimdRegister } = await import('../../../src/sim/random/registerSimd.ts');
const random = new GoRandom(-77n);
random.skipIntn(12_345, 128_000);
random.skipTo(random.position + 5_000);
parentPort?.postMessage(`${hasSimdRegister} ${random.position} ${random.normFloat64()} ${random.uint64()}`);
