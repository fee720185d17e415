/**
 * Clients that hold on to their connections: they send half of something, ignore the end of the gateway's side, and keep their
 * own open. The campaign asks for 2,000 at a time; a test runs a slice.
 */

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
  /** When the last one was let go, in parts of the limit, from when all were there. */
  readonly limits: number;
  /** Status of the answer to another client while all of them were there. */
  readonly beside: number;
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
  const began = performance.now();
  const beside = await ask(gateway, 'p', {}, { connection: 'close' });
  if ((await textOf(beside)) !== 'echo p') throw new Error('another client got another answer');
  const limits = (): number => (performance.now() - began) / limitMs;
  while (gateway.openConnections > 0 && limits() < patience) {
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  const report = { held: gateway.openConnections, limits: limits(), beside: beside.status };
  for (const socket of sockets) socket.destroy();
  return report;
}
