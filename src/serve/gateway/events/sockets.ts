/**
 * ZeroMQ sockets as this folder uses them, and the package behind them, which is loaded when the first socket is
 * opened. All else here is written against these types, so that tests can take messages away in between.
 */

import type { Publisher, Router } from 'zeromq';
import { described, TierKVError } from '../../../runtime/errors.ts';
import * as is from '../../../runtime/kinds.ts';
import { packageMissing } from './wire.ts';

export type ZeroMq = typeof import('zeromq');

/** @throws TKV_CONFIG where the package is not installed */
export async function loadZeroMq(): Promise<ZeroMq> {
  try {
    return await import('zeromq');
  } catch (cause) {
    throw packageMissing('zeromq', cause);
  }
}

/** Largest message that is taken from elsewhere, in bytes: a dump of a million blocks is below it. */
export const MESSAGE_BYTES_MAX: number = 256 * 1024 * 1024;

/** @throws TKV_CONFIG unless it is an address of ZeroMQ: `tcp://host:port` or `ipc://path` */
export function requireEndpoint(field: string, endpoint: string): string {
  is.name("Set it to 'tcp://host:port' or 'ipc://path'.").read(endpoint, field, 'TKV_CONFIG');
  if (/^tcp:\/\/[^\s/]+:(?:\d{1,5}|\*)$/.test(endpoint) || /^(?:ipc|inproc):\/\/\S+$/.test(endpoint)) {
    return endpoint;
  }
  throw new TierKVError(
    'TKV_CONFIG',
    `${field} must be an address of ZeroMQ, and it is '${endpoint}'. Set it to 'tcp://host:port' or 'ipc://path'.`,
    { field },
  );
}

/** @throws TKV_CONFIG when the address is taken or does not exist on this machine */
export async function bound<Socket extends { bind(endpoint: string): Promise<void>; close(): void }>(
  socket: Socket,
  field: string,
  endpoint: string,
): Promise<Socket> {
  try {
    await socket.bind(endpoint);
    return socket;
  } catch (cause) {
    socket.close();
    const why = cause instanceof Error ? cause.message : String(cause);
    throw new TierKVError(
      'TKV_CONFIG',
      `${field} ${endpoint} cannot be bound (${why}). Use an address of this machine that is free.`,
      { field, cause },
    );
  }
}

/**
 * Closes a bound socket. ZeroMQ lets go of the address in a thread of its own, so the promise resolves when the
 * listener is gone: until then, a publisher that starts again would find its own address taken.
 */
export function closedSocket(socket: Publisher | Router): Promise<void> {
  return new Promise((resolve) => {
    socket.events.on('close', () => resolve());
    socket.events.on('end', () => resolve());
    socket.close();
  });
}

/** @throws TKV_CONFIG unless it is text */
export function requireTopic(topic: string): void {
  if (typeof topic === 'string') return;
  const problem = `topic must be text, and it is ${described(topic)}`;
  throw new TierKVError('TKV_CONFIG', `${problem}. Leave it out for all topics.`, { field: 'topic' });
}
