/**
 * Ends the process where its event loop stands for too long: a loop of microtasks lets no timer run, so no
 * client could say that it hangs.
 */

import { Worker } from 'node:worker_threads';

const STANDS_MS = 120_000;

/** The worker: it is told that the loop turns, and looks whether it was. */
const program = `
const { parentPort } = require('node:worker_threads');
const { writeSync } = require('node:fs');
let turned = performance.now();
parentPort.on('message', () => { turned = performance.now(); });
setInterval(() => {
  if (performance.now() - turned < ${STANDS_MS}) return;
  writeSync(2, 'FAILED hangs: the event loop has stood for ${STANDS_MS / 1000} s\\n');
  process.kill(process.pid, 'SIGKILL');
}, 5000);
`;

/** @returns what ends the watch */
export function watchEventLoop(): () => Promise<number> {
  const worker = new Worker(program, { eval: true });
  worker.unref();
  const timer = setInterval(() => worker.postMessage('turns'), 1000);
  return () => {
    clearInterval(timer);
    return worker.terminate();
  };
}
