/**
 * Ports for tests that name one beforehand or start again on it. The system hands out those of its ephemeral range to
 * every connection of the machine, so a port that a closed listener had from there may be taken when it is wanted again.
 */

import { readFileSync } from 'node:fs';
import { createServer } from 'node:net';

/** Ports of one process of tests, so that processes beside it search elsewhere. */
const SLICE = 250;
/** Workers of one run of vitest, at most: each has a slice of its own. */
const WORKERS = 64;
const lowest = 10_000;
const ephemeral = lowestEphemeral();
const slices = Math.floor((ephemeral - lowest) / SLICE);
let next = (sliceOfOurOwn() % slices) * SLICE;

/** @returns a port that nothing listens at, and that neither the system nor a later call gives to anything else */
export async function portOfOurOwn(): Promise<number> {
  for (let tried = 0; tried < slices * SLICE; tried++) {
    const port = lowest + next;
    next = (next + 1) % (slices * SLICE);
    if (await isFree(port)) return port;
  }
  throw new Error(`no port from ${lowest} to ${ephemeral - 1} is free`);
}

/**
 * A port is free until its server listens, so two processes of one run must not search at one place: they differ by the
 * number that vitest gives to each worker. Runs beside each other differ by their main process, as a rule.
 */
function sliceOfOurOwn(): number {
  const worker = Number(process.env.VITEST_POOL_ID);
  return Number.isInteger(worker) ? process.ppid * WORKERS + worker : process.pid;
}

function isFree(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const server = createServer();
    server.once('error', () => resolve(false));
    server.listen(port, '127.0.0.1', () => server.close(() => resolve(true)));
  });
}

/** Linux says it; the others begin at 49152. */
function lowestEphemeral(): number {
  try {
    const first = Number(readFileSync('/proc/sys/net/ipv4/ip_local_port_range', 'utf8').split(/\s+/)[0]);
    return first >= lowest + SLICE ? first : 32_768;
  } catch {
    return 49_152;
  }
}
