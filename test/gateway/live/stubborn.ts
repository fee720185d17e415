/**
 * Clients that hold on to their connections: they send half of something, ignore the end of the gateway's side, and keep their
 * own open. The campaign asks for 2,000 at a time; a test runs a slice.
 */

import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import { connect, type Socket } from 'node:net';
import { ask, echo, gatewayOf, TestBackend, textOf } from './backends.ts';

const post = 'POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n';

/** What each kind sends, and whether it reads. */
export const stubbornKinds: Readonly<Record<string, { readonly bytes: string; readonly reads: boolean }>> = {
  'nothing at all': { bytes: '', reads: false },
  'half a head': { bytes: 'POST /v1/completions HTTP/1.1\r\nhost: x\r\n', reads: false },
  'half a head, and reads': { bytes: 'POST /v1/completions HTTP/1.1\r\nhost: x\r\n', reads: true },
  'half a body': { bytes: `${post}content-length: 1000\r\n\r\n{"model"`, reads: false },
  'half a body in chunks': { bytes: `${post}transfer-encoding: chunked\r\n\r\n10\r\n{"model"`, reads: false },
  'a head that cannot be': { bytes: 'POST /v1/completions HTTP/1.1\r\nno colon\r\n\r\n', reads: false },
  'a head beyond the limit': { bytes: `GET / HTTP/1.1\r\nhost: x\r\nx: ${'y'.repeat(40_000)}`, reads: false },
  'half a body without a right': {
    bytes: `${post.replace('/v1/', '/other/')}content-length: 1000\r\n\r\n{`,
    reads: false,
  },
  'small questions, and takes no answer': {
    bytes: 'GET /health HTTP/1.1\r\nhost: x\r\n\r\n'.repeat(100),
    reads: false,
  },
  'questions, and takes no answer': {
    bytes: 'GET /v1/models HTTP/1.1\r\nhost: x\r\n\r\n'.repeat(100),
    reads: false,
  },
};

export interface StubbornReport {
  /** Connections that were not let go within the patience. */
  readonly held: number;
  /** The longest time from when the gateway took a connection until it let it go, in parts of the limit. */
  readonly limits: number;
  /** Status of the answer to another client while all of them were there. */
  readonly beside: number;
}

/** Connections that a port has taken: libuv takes one a turn of the loop, so some of thousands wait for theirs. */
class TakenConnections implements Disposable {
  taken = 0;
  /** When each one was taken that is open, in milliseconds of the process. */
  readonly open = new Map<Socket, number>();
  longestMs = 0;
  readonly #port: number;

  constructor(port: number) {
    this.#port = port;
    subscribe('net.server.socket', this.#see);
  }

  get oldestMs(): number {
    return performance.now() - Math.min(...this.open.values(), performance.now());
  }

  [Symbol.dispose](): void {
    unsubscribe('net.server.socket', this.#see);
  }

  readonly #see = (message: unknown): void => {
    const { socket } = message as { readonly socket: Socket };
    if (socket.localPort !== this.#port) return;
    const atMs = performance.now();
    this.taken++;
    this.open.set(socket, atMs);
    socket.on('close', () => {
      this.open.delete(socket);
      this.longestMs = Math.max(this.longestMs, performance.now() - atMs);
    });
  };
}

/**
 * @param limitMs within which a client must send its request, and take an answer
 * @param patience in parts of it, after which what is left counts as held
 */
export async function stubbornClients(
  count: number,
  limitMs: number,
  patience: number,
  kinds: readonly string[] = Object.keys(stubbornKinds),
): Promise<StubbornReport> {
  await using backend = await TestBackend.open(echo);
  // long, so that answers fill what the kernel keeps for a client that does not read
  backend.models = {
    data: [{ id: 'm' }, ...Array.from({ length: 15_000 }, (_, i) => ({ id: `adapter ${i}` }))],
  };
  await using gateway = await gatewayOf([backend], {
    limits: { uploadMs: limitMs, clientMs: limitMs, requests: 2 * count + 1000, graceMs: 0 },
  });
  const port = Number(new URL(gateway.url).port);
  using connections = new TakenConnections(port);
  const sockets = await Promise.all(
    Array.from({ length: count }, async (_, i): Promise<Socket> => {
      // answers that wait cost this process memory, which is the backend's and the clients' too: few are enough
      const some = i % 200 === 0 || kinds.length === 1 ? kinds : kinds.slice(0, -1);
      const { bytes, reads } = stubbornKinds[some[i % 200 === 0 ? some.length - 1 : i % some.length]];
      const socket = connect({ host: '127.0.0.1', port, allowHalfOpen: true });
      socket.on('error', () => {});
      if (reads) socket.resume();
      else socket.pause();
      await new Promise<void>((resolve) => socket.once('connect', resolve));
      if (bytes !== '') socket.write(bytes);
      return socket;
    }),
  );
  const beside = await ask(gateway, 'p', {}, { connection: 'close' });
  if ((await textOf(beside)) !== 'echo p') throw new Error('another client got another answer');
  const isLate = (): boolean => connections.oldestMs > patience * limitMs;
  while ((connections.taken <= count || connections.open.size > 0) && !isLate()) {
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  const late = [...connections.open.values()].filter((atMs) => performance.now() - atMs > patience * limitMs);
  const longestMs = Math.max(connections.longestMs, connections.oldestMs);
  const report = { held: late.length, limits: longestMs / limitMs, beside: beside.status };
  for (const socket of sockets) socket.destroy();
  return report;
}
