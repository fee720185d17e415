/** A stream of events to a client that reads slowly, or not at all. */

import { createServer, type ServerResponse } from 'node:http';
import { type AddressInfo, connect } from 'node:net';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { EventStream } from '../../../../examples/server/api/eventStream.ts';

let respond: (response: ServerResponse) => void = () => {};
const server = createServer((_request, response) => respond(response));
beforeAll(() => new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve)));
afterAll(() => {
  server.closeAllConnections();
  server.close();
});

const event = { text: 'x'.repeat(64 * 1024) };

/** Sends events until the client is gone, or `most` are sent. @returns how many were sent */
function sending(patienceMs: number, most: number): Promise<{ sent: number; isOpen: boolean }> {
  return new Promise((resolve) => {
    respond = async (response) => {
      const events = new EventStream(response, { headers: {}, patienceMs, keepAliveMs: 60_000 });
      let sent = 0;
      for (; events.isOpen && sent < most; sent++) await events.send(event);
      const { isOpen } = events;
      events.end();
      resolve({ sent, isOpen });
    };
  });
}

function open(): ReturnType<typeof connect> {
  const socket = connect((server.address() as AddressInfo).port, '127.0.0.1');
  socket.write('GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n');
  return socket;
}

describe('an event stream', () => {
  it('waits for a client that reads, and loses nothing', async () => {
    const done = sending(60_000, 300);
    const socket = open();
    let bytes = 0;
    const ended = new Promise((resolve) => socket.on('end', resolve).on('close', resolve));
    socket.on('data', (part) => {
      bytes += part.length;
      if (bytes % 5 === 0) {
        socket.pause();
        setImmediate(() => socket.resume());
      }
    });
    expect(await done).toEqual({ sent: 300, isOpen: true });
    socket.end();
    await ended;
    expect(bytes).toBeGreaterThan(300 * 64 * 1024);
  });

  it('leaves a client that never reads, before much is kept for it', async () => {
    const done = sending(50, 10_000);
    const socket = open();
    socket.pause();
    const { sent, isOpen } = await done;
    expect(isOpen).toBe(false);
    expect(sent).toBeLessThan(1000);
    socket.destroy();
  });

  it('says that it is alive while there is nothing to send, and not between events', async () => {
    const text = new Promise<string>((resolve) => {
      respond = async (response) => {
        const events = new EventStream(response, { headers: {}, patienceMs: 60_000, keepAliveMs: 20 });
        await events.send({ first: 1 });
        const comment = ': keep-alive\n\n';
        while (!received.includes(comment)) await new Promise((turn) => setTimeout(turn, 5));
        await events.send({ second: 2 });
        events.end();
      };
      let received = '';
      const socket = open();
      socket.on('data', (part) => {
        received += String(part);
      });
      socket.on('close', () => resolve(received)).on('end', () => socket.end());
    });
    const parts = (await text).split(/data: /);
    expect(parts[1]).toMatch(/^\{"first":1\}\n\n/);
    expect(parts[1]).toContain(': keep-alive\n\n');
    expect(parts[2]).toMatch(/^\{"second":2\}\n\n/);
  });

  it('ends when the client leaves while it waits', async () => {
    const done = sending(600_000, 10_000);
    const socket = open();
    socket.pause();
    await new Promise((resolve) => setTimeout(resolve, 50));
    socket.destroy();
    expect((await done).isOpen).toBe(false);
  });
});
